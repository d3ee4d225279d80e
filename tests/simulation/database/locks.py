"""Locks of a simulated database: each is one owner's until its transaction ends, and is handed on in line."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from sfn.inbox.postgres.errors import PostgresFault
from tests.simulation.loop import SimulatedLoop

LOCK_TIMEOUT = 5.0
"""Seconds that the service has its sessions wait for one lock."""

O = TypeVar("O", bound=Hashable)  # noqa: E741 - owner


class Locks(Generic[O]):
    """Who has what, and who waits for it.

    Args:
        loop: time.
        circle: told of owners that wait for each other: the service's transactions never do.
        count: of who had to wait.
    """

    def __init__(self, loop: SimulatedLoop, circle: Callable[[str], None], count: Callable[[str], None]) -> None:
        self._loop, self._circle, self._count = loop, circle, count
        self._holders: dict[Hashable, O] = {}
        self._lines: defaultdict[Hashable, deque[tuple[O, asyncio.Future[None]]]] = defaultdict(deque)
        self._waits: dict[O, Hashable] = {}

    def holder(self, what: Hashable) -> O | None:
        """Who has it."""
        return self._holders.get(what)

    def take_now(self, owner: O, what: Hashable) -> bool:
        """Have it, if nobody else has."""
        return self._holders.setdefault(what, owner) is owner

    async def take(self, owner: O, what: Hashable) -> None:
        """Have it, once those who came before have ended.

        Raises:
            Fault: it took too long, or all of them wait for this one.
        """
        if self.take_now(owner, what):
            return
        circle = list(self._circle_of(owner, what))
        if circle:
            self._circle(" waits for ".join(map(str, circle)))
            raise PostgresFault("40P01", "deadlock detected")
        self._count("waited")
        turn: asyncio.Future[None] = self._loop.create_future()
        place = (owner, turn)
        self._lines[what].append(place)
        self._waits[owner] = what
        timer = self._loop.call_outside(LOCK_TIMEOUT, self._refuse, place, PostgresFault("55P03", "lock timeout"))
        try:
            await turn
        finally:
            timer.cancel()
            if place in self._lines[what]:
                self._leave(place)

    def release(self, owner: O, what: Hashable) -> None:
        """Hand one on."""
        del self._holders[what]
        while self._lines[what] and what not in self._holders:
            heir, turn = place = self._lines[what][0]
            self._leave(place)
            # One that was cancelled has not left its place yet.
            if not turn.done():
                self._holders[what] = heir
                turn.set_result(None)

    def release_all(self, owner: O) -> None:
        """Hand on all that an owner has."""
        for what in [what for what, holder in self._holders.items() if holder is owner]:
            self.release(owner, what)

    def expel(self, owner: O, why: PostgresFault) -> None:
        """An owner that waits waits no more."""
        if owner in self._waits:
            line = self._lines[self._waits[owner]]
            self._refuse(next(place for place in line if place[0] is owner), why)

    def _circle_of(self, owner: O, what: Hashable) -> Iterator[tuple[O, Hashable]]:
        """Who waits for what, from this owner back to itself; nothing where the line ends elsewhere."""
        steps = [(owner, what)]
        while (holder := self._holders[steps[-1][1]]) in self._waits and holder is not owner:
            steps.append((holder, self._waits[holder]))
        if holder is owner:
            yield from steps

    def _refuse(self, place: tuple[O, asyncio.Future[None]], why: PostgresFault) -> None:
        owner, turn = place
        if owner in self._waits and not turn.done():
            self._leave(place)
            turn.set_exception(why)

    def _leave(self, place: tuple[O, asyncio.Future[None]]) -> None:
        self._lines[self._waits.pop(place[0])].remove(place)
