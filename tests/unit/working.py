"""A worker over twins of its ports, which does what is due and waits for nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import anyio
from typing_extensions import override

from sfn.catalogs.memory import MemoryCatalog
from sfn.domain.events import InboxMessage, Notification, PutResult
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import Capacity, LeasedJob, Outcome
from sfn.inbox import ClaimResult
from sfn.inbox.memory import MemoryInbox
from sfn.inbox.model import NewDeadLetter
from sfn.publish.policy import Policy
from sfn.storage import ObjectStore
from sfn.storage.memory import MemoryStore
from sfn.telemetry.metrics import Metrics
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.outcome_log import OutcomeMetrics, OutcomeSinks
from sfn.worker.worker import Worker, WorkerInbox, WorkerOptions
from tests.promises.inboxes import TERMS, HandClock

REFRESH = timedelta(hours=5)
TABLE = TableIdentifier("prod", ("sales",), "orders")
_STEP = timedelta(microseconds=1)


class WatchedInbox(MemoryInbox):
    """Remembers what it was asked for.

    Attributes:
        slots: of the last claim.
        taken: every note that was put.
    """

    def __init__(self, clock: HandClock) -> None:
        super().__init__(TERMS, clock)
        self.slots = Capacity(total=0, live=0, sweeps=0)
        self.taken: list[Notification] = []

    @override
    async def claim(self, capacity: Capacity, running: Sequence[LeasedJob] = ()) -> ClaimResult:
        self.slots = capacity
        return await super().claim(capacity, running)

    @override
    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        self.taken.extend(note for note in messages if isinstance(note, Notification))
        return await super().put(messages)

    def due_at(self, subject: JobKey) -> datetime:
        """When a row may be claimed."""
        return self._rows[subject].due_at


@dataclass(slots=True)
class Book:
    """Implements `Journal`.

    Attributes:
        outcomes: in order.
        lost: claims whose lease was lost.
        expirations: leases that ran out.
        letters: of rows that turned out to be poison.
        surprises: errors that nobody expected.
        broken: it can't be written.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    lost: list[LeasedJob] = field(default_factory=list)
    expirations: int = 0
    letters: list[NewDeadLetter] = field(default_factory=list)
    surprises: list[Exception] = field(default_factory=list)
    broken: bool = False

    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        self.outcomes.append(outcome)

    def on_lease_lost(self, claim: LeasedJob) -> None:
        self.lost.append(claim)

    def on_leases_expired(self, leases: int) -> None:
        self.expirations += leases

    def on_poisoned(self, letter: NewDeadLetter) -> None:
        self.letters.append(letter)

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        self.surprises.append(error)
        if self.broken:
            raise OSError


class Desk:
    """The worker, and all that it is given.

    Attributes:
        metrics: what it counts.
        trouble: makes what the next publish raises, before it asks the catalog; None for nothing.
        source: the one catalog, None where none is configured.
        has_retired: it retired, be it configured or not.
        store: the one store, wherever.
    """

    def __init__(
        self, terms: WorkerOptions | None = None, clock: HandClock | None = None, inbox: WatchedInbox | None = None
    ) -> None:
        self.clock, self.book = clock or HandClock(), Book()
        self.metrics = Metrics(version="1.2.3", catalogs=["prod", "dev"], event_formats=["own"])
        self.inbox = inbox or WatchedInbox(self.clock)
        self.catalog = MemoryCatalog("prod")
        self.store: ObjectStore = MemoryStore()
        self.catalog.create_namespace(*TABLE.namespace)
        now = timedelta(0)
        policy = Policy("c1", replica_lag=now, refresh_after=REFRESH, min_publish_interval=now, is_swept=False)
        self.source: ConnectedCatalog | None = ConnectedCatalog(self.catalog, policy)
        self.has_retired = False
        self.trouble: Callable[[], Exception] | None = None
        self.worker = Worker(
            WorkerInbox(self.inbox, self.inbox, self.inbox, self.inbox),
            self,
            self,
            clock=self.clock,
            chance=self,
            sink=OutcomeSinks(self.book, OutcomeMetrics(self.metrics.work, self.clock)),
            options=terms or WorkerOptions(),
        )

    async def get(self, catalog: str) -> ConnectedCatalog | None:
        return self.source

    def is_retired(self, catalog: str) -> bool:
        return self.has_retired

    def store_for(self, location: str) -> ObjectStore:
        if self.trouble is not None:
            raise self.trouble()
        return self.store

    def random(self) -> float:
        return 0.5

    async def work(self) -> list[Outcome]:
        """Work off what is due, each row once: what came of it."""
        before = len(self.book.outcomes)
        async with anyio.create_task_group() as tasks:
            await self.worker.claim_once(tasks)
        return self.book.outcomes[before:]

    async def hear(self, *subjects: JobKey) -> list[Outcome]:
        """Work off hints."""
        await self.inbox.put([Notification(subject) for subject in subjects or (TABLE,)])
        return await self.work()

    async def wait_until(self, at: datetime) -> None:
        """Let time pass, to just before that moment and then to it; nothing is due before."""
        self.clock.turn((at - _STEP - self.clock.now()).total_seconds())
        assert await self.work() == []
        self.clock.turn((at - self.clock.now()).total_seconds())
