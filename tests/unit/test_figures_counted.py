"""Figures that take longer to count than whoever asks for them waits."""

from __future__ import annotations

import anyio

from sfn.inbox.postgres.counting import CachedStats
from sfn.inbox.statistics import QueueStats

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
    counted = CachedStats(slow.count, max_age=10)
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
    await CachedStats(slow.count, max_age=10).refresh()
    assert slow.begun == 0
