"""Hive, AWS Glue, REST and SQL catalogs through PyIceberg."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
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

from sfn.catalogs import Loaded, NoSuchTable, NotModified, StagedCreate, UnlistedNamespace
from sfn.catalogs.pyiceberg import PyIcebergCatalog
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from tests.support.rest_catalog import Responder, Server, complaint, reply, served, table
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

    async with served(answer) as address:
        yield {"type": "glue", "glue.endpoint": address, **REGION}


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["csv", "delta", "plain", "absent"])
async def test_a_table_of_another_kind_is_no_table(catalog: PyIcebergCatalog, name: str) -> None:
    table = msgspec.structs.replace(ORDERS, name=name)
    assert await catalog.load(table, None) == NoSuchTable()
    assert not await catalog.is_listed(table)


@pytest.mark.parametrize("namespace", [("marketing",), ("sales", "inner")])
async def test_a_namespace_that_is_missing_has_no_tables(catalog: PyIcebergCatalog, namespace: tuple[str, ...]) -> None:
    table = TableIdentifier("lake", namespace, "orders")
    assert await catalog.load(table, None) == NoSuchTable()
    assert not await catalog.is_listed(table)


async def test_a_table_without_a_metadata_file_is_unwritten(catalog: PyIcebergCatalog) -> None:
    begun = msgspec.structs.replace(ORDERS, name="begun")
    assert await catalog.load(begun, None) == StagedCreate()
    assert await catalog.is_listed(begun)


@pytest.mark.slow
async def test_only_tables_of_iceberg_are_walked(catalog: PyIcebergCatalog) -> None:
    assert [one async for one in catalog.tables()] == [ORDERS, msgspec.structs.replace(ORDERS, name="begun")]


@pytest.mark.parametrize(
    "table", [msgspec.structs.replace(ORDERS, **part) for part in ({"name": "Orders"}, {"namespace": ("SALES",)})]
)
async def test_another_spelling_is_not_another_table(catalog: PyIcebergCatalog, table: TableIdentifier) -> None:
    with pytest.raises(Permanent, match="which the catalog lists as"):
        await catalog.load(table, None)


@pytest.mark.slow
async def test_many_ask_at_once(catalog: PyIcebergCatalog) -> None:
    answers: list[object] = []

    async def load() -> None:
        answers.append(type(await catalog.load(ORDERS, None)))

    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(load)
    assert answers == [Loaded] * 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "properties",
    [{"uri": "thrift://127.0.0.1:1"}, {"type": "glue", "glue.endpoint": "http://127.0.0.1:1", **REGION}],
    ids=["hive", "glue"],
)
async def test_a_server_that_is_away_is_trouble_of_the_catalog(properties: dict[str, str]) -> None:
    async with opening(properties, request_timeout=2.0) as catalog:
        trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (Transient, ErrorScope.CATALOG)


EMPTY = {"schema": {"type": "struct", "fields": []}, "partition-spec": [], "last-column-id": 0}
WHOLE = {
    "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
    "current-schema-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "default-spec-id": 0,
    "last-partition-id": 999,
    "last-column-id": 0,
    "last-sequence-number": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "default-sort-order-id": 0,
}


def whole(pointer: str | None = "s3://b/t/metadata/1.json", **more: object) -> Responder:
    """A table that PyIceberg reads."""
    return reply(table(pointer, **WHOLE, **more))


@pytest.fixture(name="rest_catalog")
async def fixture_rest_catalog(server: Server) -> AsyncGenerator[PyIcebergCatalog]:
    async with opening({"uri": server.uri, "token": PRIVATE}) as catalog:
        yield catalog


async def test_a_table_is_described_as_by_our_own_adapter(server: Server, rest_catalog: PyIcebergCatalog) -> None:
    log = [{"timestamp-ms": 1, "metadata-file": f"s3://b/t/metadata/{number}.json"} for number in (0, 1)]
    server.other = whole(metadata_log=log, properties={"encryption.key-id": "k"}, location="s3://b/t/")
    answer = await rest_catalog.load(ORDERS, None)
    assert isinstance(answer, Loaded)
    found = answer.table
    assert (found.uuid, found.location) == ("9c12d441-03fe-4693-9a96-a0705ddf69c1", "s3://b/t")
    assert (found.metadata_location, found.last_updated_ms) == ("s3://b/t/metadata/1.json", 1_700_000_000_000)
    assert found.metadata_log == ("s3://b/t/metadata/0.json", "s3://b/t/metadata/1.json")
    assert (found.snapshot_id, found.skip_reason) == (None, "encrypted: the table property encryption.key-id is set")
    assert await rest_catalog.load(ORDERS, answer.etag) == NotModified()


async def test_a_uuid_that_pyiceberg_made_up_is_none(server: Server, rest_catalog: PyIcebergCatalog) -> None:
    body = table("s3://b/t/metadata/1.json", **EMPTY, format_version=1)
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    del metadata["table-uuid"]
    server.other = reply(body)
    answer = await rest_catalog.load(ORDERS, None)
    assert isinstance(answer, Loaded)
    assert answer.table.uuid is None


async def test_a_staged_table_is_unwritten(server: Server, rest_catalog: PyIcebergCatalog) -> None:
    server.other = whole(None)
    assert await rest_catalog.load(ORDERS, None) == StagedCreate()


@pytest.mark.parametrize("kind", ["NoSuchTableException", "NoSuchIcebergTableException", "NoSuchNamespaceException"])
async def test_a_404_in_icebergs_shape_is_an_answer(server: Server, rest_catalog: PyIcebergCatalog, kind: str) -> None:
    server.other = complaint(kind, 404)
    assert await rest_catalog.load(ORDERS, None) == NoSuchTable()


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"<h1>Not Found</h1>", 404, content_type="text/html"),
        reply(b"", 404),
        reply({"error": {"message": "no", "type": "NoSuchTableException", "code": 410}}, 404),
        complaint("NoSuchWarehouseException", 404),
    ],
    ids=["a page", "nothing", "another code", "another type"],
)
async def test_any_other_404_is_trouble(server: Server, rest_catalog: PyIcebergCatalog, answer: Responder) -> None:
    server.other = answer
    trouble = await trouble_of(rest_catalog)
    assert (type(trouble), trouble.scope) == (Transient, ErrorScope.CATALOG)
    with pytest.raises(ExternalError):
        await rest_catalog.is_listed(ORDERS)


@pytest.mark.parametrize(
    ("answer", "kind", "scope"),
    [
        (complaint("NotAuthorizedException", 401), Permanent, ErrorScope.CATALOG),
        (complaint("TooManyRequests", 429), Transient, ErrorScope.CATALOG),
        (reply(b"", 502), Transient, ErrorScope.CATALOG),
        (reply(b"no JSON"), Transient, ErrorScope.CATALOG),
    ],
    ids=["401", "429", "502", "no JSON"],
)
async def test_what_is_no_answer_is_trouble(
    server: Server, rest_catalog: PyIcebergCatalog, answer: Responder, kind: type[ExternalError], scope: ErrorScope
) -> None:
    server.other = answer
    trouble = await trouble_of(rest_catalog)
    assert (type(trouble), trouble.scope) == (kind, scope)


async def test_levels_that_the_catalogs_own_separator_would_join_are_refused(
    server: Server, rest_catalog: PyIcebergCatalog
) -> None:
    server.config = reply({"defaults": {"namespace-separator": "%2E"}, "overrides": {}})
    with pytest.raises(Permanent, match="which contains the catalog's separator"):
        await rest_catalog.load(TableIdentifier("lake", ("a.b",), "t"), None)


async def test_a_catalog_without_nested_namespaces_has_none(server: Server, rest_catalog: PyIcebergCatalog) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path.endswith("/tables"):
            return await reply({"identifiers": [{"namespace": ["sales"], "name": "orders"}]})(request)
        if "parent" in request.query:
            return await complaint("BadRequestException", 400)(request)
        return await reply({"namespaces": [["sales"]]})(request)

    server.other = answer
    assert [one async for one in rest_catalog.tables()] == [ORDERS]


def listing(*namespaces: str, tables: Responder | None = None, names: tuple[str, ...] = ("other",)) -> Responder:
    """Lists these namespaces, and in each the tables of these names; `tables` answers of `sales` instead."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        parts = request.path.split("/")[3:]
        if not parts:
            found = [] if "parent" in request.query_string else [[name] for name in namespaces]
            return await reply({"namespaces": found})(request)
        if len(parts) == 3:
            return await complaint("BaseException", 404)(request)
        here = reply({"identifiers": [{"namespace": [parts[0]], "name": name} for name in names]})
        return await (tables if tables is not None and parts[0] == "sales" else here)(request)

    return respond


