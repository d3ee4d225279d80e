"""Catalogs through PyIceberg: errors, metadata files, settings and threads."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import requests
import sqlalchemy.exc
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ParamValidationError
from hive_metastore.ttypes import MetaException
from pyiceberg import exceptions
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from thrift.transport.TTransport import TTransportException

from sfn.catalogs import Loaded, LoadResult, NoSuchTable, UnlistedNamespace, pyiceberg
from sfn.catalogs import pyiceberg as adapter
from sfn.catalogs.pyiceberg import PyIcebergCatalog, PyIcebergSettings, check_can_open
from sfn.concurrency import unfinished_calls
from sfn.errors import ErrorScope, Permanent, SfnError, Transient
from sfn.extras import install_command
from tests.unit.library_ground import ORDERS, PRIVATE, Database, opening, planned, trouble_of

LOCKED = sqlalchemy.exc.OperationalError("SELECT 1", {}, sqlite3.OperationalError("database is locked"))
NO_COLUMN = sqlalchemy.exc.ProgrammingError("SELECT 1", {}, sqlite3.ProgrammingError("no such column"))
T, P = Transient, Permanent
TABLE, CATALOG = ErrorScope.TABLE, ErrorScope.CATALOG


def aws(code: str, status: int = 400) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": "told so"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "GetTable")


def hidden(outer: Exception, inner: Exception) -> Exception:
    outer.__context__ = inner
    return outer


ERRORS: list[tuple[Exception, type[Exception], ErrorScope]] = [
    (LOCKED, T, CATALOG),
    (sqlalchemy.exc.TimeoutError(), T, CATALOG),
    (NO_COLUMN, P, TABLE),
    (sqlalchemy.exc.DataError("", {}, Exception()), T, TABLE),
    (NoCredentialsError(), P, CATALOG),
    (EndpointConnectionError(endpoint_url="https://glue"), T, CATALOG),
    (ParamValidationError(report="too long"), P, TABLE),
    (aws("ExpiredTokenException"), P, CATALOG),
    (aws("UnrecognizedClientException"), P, CATALOG),
    (aws("ThrottlingException"), T, CATALOG),
    (aws("Unheard", 429), T, CATALOG),
    (aws("Unheard", 503), T, TABLE),
    (aws("Unheard", 400), T, TABLE),
    (aws("InvalidInputException"), P, TABLE),
    # Of one table, which must not die of a grant that was revoked by mistake.
    (aws("AccessDeniedException"), T, TABLE),
    (exceptions.ForbiddenError(), T, TABLE),
    # As PyIceberg's catalog of DynamoDB does: that error has no such attribute.
    (hidden(AttributeError("message"), aws("ProvisionedThroughputExceededException")), T, CATALOG),
    (exceptions.UnauthorizedError(), P, CATALOG),
    (exceptions.OAuthError(), P, CATALOG),
    (exceptions.TooManyRequestsError(), T, CATALOG),
    (exceptions.ServiceUnavailableError(), T, TABLE),
    (exceptions.BadRequestError(), P, TABLE),
    (exceptions.NotInstalledError(), P, CATALOG),
    (requests.ConnectionError(), T, CATALOG),
    (requests.ReadTimeout(), T, CATALOG),
    (requests.exceptions.JSONDecodeError("", "", 0), T, TABLE),
    (TTransportException(), T, CATALOG),
    (MetaException("no"), T, TABLE),
    (ConnectionRefusedError(), T, CATALOG),
    (TimeoutError(), T, CATALOG),
    (KeyError("parameters"), T, TABLE),
]


NAMES = [f"{number}: {type(error).__name__}" for number, (error, _, _) in enumerate(ERRORS)]


@pytest.mark.parametrize(("error", "kind", "scope"), ERRORS, ids=NAMES)
async def test_an_error_of_one_table_is_its_own_while_the_catalog_answers(
    error: Exception, kind: type[Exception], scope: ErrorScope
) -> None:
    def plan(_: NoopCatalog, verb: str) -> list[str]:
        if verb == "load":
            raise error
        return []

    async with planned(plan) as catalog:
        trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (kind, scope)
    assert trouble.remedy


@pytest.mark.parametrize("error", [KeyError(), aws("AccessDeniedException"), exceptions.ServerError()])
async def test_an_error_of_every_question_is_the_catalogs(error: Exception) -> None:
    questions: list[str] = []

    def plan(_: NoopCatalog, verb: str) -> None:
        questions.append(verb)
        if verb != "close":
            raise error

    async with planned(plan) as catalog:
        trouble = await trouble_of(catalog)
    assert trouble.scope is ErrorScope.CATALOG
    assert "; and of catalog lake: list" in trouble.found
    assert questions.count("namespaces") == 1


async def test_many_who_meet_the_same_error_share_the_question_that_decides() -> None:
    together, pause = threading.Barrier(8), threading.Event()
    questions: list[str] = []

    def plan(_: NoopCatalog, verb: str) -> list[str]:
        questions.append(verb)
        if verb == "load":
            together.wait(5)
            raise KeyError
        pause.wait(0.2)
        return []

    async with planned(plan, max_in_flight=together.parties) as catalog, anyio.create_task_group() as tasks:
        for _ in range(together.parties):
            tasks.start_soon(trouble_of, catalog)
    assert questions.count("namespaces") < together.parties


async def test_a_namespace_that_may_not_be_listed_is_withheld() -> None:
    def plan(_: NoopCatalog, verb: str) -> list[tuple[str, ...]]:
        if verb == "tables":
            raise aws("AccessDeniedException")
        return [("sales",)]

    async with planned(plan) as catalog:
        (found,) = [one async for one in catalog.tables()]
        assert isinstance(found, UnlistedNamespace)
        assert found.namespace == ("sales",)
        with pytest.raises(Permanent) as caught:
            await catalog.is_listed(ORDERS)
    assert caught.value.scope is ErrorScope.TABLE


async def test_no_message_tells_a_secret() -> None:
    def plan(_: NoopCatalog, verb: str) -> None:
        if verb != "close":
            raise ConnectionError(f"no route to postgresql://u:{PRIVATE}@host\n")

    async with planned(plan) as catalog:
        trouble = await trouble_of(catalog)
    assert "no route to postgresql://u:***@host" in trouble.found


async def test_what_is_gone_is_told_by_the_service_below() -> None:
    def gone(_: NoopCatalog, verb: str) -> list[str]:
        if verb == "load":
            raise NoSuchTableError from aws("EntityNotFoundException")
        return []

    async with planned(gone) as catalog:
        assert await catalog.load(ORDERS, None) == NoSuchTable()

    # As PyIceberg's catalog of DynamoDB does, whether an item is missing or the table of all items.
    missing = ValueError()
    missing.__cause__ = aws("ResourceNotFoundException")

    def catalog_gone(_: NoopCatalog, verb: str) -> list[str]:
        if verb == "load":
            raise NoSuchTableError from missing
        return []

    async with planned(catalog_gone) as catalog:
        trouble = await trouble_of(catalog)
    assert trouble.scope is ErrorScope.CATALOG


def test_a_database_error_is_told_without_its_statement() -> None:
    refusal = pyiceberg.failure_of("there", LOCKED, expected="an answer")
    assert refusal.found == "OperationalError: database is locked"


OTHER = msgspec.structs.replace(ORDERS, name="other")
LARGE = 9 * 2**20
"""Bytes that are not decoded at once."""


@pytest.fixture(name="database")
def fixture_database(tmp_path: Path) -> Database:
    return Database(tmp_path)


@pytest.fixture(name="catalog")
async def fixture_catalog(database: Database) -> AsyncGenerator[PyIcebergCatalog]:
    async with opening(database.properties) as catalog:
        yield catalog


def rewritten(database: Database, more: dict[str, Any], encode: Callable[[bytes], bytes] = bytes) -> None:
    """Put more into the table's metadata file."""
    document = json.loads(database.pointer.read_bytes())
    database.pointer.write_bytes(encode(json.dumps(document | more).encode()))


