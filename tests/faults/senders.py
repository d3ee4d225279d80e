"""Senders that commit and tell of it until it is acknowledged, by whichever process takes it."""

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
