"""Whose turn it is: pure, and the same for every adapter."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

import anyio

from sfn.clock import Clock
from sfn.domain.jobs import Capacity, ConcurrencyGroup, Priority
from sfn.inbox.intents import first_check_at
from sfn.inbox.model import Job

# ── turns: Whose turn it is

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


# ── bell: The bell


def makes_due(before: Job | None, after: Job) -> bool:
    """Whether a hint may have made a row claimable, or sooner so: else the bell need not be rung for it.

    One that was due already waits for a slot or for its lane's breaker, and a worker knows when it gets these.
    """
    if before is None or before.notified_seq <= before.processed_seq:
        return True
    return (before.state, before.due_at) != (after.state, after.due_at)


class WorkerSignal:
    """One worker's bell, on one event loop.

    It is cleared before the inbox is looked at, so what is put while the look is under way still rings.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._signalled = anyio.Event()

    def clear(self) -> None:
        """About to look."""
        if self._signalled.is_set():
            self._signalled = anyio.Event()

    def notify(self) -> None:
        """Something changed."""
        self._signalled.set()

    async def wait(self, until: datetime | None) -> None:
        """Return when it has been rung since it was last cleared, or at `until`.

        At the latest when an intent may be due that was noted meanwhile. To ring for each, which its answer mostly
        closes long before, would cost every commit a look at the inbox while it is on its way.
        """
        now = self._clock.now()
        latest = first_check_at(now)
        until = latest if until is None else min(until, latest)
        with anyio.move_on_after(max(0.0, (until - now).total_seconds())):
            await self._signalled.wait()
