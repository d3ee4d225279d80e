"""Which files each engine plans: deletes by their partition alone, and old times where old writers listed them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg import types
from pyiceberg.expressions import LessThan, Reference
from pyiceberg.expressions.literals import DateLiteral
from pyiceberg.manifest import DataFileContent
from pyiceberg.transforms import YearTransform
from pyiceberg.typedef import Record
from pyspark.sql import SparkSession
from pyspark.sql import datasource as spark_filters

import sfn
import sfn.spark
from sfn.demo.environment import RestCatalogServer
from sfn.errors import NotSupported
from sfn.spark.change_log import snapshots_between
from sfn.spark.engine_sfn import plan_scan
from sfn.spark.request import make_read_request
from sfn.spark.time_travel import pin_appended_scan, pin_table
from tests.spark.beside import published
from tests.spark.rows_read import rows_read
from tests.support.real_table import POSITIONS, ListedTable, listed, own_catalog

ENGINES = ("iceberg", "files", "sfn")


def ids(spark: SparkSession, directory: str, engine: str, row_filter: str | None = None) -> list[int]:
    rows = sfn.spark.read(spark, directory, engine=engine, row_filter=row_filter)
    return sorted(row.id for row in rows.collect())


@pytest.mark.parametrize(("version", "kind"), [(2, "DOUBLE"), (3, "FLOAT")])
def test_rows_of_a_partition_by_nan_stay_deleted(
    spark: SparkSession, catalog: RestCatalogServer, kind: str, version: int
) -> None:
    name = f"planned.nan_{kind}{version}".lower()
    # One delete file for both data files, so that it is found by the partition and not by a path.
    properties = (
        f"'format-version' = '{version}', 'write.delete.mode' = 'merge-on-read', "
        "'write.delete.granularity' = 'partition'"
    )
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.planned")
    columns = f"id BIGINT, x {kind}"
    spark.sql(f"CREATE TABLE lake.{name} ({columns}) USING iceberg PARTITIONED BY (x) TBLPROPERTIES ({properties})")
    for first in (1, 4):
        nan = f"CAST('NaN' AS {kind})"
        rows = ", ".join(f"({number}, {nan})" for number in range(first, first + 3))
        spark.sql(f"INSERT INTO lake.{name} VALUES {rows}")
    spark.sql(f"DELETE FROM lake.{name} WHERE id IN (2, 5)")
    with catalog.client() as client:
        directory = published(client, name)
    for engine in ENGINES:
        assert ids(spark, directory, engine) == [1, 3, 4, 6], engine
    assert sorted(sfn.read(directory)["id"].to_pylist()) == [1, 3, 4, 6]
    assert ids(spark, directory, "files", "x is nan") == [1, 3, 4, 6]
    view = sfn.spark.view(spark, directory, "partitions")
    assert [row.file_count for row in view.collect()] == [2]


def upserted(folder: Path, content: DataFileContent) -> ListedTable:
    """A table whose row 1 is deleted; the delete file has statistics of another value of `x` than that row."""
    with own_catalog(folder) as catalog:
        made = listed(catalog, types.StringType(), None)
        (path,) = made.data(("1.parquet", {"id": [1, 2], "x": ["new", "old"]}, Record()))
        bounds = {"lower_bounds": {2: b"zzz"}, "upper_bounds": {2: b"zzz"}}
        if content is DataFileContent.EQUALITY_DELETES:
            rows = pa.table(
                {"id": [1], "x": ["zzz"]},
                schema=pa.schema(
                    [
                        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
                        pa.field("x", pa.string(), metadata={"PARQUET:field_id": "2"}),
                    ]
                ),
            )
            made.deletes("d.parquet", rows, Record(), content, equality_ids=[1], **bounds)
        else:
            made.deletes("d.parquet", pa.table([[path], [0]], schema=POSITIONS), Record(), content, **bounds)
    return made


@pytest.mark.parametrize("content", [DataFileContent.EQUALITY_DELETES, DataFileContent.POSITION_DELETES])
def test_no_engine_of_ours_lets_a_filter_hide_a_delete(
    spark: SparkSession, tmp_path: Path, content: DataFileContent
) -> None:
    directory = upserted(tmp_path, content).directory
    if content is DataFileContent.EQUALITY_DELETES:
        for engine in ("files", "sfn"):
            with pytest.raises(NotSupported, match="equality deletes"):
                ids(spark, directory, engine, "x = 'new'")
        with pytest.raises(NotSupported, match="equality deletes"):
            rows_read(directory, [spark_filters.EqualTo(("x",), "new")])
    else:
        # Version 1.11 of Iceberg's own library overlooks the delete: docs/spark/reading.md says so.
        assert ids(spark, directory, "iceberg") == [2]
        assert ids(spark, directory, "iceberg", "x = 'new'") == [1]
        assert ids(spark, directory, "files", "x = 'new'") == ids(spark, directory, "sfn", "x = 'new'") == []
        # Spark compares the rows afterwards.
        assert [row["id"] for row in rows_read(directory, [spark_filters.EqualTo(("x",), "new")])] == [2]


@pytest.fixture(name="old", scope="module")
def fixture_old(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a table partitioned by year. One of its years is rounded as old writers rounded."""
    with own_catalog(tmp_path_factory.mktemp("old")) as catalog:
        made = listed(catalog, types.DateType(), YearTransform(), version=1)
        made.data(("0.parquet", {"id": [0], "x": [-2]}, Record(-1)))
        made.data(("1.parquet", {"id": [1], "x": [-1]}, Record(0)), ("2.parquet", {"id": [2], "x": [400]}, Record(1)))
        return made.directory


def test_a_rounded_year_is_found_by_a_filter(spark: SparkSession, old: str) -> None:
    for engine in ENGINES:
        assert ids(spark, old, engine, "x < '1970-01-01'") == [0, 1], engine
    offered = spark_filters.LessThan(("x",), date(1970, 1, 1))
    assert sorted(row["id"] for row in rows_read(old, [offered])) == [0, 1]


def test_a_rounded_year_is_found_among_what_was_appended(old: str) -> None:
    what = make_read_request(old)
    now = pin_table(what)
    assert now.snapshot is not None
    start = now.snapshot.parent_snapshot_id
    settled = pin_appended_scan(what, now, start, snapshots_between(start, now, only_appends=False))
    before = LessThan(term=Reference("x"), value=DateLiteral(0))
    assert [Path(task.file.file_path).name for task in plan_scan(settled, before)] == ["1.parquet"]
    assert len(plan_scan(settled)) == 2
