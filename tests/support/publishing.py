"""A catalog, a store and an inbox in memory, and a publisher that works off what is due, by a clock set by hand.

Also lines of which no catalog can be asked, and of which each commit has a file.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from typing_extensions import override

from sfn.catalogs import LoadResult, NoSuchTable
from sfn.catalogs.event_sourced import EventCatalog
from sfn.catalogs.memory import MemoryCatalog
from sfn.catalogs.spelling import Spellings
from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import Capacity, DeadLettered, DeadLetterReason, LeasedJob, Outcome, Retry, StoredObject
from sfn.errors import ErrorScope, LocationRefused, Permanent, Transient
from sfn.publish.policy import Policy
from sfn.publish.publish import Ports, publish
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import ORDINAL, FileLayout, FileOwner, commit_ordinal
from sfn.storage import PreconditionFailed
from sfn.storage.memory import MemoryStore
from sfn.worker.capacity import RetryPolicy
from tests.promises.inboxes import TERMS
from tests.support.clock import HandClock
from tests.support.memory_inbox import MemoryInbox

AT = "file:///warehouse/n/a"
LAG = timedelta(seconds=6)
EVERYTHING = Capacity(total=100, live=99, sweeps=0)
MOST = 100
"""Publishes that one `work` may take: more are a loop that never ends."""
ALLOWED = "file:///warehouse"


def named(name: str) -> TableIdentifier:
    """A table of the catalog."""
    return TableIdentifier("prod", ("n",), name)


A, B = named("a"), named("b")
SITE = FileLayout(AT, ORDINAL)
HEAD = SITE.keys(FileOwner(A.namespace, A.name))[0]


def key_of(table: TableIdentifier, location: str = AT) -> str:
    """Where the file of a table is that lives at a location."""
    return FileLayout(location).keys(FileOwner(table.namespace, table.name))[0]


class CountingCatalog(MemoryCatalog):
    """Counts what it is asked.

    Attributes:
        hidden: tables that are not found.
        unlisted: tables that no listing names.
        listing_hides: tables that the listing of their namespace lacks.
        listings: how many namespaces were listed, and how often what lies below one.
    """

    loads = listings = 0
    listing_hides: frozenset[TableIdentifier] = frozenset()
    hidden: frozenset[TableIdentifier] = frozenset()
    unlisted: frozenset[TableIdentifier] = frozenset()

    @override
    async def is_listed(self, table: TableIdentifier) -> bool:
        return table not in self.unlisted and await super().is_listed(table)

    @override
    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        self.listings += 1
        async for name in super().tables_in(namespace):
            if name not in self.listing_hides:
                yield name

    @override
    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        self.listings += 1
        async for space in super().namespaces(parent):
            yield space

    @override
    async def load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        self.loads += 1
        return NoSuchTable() if table in self.hidden else await super().load(table, known_etag)


class CountingStore(MemoryStore):
    """The one store, wherever; counts what is read."""

    reads = 0

    def store_for(self, _location: str) -> CountingStore:
        return self

    @override
    async def read(self, key: str) -> StoredObject | None:
        self.reads += 1
        return await super().read(key)


class TornStore(CountingStore):
    """Writes, and does not say so while it is told to."""

    torn = False

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        held = await super().write(key, body, replacing)
        if self.torn:
            raise Transient(key, scope=ErrorScope.TABLE, expected="an answer", found="none")
        return held


class FailingStore(CountingStore):
    """Fails to write one key.

    Attributes:
        broken: the key; empty for none.
    """

    broken = ""

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        if key == self.broken:
            raise Transient(key, scope=ErrorScope.TABLE, expected="an answer", found="none")
        return await super().write(key, body, replacing)


class HintsNoted(CountingStore):
    """Notes what the version hint said whenever a file was written."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__()
        self.files, self.hints = files, dict[str, bytes | None]()

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        self.hints[key] = self.files.get(version_hint.key_of(AT))
        return await super().write(key, body, replacing)


