"""A Hive metastore and AWS Glue through PyIceberg: they hold tables of other kinds too, and no nested namespaces."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import anyio
import msgspec
import pytest
from aiohttp import web
from hive_metastore import ThriftHiveMetastore
from hive_metastore.ttypes import NoSuchObjectException, Table
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException
from typing_extensions import override

from sfn.catalogs.pyiceberg import PyIcebergCatalog
from sfn.domain.catalog_answer import Loaded, NoSuchTable, NotModified, StagedCreate
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Permanent, Transient
from tests.unit.library_ground import ORDERS, PRIVATE, Database, opening, trouble_of

REGION = {"glue.region": "us-east-1", "glue.access-key-id": "ours", "glue.secret-access-key": PRIVATE}
Tables = Mapping[str, Mapping[str, str]]
"""Parameters of the tables of the only database, `sales`."""


def held(pointer: str) -> Tables:
    iceberg = {"table_type": "ICEBERG"}
    return {
        "orders": {**iceberg, "metadata_location": pointer},
        "begun": iceberg,
        "csv": {"classification": "csv"},
        "delta": {"table_type": "DELTA"},
        "plain": {},
    }


@dataclass
class Hive:
    """The metastore's side of Thrift."""

    tables: Tables

    def get_all_databases(self) -> list[str]:
        return ["sales"]

    def get_all_tables(self, db_name: str) -> list[str]:
        return list(self.tables) if db_name == "sales" else []

    def get_table_objects_by_name(self, dbname: str, tbl_names: list[str]) -> list[Table]:
        return [self.get_table(dbname, name) for name in tbl_names]

    def get_table(self, dbname: str, tbl_name: str) -> Table:
        # It finds a table by any spelling.
        parameters = self.tables.get(tbl_name.lower())
        if parameters is None or dbname != "sales":
            raise NoSuchObjectException(f"{dbname}.{tbl_name}")
        return Table(tableName=tbl_name.lower(), dbName=dbname, parameters=dict(parameters))


class Connection(BaseRequestHandler):
    """Answers one client until it is gone."""

    tables: Tables

    @override
    def handle(self) -> None:
        socket = TSocket()
        socket.setHandle(self.request)
        protocol = TBinaryProtocol(TBufferedTransport(socket))
        with suppress(TTransportException):
            while True:
                ThriftHiveMetastore.Processor(Hive(self.tables)).process(protocol, protocol)


@contextmanager
def hive(tables: Tables) -> Generator[dict[str, str]]:
    """A metastore on the loopback interface: the properties of its catalog."""
    handler = type("Connection", (Connection,), {"tables": tables})
    with ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        try:
            yield {"uri": f"thrift://127.0.0.1:{server.server_address[1]}"}
        finally:
            server.shutdown()


@asynccontextmanager
async def glue(tables: Tables) -> AsyncGenerator[dict[str, str]]:
    """The API of Glue on the loopback interface: the properties of its catalog."""

    def described(name: str) -> dict[str, object]:
        named: dict[str, object] = {"DatabaseName": "sales", "Name": name}
        # Glue leaves empty members out.
        return named | ({"Parameters": tables[name]} if tables[name] else {})

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked = msgspec.json.decode(await request.read())
        names = [name for name in tables if asked.get("DatabaseName") == "sales"]
        match request.headers["x-amz-target"]:
            case "AWSGlue.GetDatabases":
                return web.json_response({"DatabaseList": [{"Name": "sales"}]})
            case "AWSGlue.GetTables" if names:
                return web.json_response({"TableList": [described(name) for name in names]})
            case "AWSGlue.GetTable" if asked["Name"].lower() in names:
                return web.json_response({"Table": described(asked["Name"].lower())})
            case _:
                return web.json_response({"__type": "EntityNotFoundException", "Message": "none"}, status=400)

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield {"type": "glue", "glue.endpoint": f"http://127.0.0.1:{runner.addresses[0][1]}", **REGION}
    finally:
        await runner.cleanup()


@pytest.fixture(name="database")
def fixture_database(tmp_path: Path) -> Database:
    return Database(tmp_path)


@pytest.fixture(name="catalog", params=["hive", "glue"])
async def fixture_catalog(request: pytest.FixtureRequest, database: Database) -> AsyncGenerator[PyIcebergCatalog]:
    tables = held(database.pointer.as_uri())
    if request.param == "hive":
        with hive(tables) as properties:
            async with opening(properties) as catalog:
                yield catalog
    else:
        async with glue(tables) as properties, opening(properties) as catalog:
            yield catalog


async def test_a_table_is_loaded(database: Database, catalog: PyIcebergCatalog) -> None:
    answer = await catalog.load(ORDERS, None)
    assert isinstance(answer, Loaded)
    assert answer.table.metadata_location == database.pointer.as_uri()
    assert answer.table.uuid is not None
    assert await catalog.load(ORDERS, answer.etag) == NotModified()


@pytest.mark.parametrize("name", ["csv", "delta", "plain", "absent"])
async def test_a_table_of_another_kind_is_no_table(catalog: PyIcebergCatalog, name: str) -> None:
    table = replace(ORDERS, name=name)
    assert await catalog.load(table, None) == NoSuchTable()
    assert not await catalog.is_listed(table)


@pytest.mark.parametrize("namespace", [("marketing",), ("sales", "inner")])
async def test_a_namespace_that_is_missing_has_no_tables(catalog: PyIcebergCatalog, namespace: tuple[str, ...]) -> None:
    table = TableIdentifier("lake", namespace, "orders")
    assert await catalog.load(table, None) == NoSuchTable()
    assert not await catalog.is_listed(table)


async def test_a_table_without_a_metadata_file_is_unwritten(catalog: PyIcebergCatalog) -> None:
    begun = replace(ORDERS, name="begun")
    assert await catalog.load(begun, None) == StagedCreate()
    assert await catalog.is_listed(begun)


async def test_only_tables_of_iceberg_are_walked(catalog: PyIcebergCatalog) -> None:
    assert [one async for one in catalog.tables()] == [ORDERS, replace(ORDERS, name="begun")]


@pytest.mark.parametrize("table", [replace(ORDERS, name="Orders"), replace(ORDERS, namespace=("SALES",))])
async def test_another_spelling_of_a_name_is_not_another_table(
    catalog: PyIcebergCatalog, table: TableIdentifier
) -> None:
    with pytest.raises(Permanent, match="which the catalog keeps as"):
        await catalog.load(table, None)


async def test_many_ask_at_once(catalog: PyIcebergCatalog) -> None:
    answers: list[object] = []

    async def load() -> None:
        answers.append(type(await catalog.load(ORDERS, None)))

    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(load)
    assert answers == [Loaded] * 30


@pytest.mark.parametrize(
    "properties",
    [{"uri": "thrift://127.0.0.1:1"}, {"type": "glue", "glue.endpoint": "http://127.0.0.1:1", **REGION}],
    ids=["hive", "glue"],
)
async def test_a_server_that_is_away_is_trouble_of_the_catalog(properties: dict[str, str]) -> None:
    async with opening(properties, request_timeout=2.0) as catalog:
        trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (Transient, ErrorScope.CATALOG)
