"""Whose turn it is: pure, and the same for every adapter."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from sfn.words import Lane, Slots, Urgency

T = TypeVar("T")


def rotated(lanes: Iterable[Lane], turn: int) -> list[Lane]:
    """The lanes in the order in which they are asked, another one first each turn."""
    order = sorted(lanes)
    first = turn % max(1, len(order))
    return order[first:] + order[:first]


def dealt(due: Sequence[tuple[Lane, Sequence[T]]], slots: Slots) -> list[tuple[Lane, T]]:
    """One of each lane in turn, until the slots are taken.

    Args:
        due: what waits in each lane, the longest waiting first, no more than the lane's free slots.
    """
    left = {Urgency.LIVE: slots.live, Urgency.CHORE: slots.total, Urgency.SWEEP: slots.sweeps}
    tables = slots.total
    beside = Counter(slots.catalogs)
    taken: list[tuple[Lane, T]] = []
    queues = [[(lane, item) for item in items] for lane, items in due]
    for lane, item in (pair for pairs in itertools.zip_longest(*queues) for pair in pairs if pair is not None):
        is_table = lane.urgency is not Urgency.SWEEP
        has_room = tables > 0 and (lane.catalog not in slots.catalogs or beside[lane.catalog] > 0)
        if left[lane.urgency] > 0 and (has_room or not is_table):
            taken.append((lane, item))
            left[lane.urgency] -= 1
            tables -= is_table
            beside[lane.catalog] -= is_table
    return taken
