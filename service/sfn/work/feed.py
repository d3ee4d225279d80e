"""Hands what one finds to the many who work on it, and lets the finder get no further ahead than so far."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

import anyio

T = TypeVar("T")

MAX_QUEUED: Final = 256
"""Things that wait to be taken."""


class BoundedQueue(Generic[T]):
    """From one to many, in order. What is there is taken without a turn of the loop, which anyio's streams cost.

    Args:
        ahead: how many may wait.
    """

    def __init__(self, max_queued: int = MAX_QUEUED) -> None:
        self._queued: deque[T] = deque()
        self._max_queued = max_queued
        self._has_items, self._has_room = anyio.Event(), anyio.Event()
        self._is_closed = False

    async def put(self, item: T) -> None:
        """Hand over one more, once there is room for it."""
        while len(self._queued) >= self._max_queued:
            self._has_room = anyio.Event()
            await self._has_room.wait()
        self._queued.append(item)
        self._has_items.set()

    def close(self) -> None:
        """Nothing more will come."""
        self._is_closed = True
        self._has_items.set()

    async def get(self) -> T | None:
        """The next one; None at the end."""
        while not self._queued:
            if self._is_closed:
                return None
            if self._has_items.is_set():
                self._has_items = anyio.Event()
            await self._has_items.wait()
        item = self._queued.popleft()
        if len(self._queued) <= self._max_queued // 2:
            self._has_room.set()
        return item