class Line:
    """From a hint to the files.

    Attributes:
        policy: may be replaced between two publishes, as a restart with other settings does.
        outcomes: of every publish so far.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self.clock = HandClock()
        self.catalog, self.store = CountingCatalog("prod"), CountingStore()
        self.inbox = MemoryInbox(replace(TERMS, max_drops={"prod": 1000}), self.clock)
        self.policy = policy or Policy("c1", replica_lag=LAG, is_swept=False)
        self.outcomes: list[Outcome] = []
        self.spellings = Spellings(self.catalog, self.clock)
        self.catalog.create_namespace("n")

    async def hear(self, *hints: Notification, seconds: float = 0) -> None:
        """Take events in and work off what is due by so many seconds later."""
        await self.inbox.put(hints)
        await self.work(seconds)

    async def publish_new(
        self, table: TableIdentifier = A, *, seconds: float = 20, has_metadata_file: bool = False
    ) -> Table:
        """Create a table in the catalog, and publish it by an event."""
        created = self.catalog.create(table)
        if has_metadata_file:
            self.store.files[created.metadata_location] = b"{}"
        await self.hear(Notification(table), seconds=seconds)
        return created

    async def drop(self, table: TableIdentifier = A, *, seconds: float = 60) -> None:
        """Drop a table in the catalog, and tell of it."""
        self.catalog.drop(table)
        await self.hear(Notification(table, drop=True), seconds=seconds)

    async def hear_only(self, table: TableIdentifier) -> None:
        """Take an event of a table in and publish only that one: others that are due stay leased."""
        await self.inbox.put([Notification(table)])
        await self.work(only=lambda one: one == table)

    async def work(self, seconds: float = 0, only: Callable[[TableIdentifier], bool] = lambda _: True) -> None:
        """Publish what becomes due within so many seconds.

        Args:
            only: the tables that are looked at; others stay leased, as if their worker hung.
        """
        end = self.clock.now() + timedelta(seconds=seconds)
        for _ in range(MOST):
            claimed = await self.inbox.claim(EVERYTHING)
            for claim in claimed.jobs:
                if isinstance(claim.subject, TableIdentifier) and only(claim.subject):
                    await self.publish(claim)
            if not claimed.jobs:
                if claimed.next_due is None or claimed.next_due > end:
                    self.clock.turn((end - self.clock.now()).total_seconds())
                    return
                self.clock.turn((claimed.next_due - self.clock.now()).total_seconds())
        raise AssertionError(f"{MOST} publishes and no end: {self.outcomes[-3:]}")

    async def publish(self, claim: LeasedJob) -> None:
        """Publish what was claimed."""
        ports = Ports(self.inbox, self.inbox, self.catalog, self.store, self.clock, self.spellings)
        outcome = await publish(claim, ports, self.policy, jitter=0)
        assert await self.inbox.settle(claim, outcome, self.clock.now())
        self.outcomes.append(outcome)

    def document(self, table: TableIdentifier, location: str = AT) -> dict[str, Any]:
        """The table's file as JSON, empty where there is none."""
        body = self.store.files.get(key_of(table, location), b"{}")
        document: dict[str, Any] = json.loads(body)
        return document

    def hint(self, location: str = AT) -> bytes | None:
        """What the version hint says."""
        return self.store.files.get(version_hint.key_of(location))


def metadata(table: Table, **more: Any) -> bytes:  # noqa: ANN401 - JSON
    """What a table's metadata file says."""
    content = {
        "format-version": 2,
        "table-uuid": table.uuid,
        "location": table.location,
        "last-updated-ms": table.last_updated_ms,
        "current-snapshot-id": table.snapshot_id,
        "metadata-log": [{"metadata-file": entry, "timestamp-ms": 0} for entry in table.metadata_log],
        **more,
    }
    return json.dumps(content).encode()


