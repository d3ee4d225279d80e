"""The catalogs that the promises are tried on: in memory, Iceberg's REST server, PyIceberg's, and an event-only one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, closing
from itertools import count
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import aiohttp
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from sqlalchemy import text
from yarl import URL

from sfn.catalogs import Catalog
from sfn.catalogs.event_sourced import EventCatalog
from sfn.catalogs.memory import MemoryCatalog
from sfn.catalogs.pyiceberg import PyIcebergCatalog, PyIcebergSettings
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.catalogs.rest.settings import RestSettings
from sfn.clock import SystemClock
from sfn.demo.environment import RestCatalogServer
from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.inbox.model import InboxConfig
from sfn.storage.memory import MemoryStore
from tests.support.memory_inbox import MemoryInbox
from tests.support.programs import runtime
from tests.support.publishing import metadata

_spaces = count(1)

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


class World(Protocol):
    """A catalog under test, and somebody else who changes it.

    Attributes:
        catalog: the adapter.
        space: a namespace that exists and is this test's own.
    """

    catalog: Catalog
    space: str

    async def create_namespace(self, *levels: str) -> None:
        """Create a namespace below `space`."""
        ...

    async def drop_namespace(self, *levels: str) -> None:
        """Remove an empty namespace below `space`."""
        ...

    async def close_namespace(self) -> str:
        """Create a namespace right below `space` that can't be listed; gives its own level."""
        ...

    async def create(self, table: TableIdentifier) -> str:
        """Create a table; gives its uuid."""
        ...

    async def commit(self, table: TableIdentifier) -> None:
        """Commit a new snapshot."""
        ...

    async def switch_off(self, table: TableIdentifier) -> None:
        """Commit the property that makes us leave the table alone."""
        ...

    async def roll_back(self, table: TableIdentifier) -> None:
        """Make the last metadata file but one the current one again."""
        ...

    async def rename(self, source: TableIdentifier, target: TableIdentifier) -> None:
        """Give a table another name."""
        ...

    async def drop(self, table: TableIdentifier) -> None:
        """Drop a table and keep its files."""
        ...


def named(world: World, name: str, *below: str) -> TableIdentifier:
    """A table of this test's own namespace, or of one below it."""
    return TableIdentifier("lake", (world.space, *below), name)


class MemoryWorld:
    def __init__(self) -> None:
        self._memory = MemoryCatalog("lake")
        self.catalog: Catalog = self._memory
        self.space = f"space{next(_spaces)}"
        self._memory.create_namespace(self.space)

    async def create_namespace(self, *levels: str) -> None:
        self._memory.create_namespace(self.space, *levels)

    async def drop_namespace(self, *levels: str) -> None:
        self._memory.drop_namespace(self.space, *levels)

    async def close_namespace(self) -> str:
        self._memory.create_namespace(self.space, "closed")
        self._memory.close_namespace(self.space, "closed")
        return "closed"

    async def create(self, table: TableIdentifier) -> str:
        return self._memory.create(table).uuid or ""

    async def commit(self, table: TableIdentifier) -> None:
        self._memory.commit(table)

    async def switch_off(self, table: TableIdentifier) -> None:
        self._memory.commit(table, left_alone="switched off: the table property sfn.enabled is false")

    async def roll_back(self, table: TableIdentifier) -> None:
        self._memory.roll_back(table)

    async def rename(self, source: TableIdentifier, target: TableIdentifier) -> None:
        self._memory.rename(source, target)

    async def drop(self, table: TableIdentifier) -> None:
        self._memory.drop(table)


