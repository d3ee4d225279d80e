"""Views of a directory: the columns, types and rows of Iceberg's own metadata tables."""

from __future__ import annotations

from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

import sfn.spark
from sfn.demo.environment import RestCatalogServer
from sfn.errors import SfnError
from tests.spark.tables import publish, write_tombstone
from tests.support.table_directory import WRITTEN_AT

LACKS: Final = {"files": ["first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes"]}
"""Columns that PyIceberg does not have."""
OTHERWISE: Final = {"files": {"readable_metrics"}}
"""Columns whose fields stand in another order."""
CALLED: Final = {"metadata_log": "metadata_log_entries"}


@pytest.fixture(name="directory", scope="module")
def fixture_directory(spark: SparkSession, catalog: RestCatalogServer) -> str:
    spark.sql("CREATE NAMESPACE lake.views")
    spark.sql("""
        CREATE TABLE lake.views.t (id BIGINT, at TIMESTAMP, amount DECIMAL(9, 2), s STRING) USING iceberg
        PARTITIONED BY (days(at), bucket(4, id)) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')
    """)
    spark.sql("INSERT INTO lake.views.t SELECT id, TIMESTAMP_MILLIS(id), id, 's' FROM RANGE(5)")
    spark.sql("DELETE FROM lake.views.t WHERE id = 1")
    spark.sql("ALTER TABLE lake.views.t CREATE TAG v1 RETAIN 7 DAYS")
    with catalog.client() as client:
        return publish(client, "views.t")


@pytest.mark.parametrize("name", ["snapshots", "history", "files", "manifests", "partitions", "refs", "metadata_log"])
def test_a_view_is_icebergs_own(name: str, spark: SparkSession, directory: str) -> None:
    found = sfn.spark.view(spark, directory, name)
    expected = spark.table(f"lake.views.t.{CALLED.get(name, name)}")
    assert found.columns == [column for column in expected.columns if column not in LACKS.get(name, ())]
    alike = [column for column in found.columns if column not in OTHERWISE.get(name, ())]
    assert types(found, alike) == types(expected, alike)
    assert row_texts(found, alike) == row_texts(expected, alike)


def types(frame: DataFrame, columns: list[str]) -> dict[str, str]:
    return {column: plain(frame.schema[column].dataType) for column in columns}


def plain(kind: DataType) -> str:
    return kind.simpleString()


def row_texts(frame: DataFrame, columns: list[str]) -> list[str]:
    return sorted(str(row.asDict(recursive=True)) for row in frame.select(*columns).collect())


def test_metrics_can_be_read_by_name(spark: SparkSession, directory: str) -> None:
    column = "readable_metrics.amount.upper_bound"
    found = sfn.spark.view(spark, directory, "files").where("content = 0").selectExpr(column)
    assert row_texts(found, found.columns) == row_texts(
        spark.table("lake.views.t.files").where("content = 0").selectExpr(column), found.columns
    )


def test_a_view_is_of_the_state_that_is_named(spark: SparkSession, directory: str) -> None:
    first = spark.table("lake.views.t.history").orderBy("made_current_at").first()
    assert first is not None
    now = sfn.spark.view(spark, directory, "manifests")
    then = sfn.spark.view(spark, directory, "manifests", as_of=first.snapshot_id)
    assert {row.content for row in now.collect()} == {0, 1}
    assert {row.content for row in then.collect()} == {0}


def test_what_the_sfn_file_says_is_a_view(spark: SparkSession, catalog: RestCatalogServer, directory: str) -> None:
    with catalog.client() as client:
        table = client.load_table("views.t")
    (row,) = sfn.spark.view(spark, directory, "sfn").collect()
    assert (row.table_identifier, row.state, row.ref) == ("views.t", "current", "main")
    assert (row.metadata_location, row.guid) == (table.metadata_location, str(table.metadata.table_uuid))
    assert row.snapshot_id == table.metadata.current_snapshot_id
    assert row.lag_seconds == pytest.approx(WRITTEN_AT.timestamp() - table.metadata.last_updated_ms / 1_000)
    write_tombstone(table, "views.t")
    try:
        (row,) = sfn.spark.view(spark, directory, "sfn").collect()
        assert row.state == "dropped"
        with pytest.raises(SfnError, match="dropped"):
            sfn.spark.view(spark, directory, "refs")
    finally:
        with catalog.client() as client:
            publish(client, "views.t")


def test_a_view_that_is_none_is_told(spark: SparkSession, directory: str) -> None:
    with pytest.raises(ValueError, match=r"'snapshot'; did you mean snapshots\?"):
        sfn.spark.view(spark, directory, "snapshot")
