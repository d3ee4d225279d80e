"""Clients that commit and post events until these are acknowledged: to any replica, or to a process that is killed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import aiohttp
import anyio

from tests.faults.lake import Lake
from tests.faults.service import Service, eventually

SENDERS = 6
WISHES_HEEDED = 0.1
"""How much of the time that it is asked for a sender waits: tests are in a hurry."""
_LOST = (aiohttp.ClientError, OSError, TimeoutError)

CLIENTS = 8


@dataclass
class Senders:
    """Some of them, and what they were answered.

    Attributes:
        up: the processes that one may turn to now.
        pause: most seconds from one event of a sender to its next.
        acknowledged: ids of all events that were answered with 202.
        refused: answers of 503, each with the time to wait.
        unanswered: requests that got no answer.
    """

    lake: Lake
    up: Callable[[], Sequence[Service]]
    chance: random.Random
    pause: float = 0.04
    acknowledged: set[str] = field(default_factory=set)
    refused: int = 0
    unanswered: int = 0

    def __post_init__(self) -> None:
        self._never_told = set(self.lake.tables)

    async def run(self, stop: anyio.Event) -> None:
        """Tell of every table, and of any until stopped, and then until all is acknowledged."""
        async with anyio.create_task_group() as tasks:
            for _ in range(SENDERS):
                tasks.start_soon(self._send, stop)

    async def _send(self, stop: anyio.Event) -> None:
        while self._never_told or not stop.is_set():
            name = self._never_told.pop() if self._never_told else self.chance.choice(list(self.lake.tables))
            pointer = self.lake.tables[name].commit()
            event_id = str(uuid4())
            while not await self._took(name, event_id, pointer):
                pass
            await anyio.sleep(self.chance.uniform(0, self.pause))

    async def _took(self, name: str, event_id: str, pointer: str) -> bool:
        """Whether it was acknowledged now."""
        service = self.chance.choice(await eventually(self.up))
        floor = self.chance.choice([pointer, None])
        try:
            answer = await service.tell(name, event_id, metadata_location=floor)
        except _LOST:
            self.unanswered += 1
            await anyio.sleep(0.02)
            return False
        if answer.status == 202:
            self.acknowledged.add(event_id)
            return True
        assert answer.status == 503, (answer.status, service.tail())
        self.refused += 1
        await anyio.sleep(float(answer.headers["Retry-After"]) * WISHES_HEEDED)
        return False


@dataclass
class Trigger:
    """Kills a process at a moment when a request is unacknowledged and a claim is open.

    Attributes:
        aim: `ack`, right after an answer arrived; `load`, when the catalog is asked; `write`, a moment later, when the
            claim is in its store.
        open: requests that were under way at the kill; None before it.
    """

    service: Service
    aim: str
    chance: random.Random
    in_flight: Callable[[], int]
    armed: bool = False
    open: int | None = None
    _claimed_until: float = 0.0

    def arm(self) -> None:
        """From now on."""
        self.armed = True

    def began(self) -> None:
        """The catalog is asked about a table: its claim stays open for its load and two slow writes at least."""
        now = anyio.current_time()
        self._claimed_until = now + 0.15
        if self.aim == "load":
            self.consider()

    def acknowledged(self) -> None:
        """An answer arrived."""
        if self.aim == "ack":
            self.consider()

    def consider(self) -> None:
        """Kill, if both are so."""
        if self.armed and self.in_flight() > 0 and anyio.current_time() < self._claimed_until:
            self.armed = False
            self.open = self.in_flight()
            self.service.process.kill()

    async def watch(self) -> None:
        """Until it is done; a kill in the middle of a claim's writes is nobody's call."""
        while self.open is None:
            await anyio.sleep(self.chance.uniform(0.001, 0.04))
            if self.aim == "write":
                self.consider()


@dataclass
class Clients:
    """Eight of them.

    Attributes:
        acknowledged: ids of all events that were answered with 202.
        pending: unacknowledged requests.
        unanswered: requests that got no answer.
    """

    lake: Lake
    chance: random.Random
    acknowledged: set[str] = field(default_factory=set)
    pending: int = 0
    unanswered: int = 0
    _owed: list[tuple[str, str]] = field(default_factory=list)

    async def run(self, service: Service, told: Callable[[], None]) -> None:
        """Load a service until it is gone.

        Args:
            told: called at each acknowledgement.
        """
        async with anyio.create_task_group() as tasks:
            for _ in range(CLIENTS):
                tasks.start_soon(self._client, service, told)

    async def settle(self, service: Service) -> None:
        """Tell what was never acknowledged once more, as a sender does."""
        owed, self._owed = self._owed, []
        for name, event_id in owed:
            assert await self._sent(service, name, event_id, lambda: None), service.tail()

    async def _client(self, service: Service, told: Callable[[], None]) -> None:
        going = True
        while going:
            name = self.chance.choice(list(self.lake.tables))
            self.lake.tables[name].commit()
            going = await self._sent(service, name, str(uuid4()), told)
            await anyio.sleep(self.chance.uniform(0, 0.01))

    async def _sent(self, service: Service, name: str, event_id: str, told: Callable[[], None]) -> bool:
        self.pending += 1
        try:
            status = await service.post(name, event_id)
        except _LOST:
            status = None
        finally:
            self.pending -= 1
        if status == 202:
            self.acknowledged.add(event_id)
            told()
            return True
        assert status is None, (status, service.tail())
        self.unanswered += 1
        self._owed.append((name, event_id))
        return False