def second_table(database: Database, pointer: str) -> None:
    database.execute("INSERT INTO iceberg_tables VALUES ('lake', 'sales', 'other', ?, NULL, 'TABLE')", pointer)


@pytest.mark.parametrize("encode", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("size", [0, LARGE])
async def test_a_file_of_any_size_is_read(
    database: Database, catalog: PyIcebergCatalog, encode: Callable[[bytes], bytes], size: int
) -> None:
    before = await catalog.load(ORDERS, None)
    rewritten(database, {"statistics": ["x" * size], "current-snapshot-id": 7}, encode)
    after = await catalog.load(ORDERS, None)
    assert isinstance(before, Loaded)
    assert after == replace(before, table=replace(before.table, snapshot_id=7))


async def test_a_table_of_version_1_need_not_have_a_uuid(database: Database, catalog: PyIcebergCatalog) -> None:
    document = json.loads(database.pointer.read_bytes())
    del document["table-uuid"]
    database.pointer.write_text(json.dumps(document | {"format-version": 1}))
    answer = await catalog.load(ORDERS, None)
    assert isinstance(answer, Loaded)
    assert answer.table.uuid is None


async def test_a_file_that_is_too_long_is_given_up(database: Database) -> None:
    rewritten(database, {"statistics": ["x" * 10_000]}, gzip.compress)
    async with opening(database.properties, body_limit=10_000) as catalog:
        trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (Permanent, ErrorScope.TABLE)
    assert "expire the table's snapshots" in trouble.remedy


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"<html>", b'{"view-uuid": 1}', gzip.compress(b"{}", mtime=0)[:-9], b"\x1f\x8bno", b"\xff"]
)
async def test_a_file_that_describes_no_table_is_trouble_of_that_table(
    database: Database, catalog: PyIcebergCatalog, content: bytes
) -> None:
    database.pointer.write_bytes(content)
    trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (Transient, ErrorScope.TABLE)
    assert database.pointer.as_uri() in trouble.where


