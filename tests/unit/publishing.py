"""A catalog, a store and an inbox in memory, and a publisher that works off what is due, by a clock set by hand."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from typing_extensions import override

from sfn.catalog.memory import MemoryCatalog
from sfn.catalog.spelling import Spellings
from sfn.errors import Scope, Transient
from sfn.inbox.memory import MemoryInbox
from sfn.pointer import hintfile
from sfn.pointer.naming import FileOwner
from sfn.pointer.site import FileLayout
from sfn.publish.learning import Ports
from sfn.publish.policy import Policy
from sfn.publish.protocol import publish
from sfn.store import PreconditionFailed
from sfn.store.memory import MemoryStore
from sfn.words import Answer, Claim, Held, Hint, Missing, Outcome, Slots, TableName, Told
from tests.promises.inboxes import TERMS, HandClock

AT = "file:///warehouse/n/a"
LAG = timedelta(seconds=6)
EVERYTHING = Slots(total=100, live=99, sweeps=0)
MOST = 100
"""Publishes that one `work` may take: more are a loop that never ends."""


def named(name: str) -> TableName:
    """A table of the catalog."""
    return TableName("prod", ("n",), name)


A, B = named("a"), named("b")


def key_of(table: TableName, location: str = AT) -> str:
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
    listing_hides: frozenset[TableName] = frozenset()
    hidden: frozenset[TableName] = frozenset()
    unlisted: frozenset[TableName] = frozenset()

    @override
    async def is_listed(self, table: TableName) -> bool:
        return table not in self.unlisted and await super().is_listed(table)

    @override
    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableName]:
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
    async def load(self, table: TableName, known_etag: str | None, history: Told | None = None) -> Answer:
        self.loads += 1
        return Missing() if table in self.hidden else await super().load(table, known_etag)


class CountingStore(MemoryStore):
    """The one store, wherever; counts what is read."""

    reads = 0

    def store_for(self, _location: str) -> CountingStore:
        return self

    @override
    async def read(self, key: str) -> Held | None:
        self.reads += 1
        return await super().read(key)


class TornStore(CountingStore):
    """Writes, and does not say so while it is told to."""

    torn = False

    @override
    async def write(self, key: str, body: bytes, replacing: Held | None) -> Held | PreconditionFailed:
        held = await super().write(key, body, replacing)
        if self.torn:
            raise Transient(key, scope=Scope.TABLE, expected="an answer", found="none")
        return held


class FailingStore(CountingStore):
    """Fails to write one key.

    Attributes:
        broken: the key; empty for none.
    """

    broken = ""

    @override
    async def write(self, key: str, body: bytes, replacing: Held | None) -> Held | PreconditionFailed:
        if key == self.broken:
            raise Transient(key, scope=Scope.TABLE, expected="an answer", found="none")
        return await super().write(key, body, replacing)


class HintsNoted(CountingStore):
    """Notes what the version hint said whenever a file was written."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__()
        self.files, self.hints = files, dict[str, bytes | None]()

    @override
    async def write(self, key: str, body: bytes, replacing: Held | None) -> Held | PreconditionFailed:
        self.hints[key] = self.files.get(hintfile.key_of(AT))
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

    async def hear(self, *hints: Hint, seconds: float = 0) -> None:
        """Take events in and work off what is due by so many seconds later."""
        await self.inbox.put(hints)
        await self.work(seconds)

    async def work(self, seconds: float = 0, only: Callable[[TableName], bool] = lambda _: True) -> None:
        """Publish what becomes due within so many seconds.

        Args:
            only: the tables that are looked at; others stay leased, as if their worker hung.
        """
        end = self.clock.now() + timedelta(seconds=seconds)
        for _ in range(MOST):
            claimed = await self.inbox.claim(EVERYTHING)
            for claim in claimed.claims:
                if isinstance(claim.subject, TableName) and only(claim.subject):
                    await self.publish(claim)
            if not claimed.claims:
                if claimed.next_due is None or claimed.next_due > end:
                    self.clock.turn((end - self.clock.now()).total_seconds())
                    return
                self.clock.turn((claimed.next_due - self.clock.now()).total_seconds())
        raise AssertionError(f"{MOST} publishes and no end: {self.outcomes[-3:]}")

    async def publish(self, claim: Claim) -> None:
        """Publish what was claimed."""
        ports = Ports(self.inbox, self.inbox, self.catalog, self.store, self.clock, self.spellings)
        outcome = await publish(claim, ports, self.policy, jitter=0)
        assert await self.inbox.settle(claim, outcome, self.clock.now())
        self.outcomes.append(outcome)

    def document(self, table: TableName, location: str = AT) -> dict[str, Any]:
        """The table's file as JSON, empty where there is none."""
        body = self.store.files.get(key_of(table, location), b"{}")
        document: dict[str, Any] = json.loads(body)
        return document

    def hint(self, location: str = AT) -> bytes | None:
        """What the version hint says."""
        return self.store.files.get(hintfile.key_of(location))
