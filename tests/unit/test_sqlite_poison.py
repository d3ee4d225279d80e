"""Poison and leases that ran out are told of exactly once, whatever becomes of the transaction that found them."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import Capacity
from sfn.inbox.model import DeadLetterFilter, InboxConfig
from sfn.inbox.sqlite.ledger import SqliteOperations

ORDERS = TableIdentifier("prod", ("sales",), "orders")
NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
PLENTY = Capacity(total=9, live=9, sweeps=9)


def claim_in_vain(ledger: SqliteOperations, *, savepoint: bool) -> None:
    with ledger.transaction(), ledger.savepoint() if savepoint else nullcontext():
        ledger.claim(PLENTY, LATER)
        raise OSError("full")


@pytest.fixture(name="ledger")
def fixture_ledger() -> SqliteOperations:
    """One whose only row will be poison at the next look."""
    made = SqliteOperations(":memory:", InboxConfig(max_crashes=1))
    made.put([Notification(ORDERS)], NOW)
    assert made.claim(PLENTY, NOW).jobs
    return made


@pytest.mark.parametrize("savepoint", [True, False])
@pytest.mark.parametrize("recovered", [True, False])
def test_poison_is_told_by_the_first_claim_that_is_kept(
    ledger: SqliteOperations, *, savepoint: bool, recovered: bool
) -> None:
    if recovered:
        assert ledger.recover(LATER) == 1
    with pytest.raises(OSError, match="full"):
        claim_in_vain(ledger, savepoint=savepoint)
    told = [ledger.claim(PLENTY, LATER) for _ in range(2)]
    assert [(len(claimed.poison_letters), claimed.expired_leases) for claimed in told] == [(1, 1), (0, 0)]
    assert len(ledger.admin.list_after(DeadLetterFilter(), 0, 9)) == 1
