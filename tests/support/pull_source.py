"""A pull source on a real NATS server, and what publishes there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

import anyio
import nats
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, ConsumerInfo

from sfn.clock import SystemClock
from sfn.domain.identifiers import TableIdentifier
from sfn.formats.event import Sender
from sfn.http.ingest import EventFilter, IngestService
from sfn.inbox import InboxWriter
from sfn.pull.nats import NatsServer
from sfn.pull.nats_connection import DurableConsumer, NatsOptions
from sfn.pull.source import PullOptions as SourceTerms
from sfn.pull.source import PullSource
from sfn.telemetry.metrics import Metrics
from tests.support.listener import Inbox, covers_all_but_scratch
from tests.support.processes import until

LIMIT = 4_096
SENDER = Sender("pull.events", {"theirs": "prod"})


def event(number: int | str, **more: object) -> bytes:
    """One of a table, with an id."""
    return json.dumps({"namespace": ["sales"], "name": f"t{number}", "event_id": f"e{number}", **more}).encode()


@dataclass
class Fetching:
    """A source that runs.

    Attributes:
        metrics: what it counted.
        stop: ends it.
        ended: it has.
    """

    metrics: Metrics
    stop: anyio.Event = field(default_factory=anyio.Event)
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_connected(self) -> bool:
        return self.metrics.registry.get_sample_value("sfn_pull_connected", {"source": "events"}) == 1

    def received(self, result: str, event_format: str = "own") -> float:
        """Return how many events of a format came to this result."""
        labels = {"format": event_format, "result": result}
        return self.metrics.registry.get_sample_value("sfn_events_received_total", labels) or 0.0

    @property
    def dropped(self) -> float:
        return self.metrics.registry.get_sample_value("sfn_pull_dropped_total", {"source": "events"}) or 0.0


@dataclass
class Place:
    """A subject of its own on a server, for one test.

    Attributes:
        url: of the server.
        subject: as it is.
        durable: of a stream that keeps it, if there is one.
    """

    url: str
    subject: str = field(default_factory=lambda: f"test.{uuid4().hex}")
    durable: DurableConsumer | None = None
    group: str = "sfn"

    @property
    def terms(self) -> NatsOptions:
        return NatsOptions("pull.events", (self.url,), self.subject, self.group, self.durable)

    def kept(self) -> Place:
        """The same, with JetStream."""
        return Place(self.url, self.subject, DurableConsumer(self.subject.replace(".", "-"), "sfn"))

    async def make_stream(self, **consumer: object) -> None:
        """Make the stream; with words for it also the consumer."""
        assert self.durable is not None
        async with self.client() as client:
            stream = client.jetstream()
            await stream.add_stream(name=self.durable.stream, subjects=[self.subject])
            if consumer:
                config = ConsumerConfig(name=self.durable.name, durable_name=self.durable.name)
                await stream.add_consumer(self.durable.stream, config.evolve(filter_subject=self.subject, **consumer))

    async def consumer(self) -> ConsumerInfo:
        """How the consumer is."""
        assert self.durable is not None
        async with self.client() as client:
            found: ConsumerInfo = await client.jetstream().consumer_info(self.durable.stream, self.durable.name)
            return found

    async def acknowledged(self) -> int:
        """The last message before which all are."""
        floor = (await self.consumer()).ack_floor
        assert floor is not None
        return floor.stream_seq

    async def until_acknowledged(self, sequence: int) -> None:
        """Wait until all messages up to this one are."""
        with anyio.fail_after(20):
            while await self.acknowledged() != sequence:  # noqa: ASYNC110 - no event crosses processes
                await anyio.sleep(0.02)

    async def publish(self, *bodies: bytes, headers: dict[str, str] | None = None) -> None:
        """One after the other; with a stream each is on its disk then."""
        async with self.client() as client:
            for body in bodies:
                await (self._on(client) or client).publish(self.subject, body, headers=headers)
            await client.flush()

    def _on(self, client: Client) -> JetStreamContext | None:
        return None if self.durable is None else client.jetstream()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        client = await nats.connect(self.url)
        try:
            yield client
        finally:
            await client.close()

    @asynccontextmanager
    async def fetched(
        self, inbox: InboxWriter, *, told: frozenset[str] = frozenset(), drain: float = 5.0, connected: bool = True
    ) -> AsyncIterator[Fetching]:
        """A source that puts into an inbox; it is connected, unless that is not waited for."""
        metrics = Metrics(version="1.2.3", catalogs=["prod"], event_formats=["own"], sources=["events"])
        source = PullSource(
            SourceTerms("events", SENDER, LIMIT, timedelta(seconds=drain)),
            NatsServer(self.terms),
            IngestService(inbox, event_filter=EventFilter(covers_all_but_scratch, told), metrics=metrics.events),
            clock=SystemClock(),
            event_metrics=metrics.events,
            pull_metrics=metrics.pulls,
        )
        fetching = Fetching(metrics)

        async def run() -> None:
            await source.run(fetching.stop)
            fetching.ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            if connected:
                await until(lambda: fetching.is_connected)
            yield fetching
            fetching.stop.set()

    @asynccontextmanager
    async def begun(self, inbox: Inbox) -> AsyncIterator[Fetching]:
        """The same of core NATS, once it has had looked at what was published before."""
        async with self.fetched(inbox) as fetching:
            await until(lambda: subjects(inbox) == ["prod"])
            inbox.taken.clear()
            yield fetching


def names(*numbers: int) -> list[str]:
    """Of the tables of events with these numbers."""
    return [f"t{number}" for number in numbers]


def subjects(inbox: Inbox) -> list[str]:
    """What it took hints of, in their order: tables, or catalogs."""
    return [
        subject.name if isinstance(subject := hint.subject, TableIdentifier) else subject.catalog
        for hint in inbox.taken
    ]