class RestWorld:
    """Changes the catalog by plain requests, so that no code under test is on both sides."""

    def __init__(self, uri: str, home: str, session: aiohttp.ClientSession, adapter: Catalog) -> None:
        self._home = home
        self.catalog = adapter
        self.space = f"space{next(_spaces)}"
        self._root = f"{uri}/v1"
        self._session = session
        self._snapshots = count(1)

    async def create_namespace(self, *levels: str) -> None:
        await self._call("POST", "/namespaces", {"namespace": [self.space, *levels]})

    async def drop_namespace(self, *levels: str) -> None:
        await self._call("DELETE", f"/namespaces/{'%2E'.join((self.space, *levels))}")

    async def close_namespace(self) -> str:
        # Jetty takes no `%2F` in a path (facts/jvm.md): whatever asks for this one is refused.
        await self.create_namespace("a/b")
        return "a/b"

    async def create(self, table: TableIdentifier) -> str:
        schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
        # A server that runs without a UTF-8 locale can make no other file names.
        location = "/".join((self._home, *(quote(part, safe="") for part in (*table.namespace, table.name))))
        body = {"name": table.name, "schema": schema, "location": location}
        made = await self._call("POST", self._tables(table), body)
        metadata = made["metadata"]
        assert isinstance(metadata, dict)
        return str(metadata["table-uuid"])

    async def commit(self, table: TableIdentifier) -> None:
        loaded = await self._call("GET", self._table(table))
        metadata = loaded["metadata"]
        assert isinstance(metadata, dict)
        number = next(self._snapshots)
        snapshot = {
            "snapshot-id": number,
            "sequence-number": metadata["last-sequence-number"] + 1,
            "timestamp-ms": metadata["last-updated-ms"],
            "manifest-list": f"{metadata['location']}/metadata/snap-{number}.avro",
            "summary": {"operation": "append"},
            "schema-id": 0,
        }
        main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number}
        await self._update(table, {"action": "add-snapshot", "snapshot": snapshot}, main)

    async def switch_off(self, table: TableIdentifier) -> None:
        await self._update(table, {"action": "set-properties", "updates": {"sfn.enabled": "false"}})

    async def roll_back(self, table: TableIdentifier) -> None:
        metadata = (await self._call("GET", self._table(table)))["metadata"]
        assert isinstance(metadata, dict)
        before = metadata["metadata-log"][-1]["metadata-file"]
        await self.drop(table)
        register = f"{self._tables(table).removesuffix('/tables')}/register"
        await self._call("POST", register, {"name": table.name, "metadata-location": before})

    async def rename(self, source: TableIdentifier, target: TableIdentifier) -> None:
        names = [{"namespace": list(table.namespace), "name": table.name} for table in (source, target)]
        await self._call("POST", "/tables/rename", {"source": names[0], "destination": names[1]})

    async def drop(self, table: TableIdentifier) -> None:
        await self._call("DELETE", self._table(table))

    async def _update(self, table: TableIdentifier, *updates: Mapping[str, object]) -> None:
        await self._call("POST", self._table(table), {"requirements": [], "updates": list(updates)})

    def _tables(self, table: TableIdentifier) -> str:
        # The server's own separator, see facts/jvm.md.
        return f"/namespaces/{'%2E'.join(quote(level, safe='') for level in table.namespace)}/tables"

    def _table(self, table: TableIdentifier) -> str:
        return f"{self._tables(table)}/{quote(table.name, safe='')}"

    async def _call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, object]:
        async with self._session.request(method, URL(self._root + path, encoded=True), json=body) as response:
            text = await response.text()
            assert response.status < 300, f"{method} {path}: {response.status} {text[:300]}"
            return dict(await response.json()) if text else {}


@pytest.fixture(scope="session")
def rest_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RestCatalogServer]:
    """Iceberg's own REST server, once for all tests of a module that names this fixture."""
    with RestCatalogServer(tmp_path_factory.mktemp("catalog"), runtime()) as server:
        yield server


LISTING = ("memory", "rest", "rest, two a page", "pyiceberg: sql", "pyiceberg: rest")
"""Catalogs that can be listed, and that step back."""


