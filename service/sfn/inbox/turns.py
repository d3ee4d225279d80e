"""Whose turn it is: pure, and the same for every adapter."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from sfn.domain.jobs import Capacity, ConcurrencyGroup, Priority

T = TypeVar("T")


def rotate(groups: Iterable[ConcurrencyGroup], turn: int) -> list[ConcurrencyGroup]:
    """The lanes in the order in which they are asked, another one first each turn."""
    order = sorted(groups)
    first = turn % max(1, len(order))
    return order[first:] + order[:first]


def fair_order(
    due: Sequence[tuple[ConcurrencyGroup, Sequence[T]]], capacity: Capacity
) -> list[tuple[ConcurrencyGroup, T]]:
    """One of each short-lived lane in turn, then one of each other one, until the slots are taken.

    Args:
        due: what waits in each lane, the longest waiting first, no more than the lane's free slots.
    """
    free = dict(capacity.by_priority)
    tables = capacity.total
    per_catalog = Counter(capacity.per_catalog)
    taken: list[tuple[ConcurrencyGroup, T]] = []
    for group, item in itertools.chain(*(_in_turn(due, first=first) for first in (True, False))):
        is_table = group.priority is not Priority.SWEEP
        has_room = tables > 0 and (group.catalog not in capacity.per_catalog or per_catalog[group.catalog] > 0)
        if free[group.priority] > 0 and (has_room or not is_table):
            taken.append((group, item))
            free[group.priority] -= 1
            free[Priority.LIVE] -= group.priority is Priority.SHORT_LIVED
            tables -= is_table
            per_catalog[group.catalog] -= is_table
    return taken


def _in_turn(
    due: Sequence[tuple[ConcurrencyGroup, Sequence[T]]], *, first: bool
) -> Iterator[tuple[ConcurrencyGroup, T]]:
    """Of the lanes that go first, or of all others, one after the other."""
    chosen = [(group, items) for group, items in due if (group.priority is Priority.SHORT_LIVED) is first]
    queues = [[(group, item) for item in items] for group, items in chosen]
    return (pair for pairs in itertools.zip_longest(*queues) for pair in pairs if pair is not None)
