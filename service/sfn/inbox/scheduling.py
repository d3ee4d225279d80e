"""Order in which jobs are claimed, and the signal that wakes a worker. Shared by all adapters."""

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

T = TypeVar("T")


def rotate(groups: Iterable[ConcurrencyGroup], turn: int) -> list[ConcurrencyGroup]:
    """Return the sorted concurrency groups, rotated by `turn`, so that each turn starts with another group."""
    ordered = sorted(groups)
    first = turn % max(1, len(ordered))
    return ordered[first:] + ordered[:first]


def fair_order(
    due: Sequence[tuple[ConcurrencyGroup, Sequence[T]]], capacity: Capacity
) -> list[tuple[ConcurrencyGroup, T]]:
    """Pick jobs round-robin, first from the short-lived groups and then from the others, until the capacity is used.

    Args:
        due: by group, the due jobs, longest wait first, at most the free capacity of the group.
        capacity: free capacity of the worker.

    Returns:
        The picked jobs, each with its group.
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
    """Yield the jobs round-robin; of the short-lived groups if `first`, else of all others."""
    chosen = [(group, items) for group, items in due if (group.priority is Priority.SHORT_LIVED) is first]
    queues = [[(group, item) for item in items] for group, items in chosen]
    return (pair for pairs in itertools.zip_longest(*queues) for pair in pairs if pair is not None)


def makes_due(before: Job | None, after: Job) -> bool:
    """Return True if a notification may have made a job claimable, or claimable earlier.

    Otherwise no worker is woken: a job that was due already waits for capacity or for a breaker, and the worker knows
    when it gets these.
    """
    if before is None or before.notified_seq <= before.processed_seq:
        return True
    return (before.state, before.due_at) != (after.state, after.due_at)


class WorkerSignal:
    """The wake-up signal of one worker, on one event loop.

    The worker clears the signal before it claims, so a put during the claim still wakes it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._signalled = anyio.Event()

    def clear(self) -> None:
        """Clear the signal, before a claim."""
        if self._signalled.is_set():
            self._signalled = anyio.Event()

    def notify(self) -> None:
        """Wake the worker, because a job may have become due."""
        self._signalled.set()

    async def wait(self, until: datetime | None) -> None:
        """Return once the signal is set, at `until`, or at the time when a new intent is due first.

        Intents do not set the signal: an answer closes most of them long before they are due, and a signal for each
        would cost every gateway commit a claim.
        """
        now = self._clock.now()
        latest = first_check_at(now)
        until = latest if until is None else min(until, latest)
        with anyio.move_on_after(max(0.0, (until - now).total_seconds())):
            await self._signalled.wait()