async def test_a_file_that_is_gone_is_trouble_of_that_table(database: Database, catalog: PyIcebergCatalog) -> None:
    database.pointer.unlink()
    trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope, trouble.found) == (Transient, ErrorScope.TABLE, "no such file")


async def test_one_unreadable_file_is_its_tables_trouble(database: Database, catalog: PyIcebergCatalog) -> None:
    second_table(database, database.home.as_uri())
    for _ in range(2):
        assert isinstance(await catalog.load(ORDERS, None), Loaded)
        assert (await trouble_of(catalog, OTHER)).scope is ErrorScope.TABLE


async def test_a_file_that_can_not_be_read_is_the_catalogs_trouble_until_another_was_read(
    database: Database, catalog: PyIcebergCatalog
) -> None:
    """A service that starts while nothing can be read must not spend the budget of each table."""
    second_table(database, database.home.as_uri())
    for _ in range(2):
        assert (await trouble_of(catalog, OTHER)).scope is ErrorScope.CATALOG
    assert isinstance(await catalog.load(ORDERS, None), Loaded)
    assert (await trouble_of(catalog, OTHER)).scope is ErrorScope.TABLE


async def test_where_none_can_be_read_any_more_it_is_the_catalogs(
    database: Database, catalog: PyIcebergCatalog
) -> None:
    """A revoked grant must not send every table to the dead letters."""
    second_table(database, database.home.as_uri())
    assert isinstance(await catalog.load(ORDERS, None), Loaded)
    pointer = database.pointer
    pointer.unlink()
    assert (await trouble_of(catalog, OTHER)).scope is ErrorScope.TABLE
    pointer.mkdir()
    assert (await trouble_of(catalog, OTHER)).scope is ErrorScope.CATALOG


SQL = {"type": "sql", "uri": "postgresql+psycopg2://user:s3cret@Host:5432/lake?sslmode=require"}


def told(properties: dict[str, str], **more: str) -> PyIcebergSettings:
    return PyIcebergSettings(name="prod", properties=properties, **more)  # type: ignore[arg-type]


def identity(properties: dict[str, str]) -> str:
    return told(properties).identity()


def test_an_identity_is_a_digest_of_where_the_catalog_is() -> None:
    words = ("sql", "postgresql://host:5432/lake", "prod", "warehouse=s3://b/w")
    assert identity({**SQL, "warehouse": "s3://b/w"}) == sha256("\n".join(words).encode()).hexdigest()[:32]


@pytest.mark.parametrize(
    "same",
    [
        {"uri": SQL["uri"]},
        {**SQL, "uri": "postgresql://another:pass/word@host:5432/lake"},
        {**SQL, "uri": "POSTGRESQL+asyncpg://host:5432/lake/#x"},
        {**SQL, "name": "prod", "pool_pre_ping": "true", "s3.secret-access-key": "s3cret", "type": "SQL"},
    ],
)
def test_neither_driver_nor_user_nor_secret_changes_an_identity(same: dict[str, str]) -> None:
    assert identity(same) == identity(SQL)


