"""Poison is told of exactly once, whatever becomes of the transaction in which it was found."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest

from sfn.inbox.letters import Wanted
from sfn.inbox.sqlite.ledger import Ledger
from sfn.inbox.terms import Terms
from sfn.words import Hint, Slots, TableName

ORDERS = TableName("prod", ("sales",), "orders")
NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
PLENTY = Slots(total=9, live=9, sweeps=9)


def claim_in_vain(ledger: Ledger, *, savepoint: bool) -> None:
    with ledger.transaction(), ledger.savepoint() if savepoint else nullcontext():
        ledger.claim(PLENTY, LATER)
        raise OSError("full")


@pytest.fixture(name="ledger")
def fixture_ledger() -> Ledger:
    """One whose only row will be poison at the next look."""
    made = Ledger(":memory:", Terms(crashes=1))
    made.put([Hint(ORDERS)], NOW)
    assert made.claim(PLENTY, NOW).claims
    return made


@pytest.mark.parametrize("savepoint", [True, False])
@pytest.mark.parametrize("recovered", [True, False])
def test_poison_is_told_by_the_first_claim_that_is_kept(ledger: Ledger, *, savepoint: bool, recovered: bool) -> None:
    if recovered:
        assert ledger.recover(LATER) == 1
    with pytest.raises(OSError, match="full"):
        claim_in_vain(ledger, savepoint=savepoint)
    told = [ledger.claim(PLENTY, LATER).poisoned for _ in range(2)]
    assert [len(letters) for letters in told] == [1, 0]
    assert len(ledger.desk.find(Wanted(), 0, 9)) == 1
