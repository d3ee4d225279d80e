"""A facade elsewhere, instead of the driver's own: what it does not show, or is not, is told in one line."""

from __future__ import annotations

import socket
import threading
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typing_extensions import override

import sfn.spark
from sfn.demo.environment import RestCatalogServer
from sfn.errors import CommitNotFound, NotFound, NotPermitted, NotSupported, RefNotFound, Unreachable
from tests.spark.beside import published
from tests.spark.telling import TOKEN, URI, elsewhere, refusal, told
from tests.support.real_table import RealTable, real_table
from tests.support.table_directory import OTHER_UUID


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
        with told(spark, {URI: address}):
            text = refusal(Unreachable, lambda: sfn.spark.read(spark, made.directory, engine="iceberg"))
        assert text.startswith(f"{address}: expected a facade that answers, found ")
        assert text.endswith(f"set {URI} and {TOKEN}, or unset them to use a facade in the driver")


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
            with told(spark, {URI: f"http://127.0.0.1:{server.server_port}/iceberg"}):
                text = refusal(Unreachable, lambda: sfn.spark.read(spark, made.directory, engine="iceberg"))
        finally:
            server.shutdown()
    assert f"expected {said}" in text
    assert f"set {URI}" in text


def test_a_facade_that_has_moved_is_asked_where_it_is_now(spark: SparkSession, made: RealTable) -> None:
    for _ in range(2):
        with elsewhere(spark, made.directory):
            for asked, ids in (({}, [1, 2]), ({"ref": "v1"}, [1]), ({"as_of": made.tagged}, [1])):
                rows = sfn.spark.read(spark, made.directory, engine="iceberg", **asked)
                assert sorted(row.id for row in rows.collect()) == ids


def test_a_facade_elsewhere_says_what_it_does_not_show(spark: SparkSession, made: RealTable, tmp_path: Path) -> None:
    def said(kind: type[Exception], directory: str | Path = made.directory, uuid: str | None = None) -> str:
        return refusal(kind, lambda: sfn.spark.read(spark, directory, engine="iceberg", uuid=uuid))

    with elsewhere(spark, made.directory) as facade:
        text = said(NotPermitted, tmp_path)
        assert f"403: 'file://{tmp_path}': expected a directory below file://{Path(made.directory).parent}" in text
        assert "start the facade with a root that covers" in text
        assert "check the directory" in said(NotFound, Path(made.directory).parent / "none")
        assert f"unset {URI}" in said(NotSupported, uuid=OTHER_UUID)
        with told(spark, {TOKEN: "not-it"}):
            text = said(NotPermitted)
        assert "401: a reader's token is needed" in text
        assert f"set {URI} and {TOKEN}" in text
        with told(spark, {URI: facade.url.removesuffix("/iceberg")}):
            text = said(NotFound)
        assert f"expected a facade that answers, found 404: the catalog is at /iceberg; set {URI}" in text


@pytest.mark.parametrize("state", [{"as_of": 7}, {"as_of": datetime(2000, 11, 25, tzinfo=UTC)}, {"ref": "none"}])
def test_a_state_that_a_table_has_not_is_told_as_anywhere(
    state: dict[str, Any], spark: SparkSession, made: RealTable
) -> None:
    kind = RefNotFound if "ref" in state else CommitNotFound
    with elsewhere(spark, made.directory):
        texts = [
            refusal(kind, partial(sfn.spark.read, spark, made.directory, engine=engine, **state))
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
        directory = published(client, "elsewhere.grown")
    times = (datetime.fromtimestamp(first.timestamp_ms / 1000, UTC), datetime(2100, 11, 25, tzinfo=UTC))
    with elsewhere(spark, directory):
        for as_of, ids in ((first.snapshot_id, [1]), (times[0], [1]), (times[1], [1, 2])):
            found = sfn.spark.read(spark, directory, as_of=as_of, engine="iceberg")
            assert sorted(row.id for row in found.collect()) == ids
