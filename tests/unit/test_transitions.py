"""How a row changes, by each event but the end of a claim (`test_outcomes`), and what holds for all of them."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sfn.inbox import transitions
from sfn.inbox.bell import stirs
from sfn.inbox.row import Row, State, is_held_by, lane_of
from sfn.inbox.transitions import asked, claimed, expired, hinted, is_poison, released, settled
from sfn.words import (
    Ask,
    CatalogName,
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
    TableName,
    Wish,
)
from tests.unit.rows import (
    CAP,
    HINT,
    LEASE,
    LEASED,
    MOST,
    NOW,
    ORDERS,
    PROD,
    QUEUED,
    TERMS,
    at,
    claim_on,
    dead,
    ended,
    tried,
)

PAUSED = replace(QUEUED, not_before=at(9))
FAILING = replace(QUEUED, attempt=2, failing_since=NOW, due_at=at(60))


@pytest.mark.parametrize(
    ("row", "state", "due"),
    [
        (None, State.QUEUED, NOW),
        (QUEUED, State.QUEUED, NOW),
        (replace(QUEUED, due_at=at(-5)), State.QUEUED, at(-5)),
        (PAUSED, State.QUEUED, at(9)),
        (replace(PAUSED, not_before=at(-9)), State.QUEUED, NOW),
        (replace(PAUSED, not_before=at(86400)), State.QUEUED, NOW),
        (FAILING, State.QUEUED, at(60)),
        (replace(FAILING, due_at=at(86400)), State.QUEUED, NOW + CAP),
        (LEASED, State.LEASED, LEASED.due_at),
        (dead(Reason.HELD_DROP), State.QUEUED, NOW),
        (dead(Reason.FOREIGN_CATALOG), State.QUEUED, NOW),
        (dead(Reason.FOREIGN_FILE), State.QUEUED, NOW),
        (dead(Reason.LOCATION_REFUSED), State.QUEUED, NOW),
        (dead(Reason.POISON), State.QUEUED, NOW + CAP),
        (tried(dead(Reason.POISON), at(-60)), State.QUEUED, at(-60) + CAP),
        (tried(dead(Reason.EXHAUSTED), at(-86400)), State.QUEUED, NOW),
        (tried(dead(Reason.PERMANENT), at(86400)), State.QUEUED, NOW + CAP),
        (replace(dead(Reason.HELD_DROP), not_before=at(9)), State.QUEUED, at(9)),
        (replace(QUEUED, reason=Reason.FOREIGN_FILE), State.QUEUED, NOW),
        (replace(QUEUED, reason=Reason.PERMANENT), State.QUEUED, NOW + CAP),
        (replace(QUEUED, reason=Reason.PERMANENT, due_at=at(20)), State.QUEUED, at(20)),
        (tried(replace(QUEUED, reason=Reason.PERMANENT), at(-60)), State.QUEUED, at(-60) + CAP),
    ],
)
def test_a_hint_moves(row: Row | None, state: State, due: datetime) -> None:
    after = hinted(row, HINT, 9, NOW, CAP)
    assert (after.state, after.due_at, after.seq, after.wish.vague) == (state, due, 9, True)
    before = row or Row(ORDERS, NOW)
    assert (after.attempt, after.done_seq, after.reason) == (before.attempt, before.done_seq, before.reason)


@pytest.mark.parametrize(
    ("row", "stirring"),
    [
        (None, True),
        (QUEUED, True),
        (replace(QUEUED, due_at=at(-5)), True),
        (replace(QUEUED, due_at=at(-5), seq=4), False),
        (replace(QUEUED, seq=4), True),
        (replace(PAUSED, due_at=at(9), seq=4), False),
        (replace(FAILING, seq=4), False),
        (LEASED, False),
        (dead(Reason.HELD_DROP), True),
    ],
)
def test_only_a_hint_that_makes_something_claimable_stirs(row: Row | None, stirring: bool) -> None:
    assert stirs(row, hinted(row, HINT, 9, NOW, CAP)) is stirring


def test_what_a_row_that_was_given_up_was_told_of_is_what_the_last_hint_says() -> None:
    """Else a table that was rolled back meanwhile would never be known for the one that was given up."""
    older, newer = (f"s3://lake/orders/metadata/0000{number}-{UUID(int=number)}.json" for number in (8, 9))
    given_up = replace(dead(Reason.POISON), wish=Wish(floor=newer))
    assert hinted(given_up, Hint(ORDERS, floor=older), 9, NOW, CAP).wish.floor == older
    assert hinted(given_up, HINT, 9, NOW, CAP).wish.floor == newer
    assert hinted(replace(QUEUED, wish=Wish(floor=newer)), Hint(ORDERS, floor=older), 9, NOW, CAP).wish.floor == newer


@pytest.mark.parametrize(
    ("row", "due"),
    [
        (QUEUED, NOW),
        (replace(QUEUED, due_at=at(-5)), at(-5)),
        (PAUSED, at(9)),
        (FAILING, at(60)),
        (LEASED, LEASED.due_at),
        (dead(Reason.HELD_DROP), QUEUED.due_at),
    ],
)
def test_an_ask_moves(row: Row, due: datetime) -> None:
    after = asked(row, Ask(ORDERS), 9, NOW, CAP)
    assert after == replace(row, due_at=due, seq=9, told_seq=row.seq, waits_since=NOW if row is FAILING else None)


@pytest.mark.parametrize("row", [None, QUEUED, FAILING, LEASED, dead(Reason.FOREIGN_FILE), dead(Reason.POISON)])
def test_an_ask_that_tells_something_does_what_an_event_does(row: Row | None) -> None:
    """It comes from another spelling of the row's name; the last event of the row stays the one that was logged."""
    after = asked(row, Ask(ORDERS, floor="s3://lake/2.json", drop=True, purge=True), 9, NOW, CAP)
    told = hinted(row, Hint(ORDERS, floor="s3://lake/2.json", drop=True, purge=True), 9, NOW, CAP)
    assert after is not None
    assert after == replace(told, wish=after.wish, told_seq=0 if row is None else row.seq)
    is_all_relayed = row is None or row.wish == Wish()
    assert after.wish == dataclasses.replace(told.wish, relayed=is_all_relayed)