@pytest.mark.parametrize(
    "other",
    [
        {**SQL, "uri": "postgresql://host:5433/lake"},
        {**SQL, "uri": "postgresql://host:5432/lake2"},
        {**SQL, "uri": "sqlite:////a@host:5432/lake"},
        {**SQL, "uri": "sqlite:////b@host:5432/lake"},
        {**SQL, "warehouse": "w"},
        {**SQL, "name": "another"},
        {"type": "glue"},
        {"type": "glue", "glue.id": "1"},
        {"type": "glue", "glue.region": "1"},
        {"type": "dynamodb"},
        {"type": "dynamodb", "table-name": "t"},
        {"py-catalog-impl": "ours.Catalog"},
        {"py-catalog-impl": "ours.Catalog", "name": "another"},
    ],
)
def test_another_place_is_another_identity(other: dict[str, str]) -> None:
    places = [SQL, {**SQL, "uri": "sqlite:////c@host:5432/lake"}, {"type": "glue", "warehouse": "w"}]
    assert identity(other) not in {identity(place) for place in places}


def test_our_name_of_a_catalog_counts_only_where_it_is_the_catalogs_own() -> None:
    def identities(properties: dict[str, str]) -> int:
        return len({PyIcebergSettings(name=name, properties=properties).identity() for name in ("a", "b")})

    assert identities(SQL) == 2
    assert identities({**SQL, "name": "default"}) == 1
    assert identities({"uri": "thrift://h:9083"}) == 1


def test_the_order_of_a_metastores_servers_is_nothing() -> None:
    assert identity({"uri": "thrift://a:1,thrift://b:2"}) == identity({"uri": "thrift://b:2, thrift://A:1"})


def test_a_configured_identity_is_taken() -> None:
    assert told(SQL, catalog_id="ours").identity() == "ours"


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"x": "y"}, "properties.type: expected one of dynamodb, glue, hive, rest, sql, found none, and no uri"),
        ({"type": "in-memory"}, "properties.type: expected one of dynamodb, glue, hive, rest, sql, or py-catalog-impl"),
        ({"type": "postgresql://u:s3cret@h"}, "found another value"),
        ({"type": "sql"}, "properties.uri: expected the URI of a catalog of type sql, found none"),
        ({"type": "hive", "uri": ""}, "properties.uri: expected the URI of a catalog of type hive, found none"),
        ({"type": "sql", "uri": "s3cret"}, "properties.uri: expected a database URL of SQLAlchemy with an installed"),
        ({"type": "sql", "uri": "nodialect://u:s3cret@h"}, "properties.uri: expected a database URL of SQLAlchemy"),
        ({"uri": "postgresql+nodriver://u:s3cret@h"}, "properties.uri: expected a database URL of SQLAlchemy"),
        ({"uri": "postgresql+asyncpg://u:s3cret@h"}, "found asyncpg, which PyIceberg cannot use; such as postgresql"),
        ({"uri": "postgresql+pg8000://u:s3cret@h"}, f"found no module pg8000; {install_command('pyiceberg')}"),
        ({"uri": "postgresql://u:s3cret@h"}, "it installs psycopg2: postgresql+psycopg2://"),
        ({"uri": "sqlite://"}, "found a database in memory, which no other process sees"),
        ({"uri": "sqlite:///:memory:"}, "found a database in memory, which no other process sees"),
        ({"py-catalog-impl": "no_such_module.Catalog"}, "py-catalog-impl: expected a class that can be imported"),
        ({"py-catalog-impl": "pyiceberg.catalog.NoSuchCatalog"}, "py-catalog-impl: expected the path of a class"),
        ({"py-catalog-impl": "Catalog"}, "py-catalog-impl: expected the path of a class"),
    ],
)
def test_what_cannot_work_is_refused(properties: dict[str, str], said: str) -> None:
    with pytest.raises(SfnError) as caught:
        check_can_open(told(properties))
    assert str(caught.value).startswith("catalogs.prod.properties.")
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "properties",
    [
        SQL,
        {"uri": "sqlite:///lake.db"},
        {"uri": "https://catalog"},
        {"uri": "thrift://h:9083"},
        {"type": "glue"},
        {"type": "dynamodb"},
        {"py-catalog-impl": "pyiceberg.catalog.noop.NoopCatalog"},
    ],
)
def test_what_may_work_is_not_asked(properties: dict[str, str]) -> None:
    check_can_open(told(properties))