async def test_a_404_of_another_type_counts_once_no_listing_names_the_table(
    server: Server, rest_catalog: PyIcebergCatalog
) -> None:
    server.other = listing("sales")
    assert await rest_catalog.load(ORDERS, None) == NoSuchTable()
    server.other = listing("sales", names=("orders",))
    assert (await trouble_of(rest_catalog)).scope is ErrorScope.TABLE


async def test_a_namespace_that_is_missing_by_another_type_must_not_be_listed(
    server: Server, rest_catalog: PyIcebergCatalog
) -> None:
    server.other = listing("other", tables=complaint("BaseException", 404))
    assert await rest_catalog.load(ORDERS, None) == NoSuchTable()
    assert not await rest_catalog.is_listed(ORDERS)
    server.other = listing("sales", tables=complaint("BaseException", 404))
    assert (await trouble_of(rest_catalog)).scope is ErrorScope.TABLE


@pytest.mark.parametrize(
    "answer",
    [
        complaint("InternalServerError", 500),
        reply(b"<html>", content_type="text/html"),
        reply({}),
        reply({"identifiers": None}),
    ],
    ids=["500", "a page", "no list", "null"],
)
async def test_a_namespace_that_fails_is_withheld_and_all_others_are_walked(
    server: Server, rest_catalog: PyIcebergCatalog, answer: Responder
) -> None:
    server.other = listing("aa", "sales", "zz", tables=answer)
    found = [one async for one in rest_catalog.tables()]
    assert [one.dotted for one in found if isinstance(one, TableIdentifier)] == ["aa.other", "zz.other"]
    assert [one.namespace for one in found if isinstance(one, UnlistedNamespace)] == [("sales",)]