def test_what_only_other_spellings_told_is_known_until_an_event_comes() -> None:
    ask = Ask(ORDERS, drop=True)
    once = asked(None, ask, 9, NOW, CAP)
    twice = asked(once, ask, 10, NOW, CAP)
    assert twice is not None
    assert twice.wish.relayed
    told = hinted(twice, Hint(ORDERS, drop=True), 11, NOW, CAP)
    assert not told.wish.relayed
    again = asked(told, ask, 12, NOW, CAP)
    assert again is not None
    assert not again.wish.relayed


def test_an_ask_makes_a_row_and_teaches_it_a_place() -> None:
    assert asked(None, Ask(ORDERS), 9, NOW, CAP) == Row(ORDERS, NOW, seq=9, told_seq=0)
    taught = asked(None, Ask(ORDERS, "s3://lake/a"), 9, NOW, CAP)
    assert taught == Row(
        ORDERS, NOW, seq=9, told_seq=0, locations=frozenset({"s3://lake/a"}), story=Story(visited=True)
    )
    assert asked(taught, Ask(ORDERS, "s3://lake/a"), 10, NOW, CAP) is None
    learnt = asked(taught, Ask(ORDERS, "s3://lake/b"), 10, NOW, CAP)
    assert learnt is not None
    assert learnt.locations == {"s3://lake/a", "s3://lake/b"}


def test_a_claim_counts_the_attempt_and_fences_those_before() -> None:
    assert (
        replace(QUEUED, seq=4, state=State.LEASED, token=7, attempt=1, lease_until=NOW + LEASE, failing_since=NOW)
        == LEASED
    )
    claim = claim_on(LEASED)
    assert is_held_by(LEASED, claim)
    assert not is_held_by(replace(LEASED, token=8), claim)
    assert not is_held_by(replace(LEASED, state=State.QUEUED), claim)
    assert not is_held_by(None, claim)
    later = claimed(replace(FAILING, failing_since=at(-60)), 8, NOW, LEASE)
    assert (later.attempt, later.failing_since) == (3, at(-60))


def test_a_renewal_moves_the_end_of_the_lease_alone() -> None:
    assert transitions.renewed(LEASED, at(20), LEASE) == replace(LEASED, lease_until=at(50))


