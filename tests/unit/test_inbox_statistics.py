"""Statistics, error log and fair order of an inbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from structlog.typing import EventDict

from sfn.domain.jobs import Capacity, ConcurrencyGroup, Priority
from sfn.errors import ErrorScope, Transient
from sfn.inbox import QueueStats
from sfn.inbox.inbox import LOG_INTERVAL, CachedCounts, InboxErrorLog
from sfn.inbox.jobs import fair_order, rotate
from tests.support.clock import HandClock

FIGURES = QueueStats(tables={}, oldest_due={}, dead_letters={}, limit_reached=frozenset())


class Slow:
    """Has counted once it is let."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.may_end = anyio.Event()

    async def count(self) -> QueueStats:
        self.begun += 1
        await self.may_end.wait()
        self.ended += 1
        return FIGURES


async def test_what_nobody_waited_for_is_counted_all_the_same() -> None:
    slow = Slow()
    counted = CachedCounts(slow.count, max_age=10)
    with anyio.move_on_after(0.01) as gave_up:
        await counted()
    assert gave_up.cancelled_caught
    slow.may_end.set()
    await counted.refresh()
    assert (slow.begun, slow.ended) == (2, 1)
    assert await counted() is FIGURES
    assert slow.begun == 2


async def test_what_nobody_asked_for_is_not_counted() -> None:
    slow = Slow()
    await CachedCounts(slow.count, max_age=10).refresh()
    assert slow.begun == 0


MINUTE = LOG_INTERVAL.total_seconds()


class Calls:
    """Calls of an inbox.

    Attributes:
        clock: turned by hand.
        records: what the log was told.
    """

    def __init__(self, records: list[EventDict]) -> None:
        self.clock, self.records = HandClock(), records
        self._troubles = InboxErrorLog(self.clock, "worker")

    def fail(self, found: str) -> None:
        """One that meets a trouble, which must come out as it is."""
        trouble = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found=found)
        with pytest.raises(Transient) as caught, self._troubles.log_errors():
            raise trouble
        assert caught.value is trouble

    def work(self) -> None:
        """One that works."""
        with self._troubles.log_errors():
            pass

    @property
    def told(self) -> list[tuple[str, str]]:
        """Levels and what was found; empty for an end."""
        return [(one["log_level"], str(one.get("error", "")).rpartition("found ")[2]) for one in self.records]


@pytest.fixture
def calls() -> Iterator[Calls]:
    with capture_logs() as records:
        yield Calls(records)


def test_a_trouble_is_told_as_it_begins_and_as_it_ends(calls: Calls) -> None:
    calls.work()
    calls.fail("none")
    calls.work()
    calls.work()
    error = "inbox: expected room, found none"
    assert calls.records == [
        {"event": "inbox call failed", "log_level": "warning", "part": "worker", "error": error},
        {"event": "inbox recovered", "log_level": "info", "part": "worker"},
    ]


def test_one_that_lasts_is_told_once_a_minute(calls: Calls) -> None:
    for _ in range(3 * int(MINUTE)):
        calls.fail("none")
        calls.clock.turn(1)
    assert calls.told == [("warning", "none")] * 3


def test_another_one_is_told_at_once_and_each_once_a_minute(calls: Calls) -> None:
    for _ in range(int(MINUTE)):
        calls.fail("none")
        calls.fail("a lock")
        calls.clock.turn(1)
    assert calls.told == [("warning", "none"), ("warning", "a lock")]


def test_one_that_comes_and_goes_is_told_once_a_minute_too(calls: Calls) -> None:
    for _ in range(2 * int(MINUTE)):
        calls.fail("none")
        calls.work()
        calls.clock.turn(1)
    assert calls.told == [("warning", "none"), ("info", "")] * 2


def test_a_clock_that_is_set_back_silences_nothing(calls: Calls) -> None:
    calls.fail("none")
    calls.clock.turn(-3600)
    calls.fail("none")
    assert len(calls.told) == 2


def test_what_is_no_trouble_is_not_told(calls: Calls) -> None:
    troubles = InboxErrorLog(calls.clock, "worker")
    with suppress(ZeroDivisionError), troubles.log_errors():
        raise ZeroDivisionError
    assert calls.told == []


