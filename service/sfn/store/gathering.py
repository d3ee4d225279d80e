"""What many ask for at the same time is read in one go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")

ReadAll: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[T | Exception]]]
"""What lies at each of these keys, or why that can't be told."""


class Gatherer(Generic[T]):
    """One reading at a time, of all that was asked for during the one before.

    A thread for each question costs the loop many times what the reading costs, as the two then take turns at the
    interpreter's lock.

    Args:
        read_all: reads; it may raise for all.
    """

    def __init__(self, read_all: ReadAll[T]) -> None:
        self._read_all = read_all
        self._asked: list[_Asked[T]] = []
        self._is_reading = False

    async def read(self, keys: Sequence[str]) -> list[T]:
        """What lies at these keys, one at least.

        Raises:
            Exception: the first that there was, of these keys or of reading at all.
        """
        mine = _Asked[T](keys)
        self._asked.append(mine)
        try:
            while not mine.found:
                if self._is_reading:
                    mine.turn = asyncio.get_running_loop().create_future()
                    await mine.turn
                else:
                    await self._read()
        finally:
            if not mine.found:
                self._leave(mine)
        found: list[T] = []
        for one in mine.found:
            if isinstance(one, Exception):
                raise one
            found.append(one)
        return found

    async def _read(self) -> None:
        """Read for all who wait, and let the first of those who have come meanwhile read next."""
        asked, self._asked, self._is_reading = self._asked, [], True
        try:
            found = iter(await self._read_all([key for one in asked for key in one.keys]))
            for one in asked:
                one.found = [next(found) for _ in one.keys]
        except Exception as error:  # noqa: BLE001 - it is raised again where the answers are waited for
            for one in asked:
                one.found = [error]
        finally:
            self._is_reading = False
            self._asked[:0] = [one for one in asked if not one.found]
            for one in (*asked, *self._asked[:1]):
                one.wake()

    def _leave(self, cancelled: _Asked[T]) -> None:
        """Ask no more; it may have been theirs to read for all."""
        self._asked = [one for one in self._asked if one is not cancelled]
        if not self._is_reading:
            for one in self._asked[:1]:
                one.wake()


@dataclass(slots=True)
class _Asked(Generic[T]):
    """Somebody's question.

    Attributes:
        keys: what about, at least one.
        found: the answer, once there is one.
        turn: done when there is an answer, or when it is theirs to read for all; None while they do not wait.
    """

    keys: Sequence[str]
    found: Sequence[T | Exception] = ()
    turn: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Have them look again."""
        if self.turn is not None and not self.turn.done():
            self.turn.set_result(None)
