"""Poison is told of exactly once, whatever becomes of the transaction in which it was found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sfn.inbox.sqlite.ledger import Ledger
from sfn.inbox.terms import Terms
from sfn.words import Hint, Slots, TableName

ORDERS = TableName("prod", ("sales",), "orders")
NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
PLENTY = Slots(total=9, live=9, sweeps=9)


@pytest.mark.parametrize("undone", ["transaction", "savepoint"])
def test_poison_that_was_undone_is_told_by_the_claim_that_finds_it_again(undone: str) -> None:
    ledger = Ledger(":memory:", Terms(crashes=1))
    ledger.put([Hint(ORDERS)], NOW)
    assert ledger.claim(PLENTY, NOW).claims
    with pytest.raises(OSError, match="full"), ledger.transaction():
        if undone == "transaction":
            ledger.claim(PLENTY, LATER)
            raise OSError("full")
        with ledger.savepoint():
            ledger.claim(PLENTY, LATER)
            raise OSError("full")
    told = [ledger.claim(PLENTY, LATER).poisoned for _ in range(2)]
    assert [len(letters) for letters in told] == [1, 0]
    assert len(ledger.letters("prod")) == 1


def test_poison_that_a_start_finds_is_told_by_its_first_claim_that_is_kept() -> None:
    ledger = Ledger(":memory:", Terms(crashes=1))
    ledger.put([Hint(ORDERS)], NOW)
    assert ledger.claim(PLENTY, NOW).claims
    assert ledger.recover(LATER) == 1
    with pytest.raises(OSError, match="full"), ledger.transaction():
        ledger.claim(PLENTY, LATER)
        raise OSError("full")
    assert [letter.subject for letter in ledger.claim(PLENTY, LATER).poisoned] == [ORDERS]
