"""A catalog, an inbox, and sweeps of the one into the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

import anyio
from typing_extensions import override

from sfn.catalogs import SkipNamespace, UnlistedNamespace
from sfn.catalogs.memory import MemoryCatalog
from sfn.domain.catalog_answer import LoadResult, NoSuchTable
from sfn.domain.events import EventHistory, InboxMessage, Notification, PutResult
from sfn.domain.identifiers import CatalogName, Table, TableIdentifier
from sfn.domain.jobs import (
    DeadLettered,
    DeadLetterReason,
    Done,
    PublishedPointer,
    PublishResult,
    SweepCompleted,
    TableState,
)
from sfn.errors import ErrorScope, Transient
from sfn.inbox.memory import MemoryInbox
from sfn.inbox.model import InboxConfig
from sfn.publish.policy import Policy
from sfn.worker.sweep import CatalogSweep, SweepPorts
from tests.promises.inboxes import Ground, HandClock

POLICY = Policy(catalog_id="id")


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
    async def load(
        self, table: TableIdentifier, known_etag: str | None, history: EventHistory | None = None
    ) -> LoadResult:
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
        """One sweep; `differed` are the kinds of difference that it reported."""
        self.inbox.noted.clear()
        ports = SweepPorts(self.catalog, self.inbox, self.inbox, self.inbox, self.clock)
        sweep = CatalogSweep(CatalogName("prod"), ports, policy)
        try:
            return await sweep.run(0.5)
        finally:
            self.differed = {table.dotted: kind.value for table, kind in sweep.report.differences}

    @property
    def told(self) -> list[str]:
        """Tables that the last sweep put hints of."""
        return sorted(hint.subject.dotted for hint in self.inbox.noted if isinstance(hint.subject, TableIdentifier))


def trouble(scope: ErrorScope = ErrorScope.CATALOG) -> Transient:
    """No answer."""
    return Transient("prod", scope=scope, expected="an answer", found="none")
