"""Whose turn it is: pure, and the same for every adapter."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from sfn.words import Lane, Slots, Urgency

T = TypeVar("T")


def rotated(lanes: Iterable[Lane], turn: int) -> list[Lane]:
    """The lanes in the order in which they are asked, another one first each turn."""
    order = sorted(lanes)
    first = turn % max(1, len(order))
    return order[first:] + order[:first]


def dealt(due: Sequence[tuple[Lane, Sequence[T]]], slots: Slots) -> list[tuple[Lane, T]]:
    """One of each short-lived lane in turn, then one of each other one, until the slots are taken.

    Args:
        due: what waits in each lane, the longest waiting first, no more than the lane's free slots.
    """
    left = dict(slots.by_urgency)
    tables = slots.total
    beside = Counter(slots.catalogs)
    taken: list[tuple[Lane, T]] = []
    for lane, item in itertools.chain(*(_in_turn(due, first=first) for first in (True, False))):
        is_table = lane.urgency is not Urgency.SWEEP
        has_room = tables > 0 and (lane.catalog not in slots.catalogs or beside[lane.catalog] > 0)
        if left[lane.urgency] > 0 and (has_room or not is_table):
            taken.append((lane, item))
            left[lane.urgency] -= 1
            left[Urgency.LIVE] -= lane.urgency is Urgency.SHORT_LIVED
            tables -= is_table
            beside[lane.catalog] -= is_table
    return taken


def _in_turn(due: Sequence[tuple[Lane, Sequence[T]]], *, first: bool) -> Iterator[tuple[Lane, T]]:
    """Of the lanes that go first, or of all others, one after the other."""
    chosen = [(lane, items) for lane, items in due if (lane.urgency is Urgency.SHORT_LIVED) is first]
    queues = [[(lane, item) for item in items] for lane, items in chosen]
    return (pair for pairs in itertools.zip_longest(*queues) for pair in pairs if pair is not None)
