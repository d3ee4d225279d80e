"""A catalog that nobody can ask, for the promise suite."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from urllib.parse import quote

from sfn.catalogs import Catalog, SkipNamespace, UnlistedNamespace
from sfn.catalogs.event_sourced import EventCatalog
from sfn.catalogs.memory import MemoryCatalog
from sfn.clock import SystemClock
from sfn.domain.catalog_answer import LoadResult
from sfn.domain.events import EventHistory, Notification, TableOrigin
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.inbox import TableIndex
from sfn.inbox.memory import MemoryInbox
from sfn.inbox.model import InboxConfig
from sfn.storage.memory import MemoryStore
from tests.support.publishing import metadata


class ToldWorld:
    """Nobody can ask this catalog: what happens is told to an inbox, and the metadata files are in a store."""

    def __init__(self, space: str) -> None:
        self._truth = MemoryCatalog("lake")
        self._store = MemoryStore()
        self.inbox = MemoryInbox(InboxConfig(event_only_catalogs=frozenset({"lake"})), SystemClock())
        self.adapter = EventCatalog("lake", "ours", self._store.read_range, ("file:///warehouse",))
        self.catalog: Catalog = Remembered(self.inbox, self.adapter)
        self.space = space
        self._truth.create_namespace(self.space)

    async def create_namespace(self, *levels: str) -> None:
        self._truth.create_namespace(self.space, *levels)

    async def drop_namespace(self, *levels: str) -> None:
        self._truth.drop_namespace(self.space, *levels)

    async def close_namespace(self) -> str:
        raise NotImplementedError("nobody lists it")

    async def create(self, table: TableIdentifier) -> str:
        # As engines do: a location with a question mark in it is refused.
        location = "/".join(("file:///warehouse", *(quote(part, safe="") for part in (*table.namespace, table.name))))
        made = self._truth.create(table, location)
        await self._tell(table, made, TableOrigin.CREATE)
        return made.uuid or ""

    async def commit(self, table: TableIdentifier) -> None:
        await self._tell(table, self._truth.commit(table))

    async def switch_off(self, table: TableIdentifier) -> None:
        await self._tell(table, self._truth.commit(table), properties={"sfn.enabled": "false"})

    async def roll_back(self, table: TableIdentifier) -> None:
        raise NotImplementedError("what is older is taken for late")

    async def rename(self, source: TableIdentifier, target: TableIdentifier) -> None:
        self._truth.rename(source, target)
        await self.inbox.put([Notification(source, renamed_to=target), Notification(target, renamed_from=source)])

    async def drop(self, table: TableIdentifier) -> None:
        self._truth.drop(table)
        await self.inbox.put([Notification(table, drop=True)])

    async def _tell(
        self, name: TableIdentifier, table: Table, birth: TableOrigin | None = None, **more: object
    ) -> None:
        self._store.files[table.metadata_location] = metadata(table, **more)
        await self.inbox.put([Notification(name, min_metadata_location=table.metadata_location, origin=birth)])


class Remembered:
    """A catalog that is given what an inbox was told, as a publish does."""

    def __init__(self, inbox: TableIndex, catalog: Catalog) -> None:
        self._inbox, self._catalog = inbox, catalog

    async def load(
        self, table: TableIdentifier, known_etag: str | None, history: EventHistory | None = None
    ) -> LoadResult:
        return await self._catalog.load(table, known_etag, await self._inbox.event_history(table))

    async def is_listed(self, table: TableIdentifier) -> bool:
        return await self._catalog.is_listed(table)

    def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        return self._catalog.tables(skip)