@pytest.fixture(name="sql_catalog")
async def fixture_sql_catalog(database: Database) -> AsyncGenerator[PyIcebergCatalog]:
    async with opening(database.properties) as catalog:
        yield catalog


async def test_a_table_that_did_not_change_costs_no_file(database: Database, sql_catalog: PyIcebergCatalog) -> None:
    answer = await sql_catalog.load(ORDERS, None)
    assert isinstance(answer, Loaded)
    database.pointer.unlink()
    assert await sql_catalog.load(ORDERS, answer.etag) == NotModified()


@pytest.mark.slow
async def test_a_locked_database_is_trouble_of_the_catalog_and_never_an_absence(
    database: Database, sql_catalog: PyIcebergCatalog
) -> None:
    """Also where a connection is opened just then: PyIceberg takes the lock for a database without its tables."""
    answer = await sql_catalog.load(ORDERS, None)
    async with opening(database.properties) as other:
        with closing(database.connected()) as writer:
            writer.execute("BEGIN EXCLUSIVE")
            for asked in (sql_catalog, other):
                for table in (ORDERS, msgspec.structs.replace(ORDERS, name="absent")):
                    trouble = await trouble_of(asked, table)
                    assert (type(trouble), trouble.scope) == (Transient, ErrorScope.CATALOG)
                    assert "database is locked" in trouble.found
                with pytest.raises(Transient):
                    await asked.is_listed(ORDERS)
                with pytest.raises(Transient):
                    [one async for one in asked.tables()]
                with pytest.raises(Transient):
                    await asked.identity()
        for asked in (sql_catalog, other):
            assert await asked.load(ORDERS, None) == answer
            assert [one async for one in asked.tables()] == [ORDERS]


