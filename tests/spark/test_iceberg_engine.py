"""The engine `iceberg`: its facade in the driver or on another host, and DataFrames that do not change."""

from __future__ import annotations

import socket
import threading
import weakref
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession
from typing_extensions import override

import sfn.spark
from sfn.demo.environment import RestCatalogServer
from sfn.errors import (
    Ambiguous,
    CommitNotFound,
    NotFound,
    NotPermitted,
    NotSupported,
    RefNotFound,
    Rejected,
    Unreachable,
)
from sfn.sfnfile.document import render, render_ordinal
from sfn.sfnfile.naming import ORDINAL
from sfn.spark import engine_iceberg
from sfn.spark.engine_iceberg import driver_facade, pin_pointer
from sfn.spark.request import make_read_request
from tests.spark.session import FACADE_TOKEN, FACADE_URI, changed_settings, remote_facade
from tests.spark.tables import error_text, publish, write_sfn_file
from tests.support.real_table import RealTable, real_table
from tests.support.table_directory import OTHER_UUID, Directory

ENGINES = ("iceberg", "files", "sfn")


@pytest.fixture(autouse=True, scope="module")
def fixture_namespace(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE lake.driven")


def ids(found: DataFrame) -> list[int]:
    return sorted(row.id for row in found.select("id").collect())


def test_a_frame_stays_settled_after_a_commit(spark: SparkSession, catalog: RestCatalogServer) -> None:
    spark.sql("CREATE TABLE lake.driven.settled (id BIGINT) USING iceberg")
    spark.sql("INSERT INTO lake.driven.settled VALUES (1)")
    with catalog.client() as client:
        directory = publish(client, "driven.settled")
        frames = {engine: sfn.spark.read(spark, directory, engine=engine) for engine in ENGINES}
        spark.sql("INSERT INTO lake.driven.settled VALUES (2)")
        spark.sql("ALTER TABLE lake.driven.settled ADD COLUMN more STRING")
        publish(client, "driven.settled")
    for engine, frame in frames.items():
        assert ids(frame) == [1]
        assert ids(sfn.spark.read(spark, directory, engine=engine)) == [1, 2]


def test_of_a_directory_that_tables_share_one_is_named(
    spark: SparkSession, catalog: RestCatalogServer, tmp_path: Path
) -> None:
    shared = Directory(tmp_path / "shared")
    with catalog.client() as client:
        for number in (1, 2):
            spark.sql(f"CREATE TABLE lake.driven.t{number} (id BIGINT) USING iceberg")
            spark.sql(f"INSERT INTO lake.driven.t{number} VALUES ({number})")
            table = client.load_table(f"driven.t{number}")
            more = {"guid": str(table.metadata.table_uuid), "metadata_file_path": table.metadata_location}
            doc = shared.document(f"driven.t{number}", **more)
            shared.sfn_file(f"driven.t{number}").write_bytes(render(doc))
    for engine in ENGINES:
        assert ids(sfn.spark.read(spark, shared.path, table="driven.t2", engine=engine)) == [2]
        with pytest.raises(Ambiguous):
            sfn.spark.read(spark, shared.path, engine=engine)


def test_the_whole_table_is_read_as_it_was_at_an_ordinal(spark: SparkSession, catalog: RestCatalogServer) -> None:
    spark.sql("CREATE TABLE lake.driven.then (id BIGINT) USING iceberg")
    ordinals, directory = [], ""
    with catalog.client() as client:
        for statement in ("INSERT INTO {} VALUES (1)", "ALTER TABLE {} ADD COLUMN more STRING"):
            spark.sql(statement.format("lake.driven.then"))
            table = client.load_table("driven.then")
            directory = write_sfn_file(table, "driven.then", ORDINAL)
            ordinals.append(render_ordinal(table.metadata.last_updated_ms))
    first, second = (sfn.spark.read(spark, directory, as_of=one, engine="iceberg") for one in ordinals)
    # A change of schema is a commit, and no snapshot.
    assert (first.columns, second.columns) == (["id"], ["id", "more"])
    assert (ids(first), ids(second)) == ([1], [1])


def test_a_ref_called_by_digits_is_no_snapshot(spark: SparkSession, catalog: RestCatalogServer) -> None:
    spark.sql("CREATE TABLE lake.driven.digits (id BIGINT) USING iceberg")
    spark.sql("INSERT INTO lake.driven.digits VALUES (1)")
    for ref in ("BRANCH `2026`", "BRANCH `-5`", "TAG `7`"):
        spark.sql(f"ALTER TABLE lake.driven.digits CREATE {ref}")
    spark.sql("INSERT INTO lake.driven.digits VALUES (2)")
    with catalog.client() as client:
        directory = publish(client, "driven.digits")
        for place in (nullcontext(), remote_facade(spark, directory)):
            with place:
                for ref in ("2026", "-5", "7"):
                    assert ids(sfn.spark.read(spark, directory, ref=ref, engine="iceberg")) == [1]
        for engine in ("files", "sfn"):
            assert ids(sfn.spark.read(spark, directory, ref="2026", engine=engine)) == [1]
        spark.sql("ALTER TABLE lake.driven.digits ADD COLUMN more STRING")
        publish(client, "driven.digits")
    # Now its schema is another than its snapshot's.
    for place in (nullcontext(), remote_facade(spark, directory)):
        with place, pytest.raises(NotSupported, match=r"branch 2026, .*; use engine='files' or engine='sfn'"):
            sfn.spark.read(spark, directory, ref="2026", engine="iceberg")
    for engine in ("files", "sfn", "auto"):
        found = sfn.spark.read(spark, directory, ref="2026", engine=engine)
        assert (found.columns, ids(found)) == (["id", "more"], [1])


async def test_the_newest_tables_are_shown_and_of_others_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_iceberg, "MAX_PINNED", 2)
    directory = real_table(tmp_path).directory
    pins = engine_iceberg.PinnedTables()

    def add(secret: str) -> str:
        what = make_read_request(directory, storage_options={"secret": secret})
        return pins.add(what, pin_pointer(what))

    async def tree(name: str) -> object:
        place = await pins.find(engine_iceberg.PINNED_NAMESPACE, name)
        assert place is not None
        return place.tree

    first, second = add("hushed"), add("hushed")
    kept = weakref.ref(await tree(first))
    assert kept() is await tree(second)
    # A mapping that holds its values weakly shows none of its keys.
    assert "hushed" not in repr([dict(each) for each in vars(pins).values() if isinstance(each, Mapping)])
    third = add("other")
    assert kept() is await tree(second)
    with pytest.raises(Rejected, match=rf"{first}: expected one of the 2 DataFrames .*; make it again: sfn.spark.read"):
        await pins.find(engine_iceberg.PINNED_NAMESPACE, first)
    assert await tree(add("other")) is await tree(third)
    assert kept() is None


