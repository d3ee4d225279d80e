"""Cache of the inbox statistics: counting reads all jobs, which takes long if there are many."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from sfn.inbox.statistics import QueueStats

SHARE: Final = 20
"""Of this many seconds the database counts for one at most."""
WANTED: Final = 300.0
"""Seconds after the last read until the cache is not refreshed any more: most scrapers read more often."""


class CachedStats:
    """Figures that are a few seconds old.

    Args:
        count: counts them.
        kept: seconds; longer where counting takes long.
    """

    def __init__(self, count: Callable[[], Awaitable[QueueStats]], max_age: float) -> None:
        self._count, self._max_age = count, max_age
        self._figures: QueueStats | None = None
        self._begun_at = self._due_at = self._pause = 0.0
        self._asked_at = -math.inf
        self._counting = anyio.Lock()

    async def __call__(self) -> QueueStats:
        """Return the statistics; the first call, and a call after a long pause, waits until they are counted."""
        self._asked_at = now = anyio.current_time()
        # As long again: who asks is in a hurry, and `refresh` is not.
        if self._figures is None or now >= self._due_at + self._pause:
            return await self._counted()
        return self._figures

    async def refresh(self) -> None:
        """Count the statistics if they are due and were read recently, also if the first reader stopped waiting."""
        now = anyio.current_time()
        if self._due_at <= now < self._asked_at + WANTED:
            await self._counted()

    async def _counted(self) -> QueueStats:
        asked_at = anyio.current_time()
        async with self._counting:
            if self._figures is None or self._begun_at < asked_at:
                self._begun_at = anyio.current_time()
                self._figures = await self._count()
                ended_at = anyio.current_time()
                self._pause = max(self._max_age, SHARE * (ended_at - self._begun_at)) if self._max_age else 0.0
                self._due_at = ended_at + self._pause
            return self._figures
