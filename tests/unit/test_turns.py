"""Whose turn it is."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sfn.domain.jobs import Capacity, ConcurrencyGroup, Priority
from sfn.inbox.scheduling import fair_order, rotate

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