def test_the_drivers_facade_refuses_who_has_not_its_token() -> None:
    facade = driver_facade().facade
    url = f"{facade.url}/v1/config"
    for fields in ({}, {"Authorization": "Bearer another"}, {"Authorization": f"Basic {facade.token}"}):
        assert httpx.get(url, headers=fields).status_code == 401
    assert httpx.get(url, headers={"Authorization": f"Bearer {facade.token}"}).status_code == 200
    assert facade.url.startswith("http://127.0.0.1:")
    assert len(facade.token) > 30


@pytest.fixture(name="made", scope="module")
def fixture_made(tmp_path_factory: pytest.TempPathFactory) -> RealTable:
    return real_table(tmp_path_factory.mktemp("made"))


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_facade_that_does_not_answer_is_told(spark: SparkSession, made: RealTable) -> None:
    uri = f"http://127.0.0.1:{closed_port()}/iceberg"
    for address in (uri, "http://[", "ftp://127.0.0.1/"):
        with changed_settings(spark, {FACADE_URI: address}):
            text = error_text(Unreachable, lambda: sfn.spark.read(spark, made.directory, engine="iceberg"))
        assert text.startswith(f"{address}: expected a facade that answers, found ")
        assert text.endswith(f"set {FACADE_URI} and {FACADE_TOKEN}, or unset them to use a facade in the driver")


def proxy(status: int, page: bytes) -> type[BaseHTTPRequestHandler]:
    """What answers whatever it is asked with a page of its own."""

    class Proxy(BaseHTTPRequestHandler):
        @override
        def log_message(self, format: str, *args: Any) -> None: ...

        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(page)

    return Proxy


