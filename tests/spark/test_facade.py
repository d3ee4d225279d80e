"""Spark's own Iceberg as a client of the facade: it reads whatever it reads of a catalog, and changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from sfn.app.endpoints import FacadeFolders
from sfn.app.standalone import EmbeddedFacade
from sfn.demo.environment import RestCatalogServer
from tests.spark.tables import publish

TABLE = "reading.orders"
MAX_DELAY = 1.0
"""Seconds from an SFN file to the batch that has its rows."""

_CATALOG = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".cache-enabled": "false"}


VIEWS = (
    *("all_data_files", "all_delete_files", "all_entries", "all_files", "all_manifests", "data_files", "delete_files"),
    *("entries", "files", "history", "manifests", "metadata_log_entries", "partitions", "position_deletes", "refs"),
    "snapshots",
)


@pytest.fixture(name="directory", scope="module")
def fixture_directory(spark: SparkSession, catalog: RestCatalogServer) -> str:
    """A table of three days with a tag, a branch and a column that came later, by its directory."""
    name = f"lake.{TABLE}"
    spark.sql("CREATE NAMESPACE lake.reading")
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, at TIMESTAMP) USING iceberg PARTITIONED BY (days(at)) "
        "TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    for day in (1, 2):
        spark.sql(f"INSERT INTO {name} VALUES ({day}, TIMESTAMP '2026-11-0{day} 12:00:00')")
    spark.sql(f"ALTER TABLE {name} CREATE TAG v1")
    spark.sql(f"ALTER TABLE {name} CREATE BRANCH audit")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN note STRING")
    spark.sql(f"INSERT INTO {name} VALUES (3, TIMESTAMP '2026-11-03 12:00:00', 'third')")
    spark.sql(f"INSERT INTO {name}.branch_audit VALUES (9, TIMESTAMP '2026-11-09 12:00:00', 'audited')")
    with catalog.client() as client:
        return publish(client, TABLE)


@pytest.fixture(name="facade", scope="module")
def fixture_facade(spark: SparkSession, directory: str) -> Iterator[str]:
    """The name that Spark knows the facade by."""
    root = str(Path(directory).parents[1])
    facade = EmbeddedFacade(FacadeFolders([f"file://{root}"]))
    for key, value in (_CATALOG | {".uri": facade.url, ".token": facade.token}).items():
        spark.conf.set(f"spark.sql.catalog.sfn{key}", value)
    yield "sfn"
    facade.stop()


def rows(found: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in found.collect())


def ids(found: DataFrame) -> list[int]:
    return sorted(row.id for row in found.select("id").collect())


def files_below(directory: str) -> dict[Path, int | None]:
    """All files below the parent of a table's directory, and when each was changed."""
    found = Path(directory).parent.rglob("*")
    return {path: None if path.is_dir() else path.stat().st_mtime_ns for path in found}


def test_names_are_listed(spark: SparkSession, facade: str) -> None:
    assert {row.namespace for row in spark.sql(f"SHOW NAMESPACES IN {facade}").collect()} >= {"dir", "reading"}
    assert "orders" in {row.tableName for row in spark.sql(f"SHOW TABLES IN {facade}.reading").collect()}


@pytest.mark.parametrize("how", ["name", "directory"])
def test_every_state_of_a_table_is_read(spark: SparkSession, facade: str, directory: str, how: str) -> None:
    name = f"{facade}.{TABLE}" if how == "name" else f"{facade}.dir.`{directory}`"
    snapshots = [
        row.snapshot_id for row in spark.sql(f"SELECT * FROM {name}.history ORDER BY made_current_at").collect()
    ]
    second = spark.sql(f"SELECT committed_at FROM {name}.snapshots WHERE snapshot_id = {snapshots[1]}").first()
    assert isinstance(second, Row)
    assert ids(spark.sql(f"SELECT * FROM {name}")) == [1, 2, 3]
    assert ids(spark.sql(f"SELECT * FROM {name} VERSION AS OF {snapshots[0]}")) == [1]
    assert ids(spark.sql(f"SELECT * FROM {name} TIMESTAMP AS OF '{second.committed_at}'")) == [1, 2]
    assert ids(spark.sql(f"SELECT * FROM {name} VERSION AS OF 'audit'")) == [1, 2, 9]
    assert spark.sql(f"SELECT * FROM {name} VERSION AS OF 'v1'").columns == ["id", "at"]


def test_files_that_a_predicate_rules_out_are_not_read(spark: SparkSession, facade: str) -> None:
    found = spark.sql(f"SELECT id, input_file_name() AS file FROM {facade}.{TABLE} WHERE at >= '2026-11-03'")
    assert [row.id for row in found.collect()] == [3]
    plan = found._jdf.queryExecution().executedPlan().toString()  # noqa: SLF001 - what EXPLAIN prints
    assert "at >= " in plan.partition("filters=")[2]
    assert len(spark.sql(f"SELECT * FROM {facade}.{TABLE}.files").collect()) == 3
    assert found.rdd.getNumPartitions() == 1


@pytest.mark.parametrize("view", VIEWS)
def test_metadata_tables_are_those_of_the_catalog(spark: SparkSession, facade: str, view: str) -> None:
    ours, theirs = (spark.sql(f"SELECT * FROM {name}.{TABLE}.{view}") for name in (facade, "lake"))
    assert ours.schema == theirs.schema
    assert sorted(map(str, ours.collect())) == sorted(map(str, theirs.collect()))


