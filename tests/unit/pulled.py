"""A source of pulled messages over a server in memory, and inboxes that take some of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise

import anyio
import anyio.lowlevel
from typing_extensions import override

from sfn.clock import SystemClock
from sfn.domain.events import InboxMessage, Notification, PutResult
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Transient
from sfn.formats.event import Headers
from sfn.http.events import EventFilter, IngestService
from sfn.pull import FinalBatch, SourceUnavailable
from sfn.pull.source import PullOptions, PullSource
from sfn.telemetry.metrics import Metrics
from tests.support.listener import Inbox
from tests.support.pull_source import LIMIT, SENDER

BUSY = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=0.01)
SHORT = 0.05
"""Seconds."""
GONE = SourceUnavailable("pull.events", expected="an answer", found="none")


@dataclass
class Message:
    """A message in memory.

    Attributes:
        told: what its server was told of it.
        told_at: when it was told last.
        error: raised instead.
        keeps: its server does.
    """

    body: bytes
    headers: Headers = ()
    told: list[str] = field(default_factory=list)
    error: Exception | None = None
    keeps: bool = True
    told_at: float = 0.0

    async def acknowledge(self) -> None:
        if self.error is not None:
            raise self.error
        self.told.append("taken")
        self.told_at = anyio.current_time()

    async def redeliver(self, after: float) -> bool:
        if self.error is not None:
            raise self.error
        self.told_at = anyio.current_time()
        if self.keeps:
            self.told.append(f"again after {after:g}")
        return self.keeps


@dataclass
class Server:
    """A server in memory: each connection delivers one of its lists of batches, and is lost then.

    Attributes:
        stays: it is not lost, and nothing more comes.
        opened_at: when it was connected to, or asked in vain.
        away: so often it does not answer.
        dropped: as a feed says it.
        last: as a feed has it in the end.
    """

    connections: list[list[Sequence[Message]]] = field(default_factory=list)
    is_durable: bool = True
    opened_at: list[float] = field(default_factory=list)
    away: int = 0
    dropped: int = 0
    stays: bool = False
    last: FinalBatch = FinalBatch((), is_complete=True)
    _batches: list[Sequence[Message]] | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Server]:
        self.opened_at.append(anyio.current_time())
        if len(self.opened_at) <= self.away:
            raise GONE
        self._batches = self.connections.pop(0) if self.connections else None
        yield self

    async def next(self) -> Sequence[Message]:
        await anyio.lowlevel.checkpoint()
        if self._batches is None:
            await anyio.sleep_forever()
            raise AssertionError
        if not self._batches and self.stays:
            await anyio.sleep(0.01)
            return ()
        if not self._batches:
            raise GONE
        return self._batches.pop(0)

    async def drain(self) -> FinalBatch:
        return self.last

    @property
    def was_asked_less_and_less_often(self) -> bool:
        pauses = [later - before for before, later in pairwise(self.opened_at)]
        return len(pauses) >= 3 and all(pause >= SHORT * 2**turn for turn, pause in enumerate(pauses[:3]))


class Stuck(Inbox):
    """Takes no event, though a look at a catalog."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck = anyio.Event()

    @override
    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        if any(isinstance(note, Notification) and isinstance(note.subject, TableIdentifier) for note in messages):
            self.stuck.set()
            await anyio.sleep_forever()
        return await super().put(messages)


class BusyAtFirst(Inbox):
    """Takes nothing of the first put."""

    @override
    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        self.failure = None if self.entered.is_set() else BUSY
        return await super().put(messages)


@dataclass
class Ground:
    """A source that runs.

    Attributes:
        stop: ends it.
    """

    server: Server
    inbox: Inbox = field(default_factory=Inbox)
    metrics: Metrics = field(default_factory=lambda: Metrics(version="1", catalogs=["prod"], sources=["events"]))
    stop: anyio.Event = field(default_factory=anyio.Event)

    async def run(self) -> None:
        source = PullSource(
            PullOptions("events", SENDER, LIMIT, timedelta(seconds=1)),
            self.server,
            IngestService(self.inbox, event_filter=EventFilter(lambda _: True), metrics=self.metrics.events),
            clock=SystemClock(),
            event_metrics=self.metrics.events,
            pull_metrics=self.metrics.pulls,
        )
        await source.run(self.stop)

    def has_asked(self, times: int) -> bool:
        return len(self.server.opened_at) == times

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.run)
                yield
                self.stop.set()
