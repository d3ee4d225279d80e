"""How a claim ends, and what that makes of its row."""

from __future__ import annotations

from datetime import datetime

import pytest
from msgspec.structs import replace

from sfn.inbox.row import State, lane_of
from sfn.inbox.transitions import hinted, settled
from sfn.words import (
    Dead,
    Done,
    Findings,
    Hint,
    Later,
    Memo,
    Outcome,
    Reason,
    Released,
    Retry,
    Story,
    Swept,
    Urgency,
    Wish,
)
from tests.unit.rows import CAP, LEASED, LIVE, NOW, ORDERS, PROD, at, claim_on, ended

FOUND = Findings(Story(live=LIVE, visited=True), Memo(etag="v1"), left=frozenset({"s3://lake/b"}))
PLACES = frozenset({"s3://lake/a", "s3://lake/b"})
WISHING = replace(LEASED, wish=Wish(floor="f"), locations=PLACES, memo=Memo(etag="v0"), crashes=2)


@pytest.mark.parametrize(
    ("outcome", "due", "wish"),
    [
        (Done(at(60), FOUND), at(60), Wish()),
        (Later(at(60), "", Wish(drop=True), FOUND), at(60), Wish(drop=True)),
    ],
)
def test_a_success_ends_the_failures(outcome: Outcome, due: datetime, wish: Wish) -> None:
    after = ended(outcome, replace(WISHING, reason=Reason.PERMANENT))
    assert (after.state, after.due_at, after.wish) == (State.QUEUED, due, wish)
    assert (after.attempt, after.crashes, after.failing_since, after.reason) == (0, 0, None, None)
    assert (after.story, after.memo, after.locations) == (FOUND.story, FOUND.memo, frozenset({"s3://lake/a"}))
    assert after.done_seq == LEASED.seq
    assert lane_of(after).urgency is Urgency.CHORE


@pytest.mark.parametrize(
    ("seen", "outcome", "kept"),
    [
        (True, Done(at(60)), False),
        (True, Later(at(60), ""), False),
        (True, Later(at(60), "", Wish(drop=True, purge=True)), True),
        (False, Done(at(60)), True),
        (False, Later(at(60), ""), True),
    ],
)
def test_a_drop_that_a_claim_saw_through_is_not_told_once_more(seen: bool, outcome: Outcome, kept: bool) -> None:
    """Something newer came; but what was told during the claim is told."""
    before = replace(LEASED, wish=Wish(drop=seen, purge=seen))
    told = hinted(before, Hint(ORDERS, drop=not seen, purge=not seen), 9, NOW, CAP)
    after = ended(outcome, told, claim_on(before))
    assert (after.wish.drop, after.wish.purge, after.due_at) == (kept, kept, NOW)


def test_a_sweep_that_ended_leaves_a_row_for_the_next() -> None:
    after = ended(Swept(at(900), NOW, calm=True), replace(WISHING, subject=PROD))
    assert (after.state, after.due_at, after.wish, after.attempt) == (State.QUEUED, at(900), Wish(), 0)


@pytest.mark.parametrize(
    ("outcome", "state", "due", "attempt"),
    [
        (Retry(at(60), ""), State.QUEUED, at(60), 1),
        (Released(at(60), ""), State.QUEUED, at(60), 0),
        (Dead(Reason.PERMANENT, ""), State.DEAD, LEASED.due_at, 1),
        (Dead(Reason.FOREIGN_FILE, "", look_at=at(60)), State.QUEUED, at(60), 0),
    ],
)
def test_a_failure_keeps_the_wish(outcome: Outcome, state: State, due: datetime, attempt: int) -> None:
    after = ended(outcome, WISHING)
    assert (after.state, after.due_at, after.attempt) == (state, due, attempt)
    assert (after.wish, after.memo, after.locations, after.crashes) == (WISHING.wish, Memo(), PLACES, 0)
    spent = isinstance(outcome, Retry) or (isinstance(outcome, Dead) and outcome.look_at is None)
    assert (after.failing_since is not None) == spent


@pytest.mark.parametrize(
    ("outcome", "due"),
    [
        (Done(at(60)), NOW),
        (Done(at(60), forget=True), NOW),
        (Done(at(60), Findings(not_before=at(9))), at(9)),
        (Swept(at(60), NOW, calm=True), at(6)),
        (Swept(at(3600), NOW, calm=True), at(30)),
        (Later(at(60), "", Wish(drop=True)), NOW),
        (Retry(at(60), ""), at(60)),
        (Released(at(60), ""), at(60)),
        (Dead(Reason.HELD_DROP, ""), NOW),
        (Dead(Reason.PERMANENT, ""), NOW + CAP),
        (Dead(Reason.PERMANENT, "", look_at=at(60)), at(60)),
        (Dead(Reason.FOREIGN_FILE, "", look_at=at(60)), NOW),
        (Dead(Reason.FOREIGN_CATALOG, "", look_at=at(60)), NOW),
    ],
)
def test_what_came_while_it_was_leased_is_seen(outcome: Outcome, due: datetime) -> None:
    newer = hinted(WISHING, Hint(ORDERS, drop=True), 9, NOW, CAP)
    after = ended(outcome, newer)
    assert (after.state, after.due_at, after.wish) == (State.QUEUED, due, Wish(floor="f", drop=True))
    assert lane_of(after).urgency is Urgency.LIVE


def test_a_row_that_has_nothing_left_to_say_goes() -> None:
    assert settled(LEASED, claim_on(LEASED), Done(NOW, forget=True), NOW, CAP) is None


def test_that_it_is_to_be_held_outlives_a_publish_that_did_not_know() -> None:
    held = hinted(LEASED, Hint(ORDERS, held=True), 9, NOW, CAP)
    assert ended(Done(NOW, FOUND), held).story.held
    knew = claim_on(replace(LEASED, story=Story(held=True)))
    assert not ended(Done(NOW, FOUND), replace(LEASED, story=Story(held=True)), knew).story.held