def test_changes_are_read(spark: SparkSession, facade: str) -> None:
    name = f"{facade}.{TABLE}"
    first, *_, last = [row.snapshot_id for row in spark.sql(f"SELECT * FROM {name}.history").collect()]
    between = {"start-snapshot-id": str(first), "end-snapshot-id": str(last)}
    assert ids(spark.read.options(**between).table(name)) == [2, 3]
    spark.sql(
        f"CALL {facade}.system.create_changelog_view(table => '{TABLE}', changelog_view => 'changed', "
        f"options => map('start-snapshot-id', '{first}', 'end-snapshot-id', '{last}'))"
    )
    assert rows(spark.sql("SELECT id, _change_type FROM changed")) == [(2, "INSERT"), (3, "INSERT")]


def test_a_stream_sees_a_commit_soon_after_its_sfn_file(
    spark: SparkSession, facade: str, catalog: RestCatalogServer, tmp_path: Path
) -> None:
    spark.sql("CREATE TABLE lake.reading.streamed (id BIGINT) USING iceberg")
    spark.sql("INSERT INTO lake.reading.streamed VALUES (1)")
    with catalog.client() as client:
        directory = publish(client, "reading.streamed")
        seen: list[tuple[int, float]] = []
        stream = (
            spark.readStream.table(f"{facade}.dir.`{directory}`")
            .writeStream.foreachBatch(
                lambda batch, _: seen.extend((row.id, time.monotonic()) for row in batch.collect())
            )
            .option("checkpointLocation", str(tmp_path))
            .trigger(processingTime="100 milliseconds")
            .start()
        )
        try:
            stream.processAllAvailable()
            took = []
            for number in (2, 3, 4):
                spark.sql(f"INSERT INTO lake.reading.streamed VALUES ({number})")
                publish(client, "reading.streamed")
                begun = time.monotonic()
                while len(seen) < number and time.monotonic() < begun + 20:
                    time.sleep(0.01)
                took.append(seen[-1][1] - begun)
        finally:
            stream.stop()
    assert [number for number, _ in seen] == [1, 2, 3, 4]
    assert sorted(took)[1] < MAX_DELAY, took


WRITES = {
    "insert": "INSERT INTO {sfn}.reading.orders VALUES (7, TIMESTAMP '2026-11-07 12:00:00', 'x')",
    "overwrite": "INSERT OVERWRITE {sfn}.reading.orders SELECT * FROM {sfn}.reading.orders",
    "delete": "DELETE FROM {sfn}.reading.orders WHERE id = 1",
    "delete a partition": "DELETE FROM {sfn}.reading.orders WHERE at < TIMESTAMP '2026-11-02 00:00:00'",
    "update": "UPDATE {sfn}.reading.orders SET note = 'y' WHERE id = 1",
    "merge": "MERGE INTO {sfn}.reading.orders t USING (SELECT 1L id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "truncate": "TRUNCATE TABLE {sfn}.reading.orders",
    "create": "CREATE TABLE {sfn}.reading.other (id BIGINT) USING iceberg",
    "create from a query": "CREATE TABLE {sfn}.reading.other USING iceberg AS SELECT * FROM {sfn}.reading.orders",
    "replace": "CREATE OR REPLACE TABLE {sfn}.reading.orders USING iceberg AS SELECT 1 AS id",
    "alter": "ALTER TABLE {sfn}.reading.orders ADD COLUMN z INT",
    "properties": "ALTER TABLE {sfn}.reading.orders SET TBLPROPERTIES ('gc.enabled' = 'true')",
    "branch": "ALTER TABLE {sfn}.reading.orders CREATE BRANCH other",
    "rename": "ALTER TABLE {sfn}.reading.orders RENAME TO {sfn}.reading.other",
    "drop": "DROP TABLE {sfn}.reading.orders",
    "purge": "DROP TABLE {sfn}.reading.orders PURGE",
    "create a namespace": "CREATE NAMESPACE {sfn}.other",
    "drop a namespace": "DROP NAMESPACE {sfn}.reading CASCADE",
    "view": "CREATE VIEW {sfn}.reading.other AS SELECT * FROM {sfn}.reading.orders",
    "remove orphan files": "CALL {sfn}.system.remove_orphan_files(table => 'reading.orders')",
    "expire snapshots": "CALL {sfn}.system.expire_snapshots(table => 'reading.orders', retain_last => 1)",
    "rewrite data files": "CALL {sfn}.system.rewrite_data_files('reading.orders', options=>map('rewrite-all','true'))",
    "rewrite manifests": "CALL {sfn}.system.rewrite_manifests('reading.orders')",
    "roll back": "CALL {sfn}.system.set_current_snapshot(table => 'reading.orders', ref => 'v1')",
    "fast forward": "CALL {sfn}.system.fast_forward('reading.orders', 'audit', 'main')",
}


@pytest.mark.parametrize("write", WRITES)
def test_no_write_passes_and_nothing_is_left_or_gone(
    spark: SparkSession, facade: str, directory: str, write: str
) -> None:
    before = files_below(directory)
    with pytest.raises((Py4JJavaError, PySparkException)):
        spark.sql(WRITES[write].format(sfn=facade)).collect()
    assert files_below(directory) == before