@pytest.mark.parametrize(
    ("subject", "crashes", "due", "poison"),
    [
        (ORDERS, 0, NOW, False),
        (ORDERS, MOST - 2, NOW, False),
        (ORDERS, MOST - 1, NOW + TERMS.poison_pause, True),
        (ORDERS, MOST, NOW + TERMS.poison_pause, True),
        (PROD, MOST - 2, NOW, False),
        (PROD, MOST - 1, NOW + CAP, False),
        (PROD, MOST + 3, NOW + CAP, False),
    ],
)
def test_a_lease_that_runs_out_moves(
    subject: TableName | CatalogName, crashes: int, due: datetime, poison: bool
) -> None:
    row = replace(LEASED, subject=subject, crashes=crashes, memo=Memo(etag="v1"))
    after = expired(row, NOW, TERMS)
    assert (after.state, after.due_at, after.crashes) == (State.QUEUED, due, crashes + 1)
    assert (after.reason is Reason.POISON) == is_poison(after, TERMS) == poison
    assert (after.memo, after.attempt, after.wish) == (Memo(), LEASED.attempt, LEASED.wish)
    assert (after.seq, after.done_seq) == (LEASED.seq, LEASED.done_seq)


def test_poison_is_looked_at_after_a_new_event_but_not_at_once_and_may_heal() -> None:
    poison = expired(replace(LEASED, crashes=MOST - 1), NOW, TERMS)
    assert asked(poison, Ask(ORDERS), 8, NOW, CAP) == replace(poison, seq=8, told_seq=poison.seq)
    again = hinted(poison, HINT, 9, NOW, CAP)
    assert (again.state, again.due_at) == (State.QUEUED, NOW + CAP)
    healed = ended(Done(at(60)), claimed(again, 9, NOW, LEASE))
    assert (healed.reason, healed.crashes, healed.attempt) == (None, 0, 0)
    assert not is_poison(expired(replace(claimed(again, 9, NOW, LEASE), crashes=0), NOW, TERMS), TERMS)


@pytest.mark.parametrize("row", [dead(Reason.HELD_DROP), LEASED, FAILING], ids=["dead", "leased", "failing"])
def test_an_operator_lets_a_row_pass_once(row: Row) -> None:
    after = released(replace(row, story=Story(held=True)), NOW)
    assert (after.state, after.due_at, after.attempt, after.reason) == (State.QUEUED, NOW, 0, None)
    assert after.story == Story(waived=True)
    assert not is_held_by(after, claim_on(row))


pauses = st.integers(-100, 1000).map(at)
outcomes = st.one_of(
    st.builds(Done, pauses, st.builds(Findings, not_before=st.none() | pauses), st.booleans()),
    st.builds(Later, pauses, st.just(""), findings=st.builds(Findings, not_before=st.none() | pauses)),
    st.builds(Retry, pauses, st.just("")),
    st.builds(Released, pauses, st.just("")),
    st.builds(Dead, st.sampled_from(Reason), st.just(""), look_at=st.none() | pauses),
)
events = st.one_of(outcomes, st.sampled_from(["hint", "ask", "expire", "release"]))


@given(st.lists(events, max_size=30))
def test_no_pause_is_shortened_and_no_hint_lost(history: list[Outcome | str]) -> None:
    row = hinted(None, HINT, 1, NOW, CAP)
    seq = 1
    for number, event in enumerate(history):
        seq += 1
        if event == "hint":
            after: Row | None = hinted(row, HINT, seq, NOW, CAP)
        elif event == "ask":
            after = asked(row, Ask(ORDERS), seq, NOW, CAP)
        elif event == "release":
            after = released(row, NOW)
        elif event == "expire":
            after = expired(claimed(row, number, NOW, LEASE), NOW, TERMS)
        elif isinstance(event, str):
            raise AssertionError(event)
        else:
            leased = claimed(row, number, NOW, LEASE)
            claim = claim_on(leased)
            after = settled(hinted(leased, HINT, seq, NOW, CAP), claim, event, NOW, CAP)
            assert after is not None
            assert after.seq > after.done_seq
        assert after is not None
        assert after.state is not State.LEASED
        if after.state is State.QUEUED and after.not_before is not None and after.due_at != row.due_at:
            assert after.due_at >= after.not_before
        row = after


def test_two_mounts_are_two_lanes() -> None:
    """One whose server is gone must not hold up the tables of the other."""
    stores = ("file:///mnt/a", "file:///mnt/b")
    rows = [replace(QUEUED, locations=frozenset({f"{store}/n/t"})) for store in stores]
    assert [lane_of(row, stores).store for row in rows] == list(stores)
    assert lane_of(rows[0]).store == lane_of(rows[1]).store
