"""What is had from elsewhere and ends: tokens, keys, grants."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import anyio

from sfn.catalog.refusal import Refused

T = TypeVar("T")

EARLY: Final = 60.0
"""Seconds before its end at which something is asked for anew, at most a fifth of its life: more than one request
lasts."""
AGAIN: Final = 5.0
"""Seconds until it is tried again, when that failed and the old one is still good."""

_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Lasting(Generic[T]):
    """Something that ends.

    Attributes:
        value: itself.
        lasts: seconds from when it was asked for, None where nobody says.
    """

    value: T = field(repr=False)
    lasts: float | None = None


class Kept(Generic[T]):
    """Something that ends, had anew before it does, by one question at a time.

    Whoever waits for a question shares its outcome, good or bad. While the old one is good it is given where no new one
    can be had.

    Args:
        ask: has one; raises Refused for none.
        every: seconds after which one is had anew that does not say when it ends; None for never.
    """

    def __init__(self, ask: Callable[[], Awaitable[Lasting[T]]], every: float | None = None) -> None:
        self._ask = ask
        self._every = _NEVER if every is None else every
        self._asking = anyio.Lock()
        self._asked = 0
        self._had: Lasting[T] | None = None
        self._outcome: Lasting[T] | Refused | None = None
        self._due = self._ends = _NEVER

    @property
    def held(self) -> T | None:
        """What was had last, None once it ended or where nothing was."""
        return self._had.value if self._had is not None and anyio.current_time() < self._ends else None

    async def current(self) -> T:
        """What is in force.

        Raises:
            Refused: there is none.
        """
        held = self.held
        if held is not None and anyio.current_time() < self._due:
            return held
        try:
            return await self.anew()
        except Refused:
            if held is None or self.held is None:
                raise
        self._due = anyio.current_time() + AGAIN
        return held

    async def anew(self) -> T:
        """What is had by a question that ended after this call; raises as of `current`."""
        before = self._asked
        async with self._asking:
            # Without sharing, the last of many that wait on a dead server would wait for all their failures in turn.
            if self._asked == before or self._outcome is None:
                self._outcome = await self._have()
                self._asked += 1
            outcome = self._outcome
        if isinstance(outcome, Refused):
            # One error that many tasks raise would grow a traceback of all of them.
            raise type(outcome)(outcome.refusal)
        return outcome.value

    async def _have(self) -> Lasting[T] | Refused:
        asked = anyio.current_time()
        try:
            had = await self._ask()
        except Refused as refused:
            return refused
        self._had = had
        if had.lasts is None:
            self._due, self._ends = asked + self._every, _NEVER
        else:
            self._due, self._ends = asked + had.lasts - min(EARLY, had.lasts / 5), asked + had.lasts
        return had