async def test_a_database_that_is_not_there_is_not_made(database: Database, tmp_path: Path) -> None:
    absent = tmp_path / "not mounted.db"
    async with opening({**database.properties, "uri": f"sqlite:///{absent}"}) as catalog:
        trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (Transient, ErrorScope.CATALOG)
    assert "unable to open database file" in trouble.found
    assert not absent.exists()


@pytest.mark.parametrize("more", [{}, {"init_catalog_tables": "true"}])
async def test_a_database_without_a_catalog_stays_so(database: Database, tmp_path: Path, more: dict[str, str]) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()
    async with opening({**database.properties, "uri": f"sqlite:///{empty}", **more}) as catalog:
        trouble = await trouble_of(catalog)
        with pytest.raises(Transient):
            await catalog.identity()
    assert trouble.scope is ErrorScope.CATALOG
    assert "no such table: iceberg_tables" in trouble.found
    assert empty.read_bytes() == b""


async def test_an_old_database_is_read_and_not_migrated(database: Database) -> None:
    database.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    async with opening({**database.properties, "schema_version": "v1"}) as catalog:
        assert isinstance(await catalog.load(ORDERS, None), Loaded)
        assert [one async for one in catalog.tables()] == [ORDERS]
    with closing(database.connected()) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(iceberg_tables)")]
    assert "iceberg_type" not in columns


async def test_a_view_is_no_table(database: Database, sql_catalog: PyIcebergCatalog) -> None:
    database.execute("UPDATE iceberg_tables SET iceberg_type = 'VIEW'")
    assert await sql_catalog.load(ORDERS, None) == NoSuchTable()
    assert not await sql_catalog.is_listed(ORDERS)
    assert [one async for one in sql_catalog.tables()] == []


@pytest.mark.parametrize("pointer", [None, ""])
async def test_a_row_without_a_metadata_file_is_neither_a_table_nor_an_absence(
    database: Database, sql_catalog: PyIcebergCatalog, pointer: str | None
) -> None:
    database.execute("UPDATE iceberg_tables SET metadata_location = ?", pointer)
    assert await sql_catalog.load(ORDERS, None) == StagedCreate()
    assert await sql_catalog.is_listed(ORDERS)


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        ((), "orders"),
        (("",), "orders"),
        (("sales",), ""),
        ((" sales",), "orders"),
        (("sales", "a.b"), "orders"),
        (("sales\0",), "orders"),
        (("sales",), "orders\ud800"),
    ],
)
async def test_a_name_that_would_be_mistaken_is_refused_and_nothing_else_is(
    sql_catalog: PyIcebergCatalog, namespace: tuple[str, ...], name: str
) -> None:
    with pytest.raises(Permanent) as caught:
        await sql_catalog.load(TableIdentifier("lake", namespace, name), None)
    assert caught.value.scope is ErrorScope.TABLE
    assert str(caught.value).isprintable()
    assert "catalogs.lake.exclude" in caught.value.remedy
    assert isinstance(await sql_catalog.load(ORDERS, None), Loaded)


async def test_a_catalog_of_whose_name_its_database_knows_nothing_is_withheld(database: Database) -> None:
    async with opening({**database.properties, "name": "default"}) as catalog:
        assert [one async for one in catalog.tables()] == [
            UnlistedNamespace(
                (), "its database holds lake, and nothing of default", 'set catalogs.lake.properties.name = "lake"'
            )
        ]


async def test_an_empty_catalog_is_no_wrong_name(database: Database, sql_catalog: PyIcebergCatalog) -> None:
    database.execute("DELETE FROM iceberg_tables")
    assert [one async for one in sql_catalog.tables()] == []
    assert [one async for one in sql_catalog.tables(lambda _: True)] == []
    database.execute("DELETE FROM iceberg_namespace_properties")
    assert [one async for one in sql_catalog.tables()] == []


async def test_a_catalog_may_be_called_otherwise_in_its_database(database: Database) -> None:
    database.execute("UPDATE iceberg_tables SET catalog_name = 'default'")
    database.execute("UPDATE iceberg_namespace_properties SET catalog_name = 'default'")
    async with opening({**database.properties, "name": "default"}) as catalog:
        assert isinstance(await catalog.load(ORDERS, None), Loaded)
        assert [one async for one in catalog.tables()] == [ORDERS]
