"""Hands what one finds to the many who work on it, and lets the finder get no further ahead than so far."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

import anyio

T = TypeVar("T")

AHEAD: Final = 256
"""Things that wait to be taken."""


class Feed(Generic[T]):
    """From one to many, in order. What is there is taken without a turn of the loop, which anyio's streams cost.

    Args:
        ahead: how many may wait.
    """

    def __init__(self, ahead: int = AHEAD) -> None:
        self._waiting: deque[T] = deque()
        self._ahead = ahead
        self._came, self._room = anyio.Event(), anyio.Event()
        self._ended = False

    async def put(self, item: T) -> None:
        """Hand over one more, once there is room for it."""
        while len(self._waiting) >= self._ahead:
            self._room = anyio.Event()
            await self._room.wait()
        self._waiting.append(item)
        self._came.set()

    def end(self) -> None:
        """Nothing more will come."""
        self._ended = True
        self._came.set()

    async def take(self) -> T | None:
        """The next one; None at the end."""
        while not self._waiting:
            if self._ended:
                return None
            if self._came.is_set():
                self._came = anyio.Event()
            await self._came.wait()
        item = self._waiting.popleft()
        if len(self._waiting) <= self._ahead // 2:
            self._room.set()
        return item