def test_secrets_are_all_that_is_not_known_to_be_none() -> None:
    properties = {
        **SQL,
        "warehouse": "s3://bucket",
        "client.region": "eu-west-1",
        "s3.access-key-id": "AKIA",
        "credential": "id:hidden",
        "header.X-Key": "Bearer told",
        "pool_pre_ping": "true",
        "s3.endpoint": "https://u:p%40ss@minio",
    }
    secrets = set(told(properties).secrets())
    assert secrets - {""} == {"s3cret", "AKIA", "id:hidden", "hidden", "Bearer told", "told", "p%40ss", "p@ss"}
    assert "s3cret" not in repr(told(SQL))


def python(code: str, **environ: str) -> str:
    """What a process prints."""
    surroundings = {**os.environ, **environ}  # noqa: TID251 - a child's
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, env=surroundings
    ).stdout.strip()


@pytest.mark.slow
def test_what_pyiceberg_is_configured_with_elsewhere_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".pyiceberg.yaml").write_text("catalog:\n  prod:\n    warehouse: elsewhere\n")
    environ = {"HOME": str(tmp_path), "PYICEBERG_CATALOG__PROD__S3__REGION": "elsewhere"}
    code = f"""
from pyiceberg.catalog import load_catalog
from sfn.catalogs.pyiceberg import PyIcebergSettings
from sfn.catalogs.pyiceberg_open import open_catalog
settings = {{"type": "sql", "uri": "sqlite:///{tmp_path}/catalog.db"}}
for catalog in load_catalog("prod", **settings), open_catalog(PyIcebergSettings(name="prod", properties=settings)):
    print(list(catalog.properties.values()).count("elsewhere"))
"""
    assert python(code, **environ).split() == ["2", "0"]


@pytest.mark.slow
def test_without_such_a_catalog_pyiceberg_is_not_imported() -> None:
    code = "import sys, sfn.cli.main, sfn.app.service, sfn.app.catalogs; print('pyiceberg' in sys.modules)"
    assert python(code) == "False"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "properties"),
    [("pyiceberg", {"type": "glue"}), ("thrift", {"uri": "thrift://h:1"}), ("boto3", {"type": "glue"})],
)
def test_what_is_not_installed_is_told_with_how_to_install_it(missing: str, properties: dict[str, str]) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None
from sfn.catalogs.pyiceberg import PyIcebergSettings, check_can_open
try:
    check_can_open(PyIcebergSettings(name="prod", properties={properties!r}))
except Exception as error:
    print(error)
