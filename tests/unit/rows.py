"""Rows of an inbox, a claim on one, and how it ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from sfn.inbox.row import Row, State, claim_of, lane_of
from sfn.inbox.standing import Said
from sfn.inbox.terms import Terms
from sfn.inbox.transitions import claimed, settled
from sfn.words import CatalogName, Claim, Hint, Outcome, Published, Reason, TableName

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CAP, LEASE, MOST = timedelta(minutes=5), timedelta(seconds=30), 5
TERMS = Terms(LEASE, CAP, MOST)
ORDERS, PROD = TableName("prod", ("sales",), "orders"), CatalogName("prod")
HINT = Hint(ORDERS)
QUEUED = Row(ORDERS, NOW + timedelta(hours=1), seq=3, done_seq=3)
LEASED = claimed(replace(QUEUED, seq=4), 7, NOW, LEASE)
LIVE = Published("s3://lake/orders/metadata/1.json", "u1", "s3://lake/orders", NOW)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def dead(reason: Reason) -> Row:
    return replace(QUEUED, state=State.DEAD, reason=reason, attempt=3, failing_since=NOW)


def tried(row: Row, when: datetime) -> Row:
    """The row as it knows when it was given up."""
    return replace(row, said=Said("dead", "it will not work", when))


def claim_on(row: Row) -> Claim:
    return claim_of(row, lane_of(row), None)


def ended(outcome: Outcome, row: Row = LEASED, claim: Claim | None = None) -> Row:
    after = settled(row, claim or claim_on(LEASED), outcome, NOW, CAP)
    assert after is not None
    return after