A, B, C = (ConcurrencyGroup(name, "", Priority.LIVE) for name in "abc")
FIRST = ConcurrencyGroup("a", "", Priority.SHORT_LIVED)
CHORE, SWEEP = ConcurrencyGroup("a", "", Priority.BACKGROUND), ConcurrencyGroup("a", "", Priority.SWEEP)
PLENTY = Capacity(total=99, live=99, sweeps=99)

lanes = st.builds(ConcurrencyGroup, st.sampled_from("abc"), st.sampled_from(["", "s3://x"]), st.sampled_from(Priority))
counts = st.integers(-1, 12)


def test_another_lane_is_first_each_turn() -> None:
    assert [rotate([C, A, B], turn)[0] for turn in range(4)] == [A, B, C, A]
    assert rotate({B, A, C}, 1) == [B, C, A]
    assert rotate([], 7) == []


def test_one_of_each_lane_is_dealt_in_turn() -> None:
    due = [(A, [1, 2, 3]), (B, []), (C, [7])]
    assert fair_order(due, PLENTY) == [(A, 1), (C, 7), (A, 2), (A, 3)]


def test_live_lanes_leave_the_rest_to_chores() -> None:
    due = [(A, [1, 2, 3]), (B, [4, 5]), (CHORE, [6, 7])]
    assert fair_order(due, Capacity(total=3, live=2, sweeps=0)) == [(A, 1), (B, 4), (CHORE, 6)]


def test_what_is_short_lived_goes_first_within_the_slots_of_live_lanes() -> None:
    due = [(A, [1, 2, 3]), (B, [4, 5]), (CHORE, [6, 7]), (FIRST, [8, 9])]
    assert fair_order(due, Capacity(total=4, live=3, sweeps=0)) == [(FIRST, 8), (FIRST, 9), (A, 1), (CHORE, 6)]
    held_back = Capacity(total=4, live=3, sweeps=0, short_lived=1)
    assert fair_order(due, held_back) == [(FIRST, 8), (A, 1), (B, 4), (CHORE, 6)]
    assert [held_back.available_in(lane) for lane in (FIRST, A, CHORE)] == [1, 3, 4]
    assert replace(held_back, short_lived=9).available_in(FIRST) == 3


def test_sweeps_take_no_tables_slot() -> None:
    due = [(SWEEP, [1, 2]), (CHORE, [3, 4])]
    assert fair_order(due, Capacity(total=1, live=1, sweeps=2)) == [(SWEEP, 1), (CHORE, 3), (SWEEP, 2)]


def test_a_catalog_takes_no_more_than_its_room_in_all_its_lanes() -> None:
    due = [(A, [1, 2, 3]), (B, [4]), (CHORE, [6, 7]), (SWEEP, [8])]
    slots = Capacity(total=9, live=9, sweeps=1, per_catalog={"a": 2})
    assert fair_order(due, slots) == [(A, 1), (B, 4), (CHORE, 6), (SWEEP, 8)]
    assert [slots.available_in(lane) for lane in (A, B, CHORE, SWEEP)] == [2, 9, 2, 1]


@given(st.dictionaries(lanes, st.lists(st.integers(), max_size=8)), st.tuples(counts, counts, counts, counts))
def test_slots_are_neither_exceeded_nor_wasted(
    waiting: dict[ConcurrencyGroup, list[int]], slots: tuple[int, int, int, int]
) -> None:
    total, live, sweeps, first = slots
    taken = [
        lane.priority for lane, _ in fair_order(list(waiting.items()), Capacity(total, live, sweeps, short_lived=first))
    ]
    had = {urgency: sum(len(due) for lane, due in waiting.items() if lane.priority is urgency) for urgency in Priority}
    assert taken.count(Priority.SWEEP) == max(0, min(sweeps, had[Priority.SWEEP]))
    most_first = max(0, min(live, first, had[Priority.SHORT_LIVED]))
    assert taken.count(Priority.SHORT_LIVED) == max(0, min(total, most_first))
    assert taken.count(Priority.SHORT_LIVED) + taken.count(Priority.LIVE) <= max(0, live)
    most_live = max(0, min(live, most_first + had[Priority.LIVE]))
    assert len(taken) - taken.count(Priority.SWEEP) == max(0, min(total, most_live + had[Priority.BACKGROUND]))