"""
    assert python(code) == (
        "catalogs.prod.properties.type: expected PyIceberg, and the packages that it needs for such a catalog, "
        f"found no module {missing}; {install_command('pyiceberg')}"
    )


SHORT = 0.1
SOON = 5.0
"""Seconds: what would otherwise never come."""


class Server:
    """Has no tables. Does not answer until it is let go.

    Attributes:
        hanging: the verbs that hang.
        asked: how often it was asked for a table.
        seen: PyIceberg's objects that asked for one.
    """

    def __init__(self, *hanging: str) -> None:
        self.hanging = set(hanging)
        self.asked = 0
        self.seen: list[NoopCatalog] = []
        self._let_go = threading.Event()

    def __call__(self, catalog: NoopCatalog, verb: str) -> Any:  # noqa: ANN401 - as of `ReadPlan`
        if verb == "load":
            self.asked += 1
            self.seen.append(catalog)
        if verb in self.hanging:
            self._let_go.wait(2 * SOON)
        if verb == "load":
            raise NoSuchTableError("none") from LookupError()
        return []

    def let_go(self) -> None:
        self.hanging.clear()
        self._let_go.set()


@pytest.fixture(name="server")
def fixture_server() -> Generator[Server]:
    """One that hangs when it is asked for a table, and not after the test."""
    server = Server("load")
    yield server
    server.let_go()


async def until_asked(server: Server, number: int = 1) -> None:
    with anyio.fail_after(SOON):
        while server.asked < number:  # noqa: ASYNC110 - no thread tells a test
            await anyio.sleep(0.001)


async def test_the_loop_runs_on_while_pyiceberg_works(server: Server) -> None:
    answers: list[LoadResult] = []

    async def load(catalog: PyIcebergCatalog) -> None:
        answers.append(await catalog.load(ORDERS, None))

    async with planned(server) as catalog, anyio.create_task_group() as tasks:
        tasks.start_soon(load, catalog)
        await until_asked(server)
        for _ in range(10):
            await anyio.sleep(0.001)
        assert answers == []
        server.let_go()
    assert answers == [NoSuchTable()]


async def test_what_takes_too_long_is_trouble_of_the_catalog(server: Server) -> None:
    async with planned(server, request_timeout=SHORT) as catalog:
        with anyio.fail_after(SOON):
            trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (Transient, ErrorScope.CATALOG)
    assert trouble.expected == "an answer to PyIceberg within 0.1 s"


async def test_connections_that_hang_do_not_keep_others_from_being_opened(server: Server) -> None:
    """A server that forgot some answers others; of the objects that hang none is asked again."""
    async with planned(server, request_timeout=SOON, max_in_flight=2) as catalog:
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(catalog.load, ORDERS, None)
            await until_asked(server, 2)
            tasks.cancel_scope.cancel()
        server.hanging.clear()
        assert await catalog.load(ORDERS, None) == NoSuchTable()
    assert len({id(one) for one in server.seen}) == 3


def test_so_many_may_hang() -> None:
    assert adapter.MAX_HANGING_CALLS == 56


async def test_what_hangs_keeps_nobody_from_closing_nor_the_process_from_ending(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "CLOSE_TIMEOUT", SHORT)
    server.hanging = {"close"}
    async with planned(server, request_timeout=2 * SOON) as catalog:
        assert await catalog.load(ORDERS, None) == NoSuchTable()
        with anyio.fail_after(SOON):
            await catalog.close()
    assert unfinished_calls(0) == []


def test_a_server_has_two_seconds_for_a_goodbye() -> None:
    assert adapter.CLOSE_TIMEOUT == 2


async def test_no_object_of_pyiceberg_is_asked_by_two_threads() -> None:
    busy: set[int] = set()
    shared: list[str] = []
    pause = threading.Event()

    def plan(catalog: NoopCatalog, verb: str) -> Any:  # noqa: ANN401 - as of `ReadPlan`
        if id(catalog) in busy:
            shared.append(verb)
        busy.add(id(catalog))
        pause.wait(0.002)
        busy.remove(id(catalog))
        return []

    async with planned(plan) as catalog, anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(catalog.is_listed, ORDERS)
    assert shared == []


async def test_after_trouble_no_object_of_pyiceberg_is_trusted_any_more() -> None:
    """Each of them may have a connection that a restarted server has forgotten."""
    together = threading.Barrier(3)
    used: list[NoopCatalog] = []
    closed: list[NoopCatalog] = []
    failing = threading.Event()

    def plan(catalog: NoopCatalog, verb: str) -> Any:  # noqa: ANN401 - as of `ReadPlan`
        if verb == "close":
            closed.append(catalog)
        if verb == "tables":
            used.append(catalog)
            if failing.is_set():
                raise ConnectionResetError
            if len(used) <= together.parties:
                together.wait(SOON)
        return []

    async with planned(plan, max_in_flight=3) as catalog:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(catalog.is_listed, ORDERS)
        failing.set()
        with pytest.raises(Transient):
            await catalog.is_listed(ORDERS)
        before = used.copy()
        assert {id(one) for one in closed} == {id(one) for one in before}
        failing.clear()
        await catalog.is_listed(ORDERS)
        assert used[-1] not in before
    assert used[-1] in closed


async def test_a_listing_that_hangs_is_trouble_of_its_namespace_while_the_catalog_lists_others() -> None:
    let_go = threading.Event()

    def answer(_: NoopCatalog, verb: str) -> Any:  # noqa: ANN401 - as of `ReadPlan`
        if verb == "tables":
            let_go.wait(2 * SOON)
        return []

    async with planned(answer, request_timeout=1.5) as catalog:
        with pytest.raises(Transient) as caught:
            await catalog.is_listed(ORDERS)
        let_go.set()
    assert caught.value.scope is ErrorScope.TABLE
