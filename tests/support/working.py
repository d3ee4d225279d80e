"""A worker, and sweeps, over twins of their ports: each does what is due and waits for nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import anyio
from typing_extensions import override

from sfn.catalogs import LoadResult, NoSuchTable, SkipNamespace, UnlistedNamespace
from sfn.catalogs.memory import MemoryCatalog
from sfn.domain.events import InboxMessage, Notification, PutResult
from sfn.domain.identifiers import CatalogName, JobKey, Table, TableIdentifier
from sfn.domain.jobs import (
    Capacity,
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    Outcome,
    PublishedPointer,
    PublishResult,
    SweepCompleted,
    TableState,
)
from sfn.errors import ErrorScope, Transient
from sfn.inbox import ClaimResult
from sfn.inbox.model import InboxConfig, NewDeadLetter
from sfn.publish.policy import Policy
from sfn.storage import ObjectStore
from sfn.storage.memory import MemoryStore
from sfn.telemetry.metrics import Metrics
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.outcome_log import OutcomeMetrics, OutcomeSinks
from sfn.worker.sweep import CatalogSweep, SweepPorts
from sfn.worker.worker import Worker, WorkerOptions
from tests.promises.inboxes import TERMS, Ground
from tests.support.clock import HandClock
from tests.support.memory_inbox import MemoryInbox

REFRESH = timedelta(hours=5)
TABLE = TableIdentifier("prod", ("sales",), "orders")
_STEP = timedelta(microseconds=1)

POLICY = Policy(catalog_id="id")


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
    async def claim(
        self, capacity: Capacity, running: Sequence[LeasedJob] = (), until: datetime | None = None
    ) -> ClaimResult:
        self.slots = capacity
        return await super().claim(capacity, running, until)

    @override
    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        self.taken.extend(note for note in messages if isinstance(note, Notification))
        return await super().put(messages)

    async def due_at(self, subject: JobKey) -> datetime:
        """When a row may be claimed."""
        status = await self.table_status(subject)
        assert status is not None
        return status.job.due_at


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
            self.inbox,
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


class Slow(MemoryCatalog):
    """A catalog that lists more quickly than it answers.

    Attributes:
        fails_after: loads that are answered before its trouble begins.
        fails_with: the trouble, or what nobody expected.
        torn: a namespace of which no more is listed than what was.
        lost: tables that are listed and not found.
        before_load: called before each answer.
    """

    def __init__(self) -> None:
        super().__init__("prod")
        self.fails_after = 0
        self.fails_with: Exception | None = None
        self.torn: tuple[str, ...] | None = None
        self.lost: set[TableIdentifier] = set()
        self.before_load: Callable[[], object] = lambda: None

    @override
    async def load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        await anyio.sleep(0.003)
        self.before_load()
        self.fails_after -= 1
        if self.fails_with is not None and self.fails_after < 0:
            raise self.fails_with
        return NoSuchTable() if table in self.lost else await super().load(table, known_etag)

    @override
    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        async for found in super().tables(skip):
            yield found
        if self.torn is not None:
            yield UnlistedNamespace(self.torn, "the second page may not be seen")


class Noting(MemoryInbox):
    """An inbox that keeps the hints of sweeps, or takes none.

    Attributes:
        noted: the hints.
        fails_with: raised by every put.
    """

    def __init__(self, clock: HandClock) -> None:
        super().__init__(InboxConfig(max_drops={"prod": 1000}), clock)
        self.noted: list[Notification] = []
        self.fails_with: Exception | None = None

    def allow(self, absences: int) -> None:
        """Have a sweep hold more absences than these."""
        self._config = replace(self._config, max_drops={"prod": absences})

    @override
    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        await anyio.lowlevel.checkpoint()
        if self.fails_with is not None:
            raise self.fails_with
        self.noted += [note for note in messages if isinstance(note, Notification) and note.sender == "sweep"]
        return await super().put(messages)


class World:
    """What there is, and what came of the last sweep."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.catalog, self.inbox = Slow(), Noting(self.clock)
        self.ground = Ground(self.inbox, self.clock)
        self.tables: dict[TableIdentifier, Table] = {}
        self.differed: dict[str, str] = {}
        self.held: set[str] = set()

    def create(self, name: str, *namespace: str) -> TableIdentifier:
        """A new table; of `sales` where no namespace is given."""
        self.catalog.create_namespace(*(namespace or ("sales",)))
        table = TableIdentifier("prod", namespace or ("sales",), name)
        self.tables[table] = self.catalog.create(table)
        return table

    def commit(self, table: TableIdentifier) -> str:
        """One more version; its pointer."""
        self.tables[table] = self.catalog.commit(table)
        return self.tables[table].metadata_location

    async def published(
        self,
        table: TableIdentifier,
        reason: DeadLetterReason | None = None,
        *,
        live: bool = True,
        missing: str | None = None,
    ) -> None:
        """The row as it is once the table was published, or once that was given up; with a table that it misses."""
        found = self.tables[table]
        file = PublishedPointer(found.metadata_location, found.uuid, found.location, self.clock.now())
        absent = {missing: self.clock.now()} if missing is not None else {}
        findings = PublishResult(TableState(live=file if live else None, has_settled=True, missing_since=absent))
        ended = Done(self.ground.after(1e6), findings) if reason is None else DeadLettered(reason, "so it is", findings)
        await self.ground.settled(table, ended)

    async def swept(self, policy: Policy = POLICY) -> SweepCompleted:
        """One sweep; `differed` are the kinds of difference that it reported, and `held` is what the limit holds."""
        self.inbox.noted.clear()
        ports = SweepPorts(self.catalog, self.inbox, self.clock)
        sweep = CatalogSweep(CatalogName("prod"), ports, policy)
        try:
            return await sweep.run(0.5)
        finally:
            self.differed = {one.table.dotted: one.kind.value for one in sweep.report.differences}
            self.held = {table.dotted for table in sweep.report.held}

    @property
    def told(self) -> list[str]:
        """Tables that the last sweep put hints of."""
        return sorted(hint.subject.dotted for hint in self.inbox.noted if isinstance(hint.subject, TableIdentifier))


def trouble(scope: ErrorScope = ErrorScope.CATALOG) -> Transient:
    """No answer."""
    return Transient("prod", scope=scope, expected="an answer", found="none")