@pytest.fixture(params=[*LISTING, "events"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[World]:
    """An empty namespace of each catalog."""
    async with _world(request, tmp_path) as made:
        yield made


listable = pytest.mark.parametrize("world", LISTING, indirect=True)
"""Of a promise that only such a catalog makes."""


@asynccontextmanager
async def _world(request: pytest.FixtureRequest, folder: Path) -> AsyncGenerator[World]:
    match request.param:
        case "memory":
            yield MemoryWorld()
        case "events":
            yield EventWorld(f"space{next(_spaces)}")
        case "pyiceberg: sql":
            async with sql_world(folder) as made:
                yield made
        case "pyiceberg: rest":
            server: RestCatalogServer = request.getfixturevalue("rest_server")
            settings = PyIcebergSettings(name="lake", properties={"type": "rest", "uri": server.uri})
            async with rest_world(server, PyIcebergCatalog(settings)) as made:
                yield made
        case paged:
            server = request.getfixturevalue("rest_server")
            page_size = 2 if "two" in paged else None
            rest = RestCatalog(RestSettings(name="lake", uri=server.uri, page_size=page_size))
            async with rest_world(server, rest) as made:
                yield made


@asynccontextmanager
async def rest_world(server: RestCatalogServer, adapter: RestCatalog | PyIcebergCatalog) -> AsyncGenerator[RestWorld]:
    """A world on a server that runs."""
    async with aiohttp.ClientSession() as session:
        made = RestWorld(server.uri, server.warehouse, session, adapter)
        await made.create_namespace()
        try:
            yield made
        finally:
            await adapter.close()


def identifier(table: TableIdentifier) -> tuple[str, ...]:
    return (*table.namespace, table.name)


class SqlWorld:
    """A namespace of a catalog called `lake`, in a folder."""

    def __init__(self, folder: Path, catalog: Catalog, theirs: SqlCatalog) -> None:
        self.catalog = catalog
        self.space = f"space{next(_spaces)}"
        self._home = folder.as_uri()
        self._theirs = theirs

    async def create_namespace(self, *levels: str) -> None:
        self._theirs.create_namespace((self.space, *levels))

    async def drop_namespace(self, *levels: str) -> None:
        self._theirs.drop_namespace((self.space, *levels))

    async def close_namespace(self) -> str:
        # PyIceberg takes the space away from around a level: it would look for `closed`.
        with self._theirs.engine.begin() as connection:
            connection.execute(
                text("INSERT INTO iceberg_namespace_properties VALUES ('lake', :namespace, 'exists', 'true')"),
                {"namespace": f"{self.space}. closed"},
            )
        return " closed"

    async def create(self, table: TableIdentifier) -> str:
        location = "/".join((self._home, *(quote(part, safe="") for part in identifier(table))))
        return str(self._theirs.create_table(identifier(table), SCHEMA, location).metadata.table_uuid)

    async def commit(self, table: TableIdentifier) -> None:
        self._theirs.load_table(identifier(table)).append(pa.table({"id": [1]}))

    async def switch_off(self, table: TableIdentifier) -> None:
        with self._theirs.load_table(identifier(table)).transaction() as change:
            change.set_properties({"sfn.enabled": "false"})

    async def roll_back(self, table: TableIdentifier) -> None:
        before = self._theirs.load_table(identifier(table)).metadata.metadata_log[-1].metadata_file
        self._theirs.drop_table(identifier(table))
        self._theirs.register_table(identifier(table), before)

    async def rename(self, source: TableIdentifier, target: TableIdentifier) -> None:
        self._theirs.rename_table(identifier(source), identifier(target))

    async def drop(self, table: TableIdentifier) -> None:
        self._theirs.drop_table(identifier(table))


@asynccontextmanager
async def sql_world(folder: Path) -> AsyncGenerator[SqlWorld]:
    """A world in a folder."""
    uri = f"sqlite:///{folder}/catalog.db"
    with closing(SqlCatalog("lake", uri=uri)) as theirs:
        adapter = PyIcebergCatalog(PyIcebergSettings(name="lake", properties={"type": "sql", "uri": uri}))
        made = SqlWorld(folder, adapter, theirs)
        await made.create_namespace()
        try:
            yield made
        finally:
            await adapter.close()


class EventWorld:
    """An event-only catalog: its events are put into an inbox, and its metadata files are in a store."""

    def __init__(self, space: str) -> None:
        self._truth = MemoryCatalog("lake")
        self._store = MemoryStore()
        self.inbox = MemoryInbox(InboxConfig(event_only_catalogs=frozenset({"lake"})), SystemClock())
        reported = self.inbox.reported_tables
        self.adapter = EventCatalog("lake", "ours", self._store.read_range, ("file:///warehouse",), reported)
        self.catalog: Catalog = self.adapter
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