class ToldLine(Line):
    """A line whose catalog is of type told.

    Attributes:
        told: the adapter.
    """

    def __init__(self, policy: Policy | None = None, **terms: Any) -> None:  # noqa: ANN401 - those of `Terms`
        told = policy or Policy("c1", replica_lag=LAG, allowed_locations=(ALLOWED,))
        super().__init__(replace(told, is_swept=False, event_only=True))
        self.inbox = MemoryInbox(replace(TERMS, event_only_catalogs=frozenset({"prod"}), **terms), self.clock)
        self.told = EventCatalog("prod", "c1", self.store.read_range, (ALLOWED,), self.inbox.reported_tables)

    def lay(self, table: Table) -> Table:
        """Write a table's metadata file."""
        self.store.files[table.metadata_location] = metadata(table)
        return table

    def create(self, name: TableIdentifier, location: str | None = None) -> Table:
        """A new table, whose metadata file is there."""
        return self.lay(self.catalog.create(name, location))

    def commit(self, name: TableIdentifier, location: str | None = None) -> Table:
        """One more version, whose metadata file is there."""
        return self.lay(self.catalog.commit(name, location))

    async def tell(
        self,
        name: TableIdentifier,
        table: Table,
        birth: TableOrigin | None = None,
        *,
        seconds: float = 0,
        **more: Any,  # noqa: ANN401
    ) -> None:
        """An event of a pointer."""
        await self.hear(
            Notification(name, min_metadata_location=table.metadata_location, origin=birth, **more), seconds=seconds
        )

    @override
    async def publish(self, claim: LeasedJob) -> None:
        outcome = await self._outcome(claim, Ports(self.inbox, self.inbox, self.told, self.store, self.clock))
        assert await self.inbox.settle(claim, outcome, self.clock.now())
        self.outcomes.append(outcome)

    async def _outcome(self, claim: LeasedJob, ports: Ports) -> Outcome:
        """What comes of a publish, also where the worker decides it."""
        now = self.clock.now()
        try:
            return await publish(claim, ports, self.policy, jitter=0)
        except Permanent as error:
            refused = isinstance(error, LocationRefused)
            reason = DeadLetterReason.LOCATION_REFUSED if refused else DeadLetterReason.PERMANENT
            return DeadLettered(reason, str(error), recheck_at=now + self.policy.refresh_after)
        except Transient as error:
            retry = RetryPolicy(base=timedelta(minutes=1), cap=timedelta(hours=3))
            at = retry.next_attempt(claim.attempt, claim.failing_since, now, 0)
            if at is not None:
                return Retry(at, str(error))
            return DeadLettered(DeadLetterReason.EXHAUSTED, str(error), recheck_at=now + self.policy.refresh_after)


DAY = timedelta(days=1).total_seconds()


class Timeline(Line):
    """A line that keeps commits; metadata files that were written are there until they are deleted."""

    def __init__(self, **more: Any) -> None:  # noqa: ANN401 - any setting
        usual: dict[str, Any] = {"replica_lag": LAG, "keep_commits_for": LAG}
        super().__init__(Policy("c1", is_swept=False, naming=ORDINAL, **usual | more))

    def commit(self, times: int = 1) -> Table:
        """So many commits; the first creates the table."""
        table = self.catalog.current(A)
        for _ in range(times):
            table = self.catalog.commit(A) if table is not None else self.catalog.create(A)
            self.store.files[table.metadata_location] = b"{}"
        assert table is not None
        return table

    @property
    def head(self) -> dict[str, Any]:
        """The head."""
        return self.read(HEAD)

    def read(self, key: str) -> dict[str, Any]:
        """A document."""
        body: dict[str, Any] = json.loads(self.store.files[key])
        return body

    @property
    def commits(self) -> list[dict[str, Any]]:
        """The documents of commits, the oldest first; each at the place that its Ordinal names."""
        keys = sorted(key for key in self.store.files if commit_ordinal(key) is not None)
        found = [self.read(key) for key in keys]
        assert keys == [f"{SITE.folder}n_a_{body['Ordinal']}.ver" for body in found]
        return found

    @property
    def pointers(self) -> list[str]:
        """What they name."""
        return [body["metadata_file_path"] for body in self.commits]