@pytest.mark.parametrize(
    ("status", "page", "said"),
    [
        (200, b"<html>log in</html>", "a facade's table, found another answer: JSON is malformed"),
        (200, b'{"overrides": {"prefix": "\xff"}}', "a facade's table, found another answer: Object missing"),
        (200, b'{"metadata-location": "\xff"}', "a facade's table, found another answer: 'utf-8' codec"),
        (200, b'{"a": ' * 10_000, "a facade's table, found another answer: maximum recursion depth"),
        (502, b'{"error": {"message": "\xff"}}', "a facade that answers, found 502: Bad Gateway"),
    ],
)
def test_what_is_no_facade_is_told(status: int, page: bytes, said: str, spark: SparkSession, made: RealTable) -> None:
    with HTTPServer(("127.0.0.1", 0), proxy(status, page)) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            with changed_settings(spark, {FACADE_URI: f"http://127.0.0.1:{server.server_port}/iceberg"}):
                text = error_text(Unreachable, lambda: sfn.spark.read(spark, made.directory, engine="iceberg"))
        finally:
            server.shutdown()
    assert f"expected {said}" in text
    assert f"set {FACADE_URI}" in text


def test_a_facade_that_has_moved_is_asked_where_it_is_now(spark: SparkSession, made: RealTable) -> None:
    for _ in range(2):
        with remote_facade(spark, made.directory):
            for asked, ids in (({}, [1, 2]), ({"ref": "v1"}, [1]), ({"as_of": made.tagged}, [1])):
                rows = sfn.spark.read(spark, made.directory, engine="iceberg", **asked)
                assert sorted(row.id for row in rows.collect()) == ids


def test_a_facade_elsewhere_says_what_it_does_not_show(spark: SparkSession, made: RealTable, tmp_path: Path) -> None:
    def message(kind: type[Exception], directory: str | Path = made.directory, uuid: str | None = None) -> str:
        return error_text(kind, lambda: sfn.spark.read(spark, directory, engine="iceberg", uuid=uuid))

    with remote_facade(spark, made.directory) as facade:
        text = message(NotPermitted, tmp_path)
        assert f"403: 'file://{tmp_path}': expected a directory below file://{Path(made.directory).parent}" in text
        assert "start the facade with a root that covers" in text
        assert "check the directory" in message(NotFound, Path(made.directory).parent / "none")
        assert f"unset {FACADE_URI}" in message(NotSupported, uuid=OTHER_UUID)
        with changed_settings(spark, {FACADE_TOKEN: "not-it"}):
            text = message(NotPermitted)
        assert "401: a reader's token is needed" in text
        assert f"set {FACADE_URI} and {FACADE_TOKEN}" in text
        with changed_settings(spark, {FACADE_URI: facade.url.removesuffix("/iceberg")}):
            text = message(NotFound)
        assert f"expected a facade that answers, found 404: the catalog is at /iceberg; set {FACADE_URI}" in text


@pytest.mark.parametrize("state", [{"as_of": 7}, {"as_of": datetime(2000, 11, 25, tzinfo=UTC)}, {"ref": "none"}])
def test_a_state_that_a_table_has_not_is_told_as_anywhere(
    state: dict[str, Any], spark: SparkSession, made: RealTable
) -> None:
    kind = RefNotFound if "ref" in state else CommitNotFound
    with remote_facade(spark, made.directory):
        texts = [
            error_text(kind, partial(sfn.spark.read, spark, made.directory, engine=engine, **state))
            for engine in ("iceberg", "files")
        ]
    assert texts[0] == texts[1]


def test_a_snapshot_that_no_branch_or_tag_has_is_found_by_its_id_and_its_time(
    spark: SparkSession, catalog: RestCatalogServer
) -> None:
    spark.sql("CREATE NAMESPACE lake.elsewhere")
    spark.sql("CREATE TABLE lake.elsewhere.grown (id BIGINT) USING iceberg")
    for number in (1, 2):
        spark.sql(f"INSERT INTO lake.elsewhere.grown VALUES ({number})")
    with catalog.client() as client:
        first = client.load_table("elsewhere.grown").history()[0]
        directory = publish(client, "elsewhere.grown")
    times = (datetime.fromtimestamp(first.timestamp_ms / 1000, UTC), datetime(2100, 11, 25, tzinfo=UTC))
    with remote_facade(spark, directory):
        for as_of, ids in ((first.snapshot_id, [1]), (times[0], [1]), (times[1], [1, 2])):
            found = sfn.spark.read(spark, directory, as_of=as_of, engine="iceberg")
            assert sorted(row.id for row in found.collect()) == ids
