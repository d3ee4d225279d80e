"""How a claim ends, and what that makes of its row."""

from __future__ import annotations

from datetime import datetime

import pytest
from msgspec.structs import replace

from sfn.domain.events import Notification
from sfn.domain.jobs import (
    DeadLettered,
    DeadLetterReason,
    Done,
    Outcome,
    PendingChange,
    Priority,
    PublishCache,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    SweepCompleted,
    TableState,
)
from sfn.inbox.model import JobState, group_of
from sfn.inbox.transitions import on_notification, on_settle
from tests.unit.rows import CAP, LEASED, LIVE, NOW, ORDERS, PROD, at, claim_on, ended

FOUND = PublishResult(
    TableState(live=LIVE, has_settled=True), PublishCache(etag="v1"), vacated=frozenset({"s3://lake/b"})
)
PLACES = frozenset({"s3://lake/a", "s3://lake/b"})
WISHING = replace(
    LEASED, pending=PendingChange(min_metadata_location="f"), locations=PLACES, cache=PublishCache(etag="v0"), crashes=2
)


@pytest.mark.parametrize(
    ("outcome", "due", "wish"),
    [
        (Done(at(60), FOUND), at(60), PendingChange()),
        (Rescheduled(at(60), "", PendingChange(drop=True), FOUND), at(60), PendingChange(drop=True)),
    ],
)
def test_a_success_ends_the_failures(outcome: Outcome, due: datetime, wish: PendingChange) -> None:
    after = ended(outcome, replace(WISHING, reason=DeadLetterReason.PERMANENT))
    assert (after.state, after.due_at, after.pending) == (JobState.QUEUED, due, wish)
    assert (after.attempt, after.crashes, after.failing_since, after.reason) == (0, 0, None, None)
    assert (after.table_state, after.cache, after.locations) == (
        FOUND.table_state,
        FOUND.cache,
        frozenset({"s3://lake/a"}),
    )
    assert after.processed_seq == LEASED.notified_seq
    assert group_of(after).priority is Priority.BACKGROUND


@pytest.mark.parametrize(
    ("seen", "outcome", "kept"),
    [
        (True, Done(at(60)), False),
        (True, Rescheduled(at(60), ""), False),
        (True, Rescheduled(at(60), "", PendingChange(drop=True, purge=True)), True),
        (False, Done(at(60)), True),
        (False, Rescheduled(at(60), ""), True),
    ],
)
def test_a_drop_that_a_claim_saw_through_is_not_told_once_more(seen: bool, outcome: Outcome, kept: bool) -> None:
    """Something newer came; but what was told during the claim is told."""
    before = replace(LEASED, pending=PendingChange(drop=seen, purge=seen))
    told = on_notification(before, Notification(ORDERS, drop=not seen, purge=not seen), 9, NOW, CAP)
    after = ended(outcome, told, claim_on(before))
    assert (after.pending.drop, after.pending.purge, after.due_at) == (kept, kept, NOW)


def test_a_sweep_that_ended_leaves_a_row_for_the_next() -> None:
    after = ended(SweepCompleted(at(900), NOW, within_limit=True), replace(WISHING, subject=PROD))
    assert (after.state, after.due_at, after.pending, after.attempt) == (JobState.QUEUED, at(900), PendingChange(), 0)


@pytest.mark.parametrize(
    ("outcome", "state", "due", "attempt"),
    [
        (Retry(at(60), ""), JobState.QUEUED, at(60), 1),
        (Returned(at(60), ""), JobState.QUEUED, at(60), 0),
        (DeadLettered(DeadLetterReason.PERMANENT, ""), JobState.DEAD, LEASED.due_at, 1),
        (DeadLettered(DeadLetterReason.FOREIGN_FILE, "", recheck_at=at(60)), JobState.QUEUED, at(60), 0),
    ],
)
def test_a_failure_keeps_the_wish(outcome: Outcome, state: JobState, due: datetime, attempt: int) -> None:
    after = ended(outcome, WISHING)
    assert (after.state, after.due_at, after.attempt) == (state, due, attempt)
    assert (after.pending, after.cache, after.locations, after.crashes) == (WISHING.pending, PublishCache(), PLACES, 0)
    spent = isinstance(outcome, Retry) or (isinstance(outcome, DeadLettered) and outcome.recheck_at is None)
    assert (after.failing_since is not None) == spent


@pytest.mark.parametrize(
    ("outcome", "due"),
    [
        (Done(at(60)), NOW),
        (Done(at(60), forget=True), NOW),
        (Done(at(60), PublishResult(not_before=at(9))), at(9)),
        (SweepCompleted(at(60), NOW, within_limit=True), at(6)),
        (SweepCompleted(at(3600), NOW, within_limit=True), at(30)),
        (Rescheduled(at(60), "", PendingChange(drop=True)), NOW),
        (Retry(at(60), ""), at(60)),
        (Returned(at(60), ""), at(60)),
        (DeadLettered(DeadLetterReason.HELD_DROP, ""), NOW),
        (DeadLettered(DeadLetterReason.PERMANENT, ""), NOW + CAP),
        (DeadLettered(DeadLetterReason.PERMANENT, "", recheck_at=at(60)), at(60)),
        (DeadLettered(DeadLetterReason.FOREIGN_FILE, "", recheck_at=at(60)), NOW),
        (DeadLettered(DeadLetterReason.FOREIGN_CATALOG, "", recheck_at=at(60)), NOW),
    ],
)
def test_what_came_while_it_was_leased_is_seen(outcome: Outcome, due: datetime) -> None:
    newer = on_notification(WISHING, Notification(ORDERS, drop=True), 9, NOW, CAP)
    after = ended(outcome, newer)
    assert (after.state, after.due_at, after.pending) == (
        JobState.QUEUED,
        due,
        PendingChange(min_metadata_location="f", drop=True),
    )
    assert group_of(after).priority is Priority.LIVE


def test_a_row_that_has_nothing_left_to_say_goes() -> None:
    assert on_settle(LEASED, claim_on(LEASED), Done(NOW, forget=True), NOW, CAP) is None


def test_that_it_is_to_be_held_outlives_a_publish_that_did_not_know() -> None:
    held = on_notification(LEASED, Notification(ORDERS, hold_drops=True), 9, NOW, CAP)
    assert ended(Done(NOW, FOUND), held).table_state.on_hold
    knew = claim_on(replace(LEASED, table_state=TableState(on_hold=True)))
    assert not ended(Done(NOW, FOUND), replace(LEASED, table_state=TableState(on_hold=True)), knew).table_state.on_hold
