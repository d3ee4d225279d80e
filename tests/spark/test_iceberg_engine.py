"""The engine `iceberg` and its facade in the driver; and that a DataFrame of whichever engine stays what it is."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession

import sfn.spark
from sfn.demo.environment import RestCatalogServer
from sfn.errors import Ambiguous, NotSupported, Rejected
from sfn.sfnfile.document import render, render_ordinal
from sfn.sfnfile.naming import ORDINAL
from sfn.spark import engine_iceberg as driving
from sfn.spark.engine_iceberg import driver_facade, pin_pointer
from sfn.spark.request import make_read_request
from tests.spark.beside import beside, published
from tests.spark.telling import elsewhere
from tests.support.real_table import real_table
from tests.support.table_directory import Directory

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
        directory = published(client, "driven.settled")
        frames = {engine: sfn.spark.read(spark, directory, engine=engine) for engine in ENGINES}
        spark.sql("INSERT INTO lake.driven.settled VALUES (2)")
        spark.sql("ALTER TABLE lake.driven.settled ADD COLUMN more STRING")
        published(client, "driven.settled")
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
            directory = beside(table, "driven.then", ORDINAL)
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
        directory = published(client, "driven.digits")
        for place in (nullcontext(), elsewhere(spark, directory)):
            with place:
                for ref in ("2026", "-5", "7"):
                    assert ids(sfn.spark.read(spark, directory, ref=ref, engine="iceberg")) == [1]
        for engine in ("files", "sfn"):
            assert ids(sfn.spark.read(spark, directory, ref="2026", engine=engine)) == [1]
        spark.sql("ALTER TABLE lake.driven.digits ADD COLUMN more STRING")
        published(client, "driven.digits")
    # Now its schema is another than its snapshot's.
    for place in (nullcontext(), elsewhere(spark, directory)):
        with place, pytest.raises(NotSupported, match=r"branch 2026, .*; use engine='files' or engine='sfn'"):
            sfn.spark.read(spark, directory, ref="2026", engine="iceberg")
    for engine in ("files", "sfn", "auto"):
        found = sfn.spark.read(spark, directory, ref="2026", engine=engine)
        assert (found.columns, ids(found)) == (["id", "more"], [1])


async def test_the_newest_tables_are_shown_and_of_others_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "MAX_PINNED", 2)
    directory = real_table(tmp_path).directory
    pins = driving.PinnedTables()

    def add(secret: str) -> str:
        what = make_read_request(directory, storage_options={"secret": secret})
        return pins.add(what, pin_pointer(what))

    async def tree(name: str) -> object:
        place = await pins.find(driving.PINNED_NAMESPACE, name)
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
        await pins.find(driving.PINNED_NAMESPACE, first)
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
