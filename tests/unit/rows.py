"""Rows of an inbox, a claim on one, and how it ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import DeadLetterReason, LeasedJob, Outcome, PublishedPointer
from sfn.inbox.model import InboxConfig, Job, JobState, LastResult, group_of, to_leased_job
from sfn.inbox.transitions import on_claim, on_settle

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CAP, LEASE, MOST = timedelta(minutes=5), timedelta(seconds=30), 5
TERMS = InboxConfig(LEASE, CAP, MOST)
ORDERS, PROD = TableIdentifier("prod", ("sales",), "orders"), CatalogName("prod")
HINT = Notification(ORDERS)
QUEUED = Job(ORDERS, NOW + timedelta(hours=1), version=3, processed_version=3, event_seq=2)
LEASED = on_claim(replace(QUEUED, version=4), 7, NOW, LEASE)
LIVE = PublishedPointer("s3://lake/orders/metadata/1.json", "u1", "s3://lake/orders", NOW)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def dead(reason: DeadLetterReason) -> Job:
    return replace(QUEUED, state=JobState.DEAD, reason=reason, attempt=3, failing_since=NOW)


def tried(row: Job, when: datetime) -> Job:
    """The row as it knows when it was given up."""
    return replace(row, last_result=LastResult("dead", "it will not work", when))


def claim_on(row: Job) -> LeasedJob:
    return to_leased_job(row, group_of(row), None)


def ended(outcome: Outcome, row: Job = LEASED, claim: LeasedJob | None = None) -> Job:
    after = on_settle(row, claim or claim_on(LEASED), outcome, NOW, CAP)
    assert after is not None
    return after
