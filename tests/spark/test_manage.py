"""Tables that Spark has come under Iceberg's management: in place or as a snapshot, or not at all."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import Row, SparkSession

import sfn.spark
from sfn.demo.environment import RestCatalogServer
from sfn.errors import NotInstalled, NotSupported
from sfn.sfnfile.locations import canonical
from sfn.spark.manage_table import ManagedTable, finish_management
from sfn.spark.manage_target import (
    HalfManaged,
    MappingField,
    TargetTable,
    Transform,
    Unmanageable,
    check_extensions,
    check_session,
)
from tests.spark.tables import error_text, publish, read_rows

COLUMNS: Final = "id INT, order_ts TIMESTAMP, customer_id BIGINT, place STRUCT<city: STRING>, region STRING"
ROWS: Final = (
    "(1, TIMESTAMP'2026-01-01 10:00:00', 11, named_struct('city', 'Ulm'), 'north'), "
    "(2, TIMESTAMP'2026-02-01 10:00:00', 12, NULL, 'so/u th'), (3, NULL, NULL, named_struct('city', NULL), 'north')"
)
PAGE: Final = Path(__file__).parents[2] / "docs" / "spark" / "manage.md"
MAPPINGS: Final = "order_ts=days, customer_id=bucket[8]"
HTML: Final = re.compile(r"<tr><th>([^<]*)</th><td>([^<]*)</td></tr>")

Make = Callable[..., Path]


@pytest.fixture(name="own", scope="module")
def fixture_own(spark: SparkSession, catalog: RestCatalogServer) -> SparkSession:
    """A session whose own catalog is Iceberg's, with a database there as in the catalog."""
    session = spark.newSession()
    key = "spark.sql.catalog.spark_catalog"
    session.conf.set(key, "org.apache.iceberg.spark.SparkSessionCatalog")
    session.conf.set(f"{key}.type", "rest")
    session.conf.set(f"{key}.uri", catalog.uri)
    session.sql("CREATE NAMESPACE lake.managing")
    session.sql("CREATE DATABASE managing")
    return session


@pytest.fixture(name="make")
def fixture_make(own: SparkSession, tmp_path: Path) -> Iterator[Make]:
    """An external table of that database, with rows; where it lies."""
    made: list[str] = []

    def make(name: str, using: str = "parquet", columns: str = COLUMNS, rows: str = ROWS, by: str = "") -> Path:
        place = tmp_path / name
        own.sql(f"CREATE TABLE managing.{name} ({columns}) USING {using} {by} LOCATION '{place.as_uri()}'")
        own.sql(f"INSERT INTO managing.{name} VALUES {rows}")
        made.append(name)
        return place

    yield make
    for name in made:
        own.sql(f"DROP TABLE IF EXISTS managing.{name}")
        own.sql(f"DROP TABLE IF EXISTS managing.{name}_backup_")


def rows(session: SparkSession, table: str) -> list[Row]:
    return session.sql(f"SELECT * FROM {table} ORDER BY id").collect()


def data_files(session: SparkSession, table: str) -> list[Path]:
    return [
        Path(canonical(row.file_path).removeprefix("file://")) for row in session.sql(f"TABLE {table}.files").collect()
    ]


def written(file: Path) -> tuple[int, int]:
    """What another file has otherwise that has the same name."""
    found = file.stat()
    return found.st_ino, found.st_mtime_ns


def html_rows(found: ManagedTable) -> dict[str, str]:
    return dict(HTML.findall(found._repr_html_()))


def test_in_place_rows_and_files_stay_and_new_ones_are_partitioned(
    spark: SparkSession, own: SparkSession, catalog: RestCatalogServer, make: Make
) -> None:
    place = make("orders", by="PARTITIONED BY (region)")
    files = {file: written(file) for file in place.rglob("*.parquet")}
    before = rows(own, "managing.orders")
    # Without statistics no file is left out but by its partition.
    properties = {"write.metadata.metrics.default": "none", "its": "owner's \\ own"}
    found = sfn.spark.manage(own, "managing.orders", MAPPINGS, properties=properties)
    assert found.table == "spark_catalog.managing.orders"
    assert canonical(found.location) == f"file://{place}"
    assert found.partition_fields == ("region=identity", "order_ts=day", "customer_id=bucket[8]")
    assert (found.data_files, found.backup) == (len(files), "spark_catalog.managing.orders_backup_")
    assert html_rows(found)["partition fields"] == "region=identity, order_ts=day, customer_id=bucket[8]"
    assert rows(own, "managing.orders") == before
    assert set(data_files(own, "managing.orders")) == set(files)

    own.sql("INSERT INTO managing.orders VALUES (4, TIMESTAMP'2026-03-01 10:00:00', 5, NULL, 'north')")
    own.sql("INSERT INTO managing.orders VALUES (5, TIMESTAMP'2026-04-01 10:00:00', 5, NULL, 'north')")
    assert {file: written(file) for file in files} == files
    assert rows(own, "managing.orders")[:3] == before
    first = own.sql("SELECT snapshot_id FROM managing.orders.snapshots ORDER BY committed_at").first()
    assert first is not None
    assert rows(own, f"managing.orders VERSION AS OF {first.snapshot_id}") == before
    with catalog.client() as client:
        table = client.load_table("managing.orders")
        assert table.metadata.properties.items() >= properties.items()
        scan = table.scan(row_filter="order_ts >= '2026-04-01T00:00:00+00:00' and region = 'north'")
        new = {task.file.file_path for task in scan.plan_files()} - {file.as_uri() for file in files}
        # Files of before are read all the same: they have no day.
        (path,) = (path for path in new if "/data/" in path)
        assert "/region=north/order_ts_day=2026-04-01/customer_id_bucket_8=" in path
        directory = publish(client, "managing.orders")
    now = rows(own, "managing.orders")
    assert sorted(sfn.spark.read(spark, directory, engine="iceberg").collect()) == now
    assert sorted(row["id"] for row in read_rows(directory)) == [row.id for row in now]
    text = error_text(NotSupported, lambda: sfn.spark.read(spark, directory, engine="files"))
    assert "found a file without field ids, which a name mapping is for; engine='iceberg' reads" in text


def test_in_place_rows_are_written_anew_and_the_backup_is_dropped_if_asked(own: SparkSession, make: Make) -> None:
    place = make("rewritten")
    files = list(place.glob("*.parquet"))
    before = rows(own, "managing.rewritten")
    found = sfn.spark.manage(own, "managing.rewritten", {"order_ts": ["months"]}, rewrite=True, drop_backup=True)
    assert (found.partition_fields, found.backup) == (("order_ts=month",), None)
    assert rows(own, "managing.rewritten") == before
    months = {file.parent.name for file in data_files(own, "managing.rewritten")}
    assert months == {"order_ts_month=2026-01", "order_ts_month=2026-02", "order_ts_month=null"}
    assert not own.catalog.tableExists("managing.rewritten_backup_")
    assert all(file.is_file() for file in files)


@pytest.mark.usefixtures("own")
def test_a_snapshot_leaves_the_table_alone(spark: SparkSession, tmp_path: Path) -> None:
    # Of such a session, too, whose own catalog is Spark's; and of a table that Spark moves and deletes.
    spark.sql("CREATE TABLE managing.kept USING orc AS SELECT 1 AS id, 'apple' AS item, DATE'2026-01-01' AS day")
    before, place = rows(spark, "managing.kept"), tmp_path / "apart"
    files = spark.table("managing.kept").inputFiles()
    found = sfn.spark.manage(
        spark, "managing.kept", "item=truncate[2]", snapshot_as="lake.managing.`a snapshot`", location=place.as_uri()
    )
    assert (found.table, found.backup, found.data_files) == ("lake.managing.`a snapshot`", None, 1)
    assert found.partition_fields == ("item=truncate[2]",)
    assert rows(spark, "lake.managing.`a snapshot`") == before
    assert [file.as_uri() for file in data_files(spark, "lake.managing.`a snapshot`")] == [
        canonical(file) for file in files
    ]
    again = sfn.spark.manage(spark, "managing.kept", "day=year", snapshot_as="lake.managing.copied", rewrite=True)
    assert again.partition_fields == ("day=year",)
    assert rows(spark, "managing.kept") == before
    spark.sql("DROP TABLE managing.kept")
    assert rows(spark, "lake.managing.copied") == before


def unmanageable_text(action: Callable[[], object]) -> str:
    return error_text(Unmanageable, action)


def test_what_can_not_come_under_management_is_told(
    spark: SparkSession, own: SparkSession, make: Make, tmp_path: Path
) -> None:
    def error(table: str, mappings: str = "", session: SparkSession = own, **more: Any) -> str:  # noqa: ANN401 - any
        return unmanageable_text(lambda: sfn.spark.manage(session, table, mappings, **more))

    make("t", by="PARTITIONED BY (region)")
    make("backed")
    make("backed_backup_")
    make("timely", using="orc", columns="at ARRAY<TIMESTAMP>, other STRUCT<timestamp: INT>", rows="(NULL, NULL)")
    make("texts", using="json")
    spark.sql("CREATE VIEW managing.v AS SELECT 1 AS id")
    own.sql("CREATE TEMPORARY VIEW shortly AS SELECT 1 AS id")
    own.sql("CREATE TABLE managing.moved USING parquet AS SELECT 1 AS id")
    own.sql("CREATE TABLE lake.managing.there (id INT) USING iceberg")
    tables = sorted(own.sql("SHOW TABLES IN managing").collect())

    assert "SHOW TABLES lists; a name without a catalog and database is looked up in spark_catalog.default" in error(
        "managing.none"
    )
    assert "PARSE_SYNTAX_ERROR" in error("managing t")
    assert error("managing.v").endswith("found a view; take the table that it reads")
    assert error("shortly").endswith("found a temporary view; take the table that it reads")
    assert "expected a table that is not Iceberg's yet, found one that is; add partition" in error(
        "lake.managing.there"
    )
    assert "USING parquet, orc or avro, found one of spark_catalog USING json; copy it" in error("managing.texts")
    assert "found at in orc, where Iceberg can't read such times as Spark writes them" in error("managing.timely")
    assert "(MANAGED); give snapshot_as and rewrite=True, or recreate it with LOCATION" in error("managing.moved")
    assert "expected no table `spark_catalog`.`managing`.`backed_backup_` yet" in error("managing.backed")
    text = error("managing.t", "ordr_ts=days, id=hours, region=bucket[4], place.city=explode")
    assert "found ordr_ts=days: no such column, did you mean order_ts?; id=hours: int takes identity," in text
    assert "region=bucket[4]: the table is partitioned by this column already, leave it out or take id, order" in text
    assert "place.city=explode: a mapping is 1-1, identity, or n-1, bucket[N]," in text
    key = "spark.sql.catalog.spark_catalog"
    text = error("managing.t", session=spark)
    assert "found Spark's own; set " in text
    assert f"{key}=org.apache.iceberg.spark.SparkSessionCatalog, {key}.type=rest and {key}.uri=" in text

    assert "found lakes; did you mean lake?" in error("managing.t", snapshot_as="lakes.managing.s")
    assert "; CREATE NAMESPACE `lake`.`nowhere`" in error("managing.t", snapshot_as="lake.nowhere.s")
    assert "no table `lake`.`managing`.`there` yet" in error("managing.t", snapshot_as="lake.managing.there")
    for place in (tmp_path, tmp_path / "t", tmp_path / "t" / "in"):
        assert f"found {place}; give another" in error("managing.t", snapshot_as="lake.managing.s", location=str(place))
    assert sorted(own.sql("SHOW TABLES IN managing").collect()) == tables
    own.sql("DROP TABLE managing.moved")
    spark.sql("DROP VIEW managing.v")


def test_arguments_that_contradict_each_other_are_told(own: SparkSession, make: Make) -> None:
    def error(**more: Any) -> str:  # noqa: ANN401 - any
        return error_text(ValueError, lambda: sfn.spark.manage(own, "managing.t", **more))

    make("t", columns="id INT", rows="(1)")
    assert error(location="/x").startswith("location needs snapshot_as")
    assert error(snapshot_as="lake.managing.s", drop_backup=True).startswith("either snapshot_as or drop_backup")
    for name in ("managing.s", "lake.managing.s t", "lake.managing.s.", ""):
        assert error(snapshot_as=name) == f"snapshot_as is catalog.namespace.table: {name!r}"


def test_a_session_without_icebergs_extensions_is_told(spark: SparkSession) -> None:
    for found in ("", "org.example.Extensions"):
        text = error_text(NotInstalled, partial(check_extensions, found))
        assert text.endswith(
            "; start the session with spark.sql.extensions="
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions; it can't be set later"
        )
    check_session(spark)


def test_a_table_that_iceberg_does_not_take_is_as_it_was(own: SparkSession, tmp_path: Path) -> None:
    """The catalog lacks a namespace that Spark has."""
    own.sql("CREATE DATABASE spark_alone")
    own.sql(f"CREATE TABLE spark_alone.t USING parquet LOCATION '{(tmp_path / 't').as_uri()}' AS SELECT 1 AS id")
    text = unmanageable_text(lambda: sfn.spark.manage(own, "spark_alone.t"))
    assert "NoSuchNamespaceException: Cannot create table spark_alone.t" in text
    assert text.endswith("nothing was changed: fix that, and try again")
    assert [row.id for row in rows(own, "spark_alone.t")] == [1]
    own.sql("DROP DATABASE spark_alone CASCADE")


def test_rows_that_iceberg_does_not_see_are_told(own: SparkSession, make: Make) -> None:
    place = make("deep", columns="id INT", rows="(1)", by="OPTIONS (recursiveFileLookup 'true')")
    own.range(3).selectExpr("CAST(id AS INT) AS id").coalesce(1).write.parquet(str(place / "within"))
    own.sql("REFRESH TABLE managing.deep")
    text = error_text(HalfManaged, lambda: sfn.spark.manage(own, "managing.deep", snapshot_as="lake.managing.deep"))
    assert "expected all 2 files that Spark reads taken over, found 1, now in `lake`.`managing`.`deep`" in text
    assert f"folders within file:{place}; go back: DROP TABLE `lake`.`managing`.`deep`; then move" in text


def undone(session: SparkSession, error: HalfManaged) -> None:
    """Do what an error says to go back."""
    found = re.search(r"or go back: (DROP TABLE \S+), remove file:(\S+), (ALTER TABLE .*)", error.remedy)
    assert found is not None
    session.sql(found[1])
    shutil.rmtree(found[2], ignore_errors=True)
    session.sql(found[3])


def test_what_is_half_done_is_told_with_the_way_on_and_back(own: SparkSession, make: Make) -> None:
    make("half")
    before = rows(own, "managing.half")
    with pytest.raises(HalfManaged) as half:
        # Nobody can write there, as after a permission that was taken back.
        sfn.spark.manage(
            own, "managing.half", MAPPINGS, rewrite=True, properties={"write.data.path": "file:///dev/null/x"}
        )
    assert "; `spark_catalog`.`managing`.`half` is an Iceberg table now, with all rows; run CALL " in str(half.value)
    assert "system.rewrite_data_files(table => '`spark_catalog`.`managing`.`half`'" in half.value.remedy
    assert rows(own, "managing.half") == before
    # What is written in the meantime is partitioned, and Spark can't tell it from partitions of its own.
    own.sql("ALTER TABLE managing.half UNSET TBLPROPERTIES ('write.data.path')")
    own.sql("INSERT INTO managing.half VALUES (4, TIMESTAMP'2026-03-01 10:00:00', 5, NULL, 'north')")
    undone(own, half.value)
    assert rows(own, "managing.half") == before

    found = sfn.spark.manage(own, "managing.half")
    target = TargetTable("managing.half", "managing.half", "migrate", {}, "", found.backup)
    lost = [MappingField(("gone",), Transform("day")), MappingField(("customer_id",), Transform("bucket", 8))]
    with pytest.raises(HalfManaged, match=r"Cannot find field 'gone'.*; run ALTER TABLE .* days\(`gone`\), ALTER .*"):
        finish_management(own, target, lost, rewrite=False, drop_backup=False)


def test_the_pages_example_does_what_it_says(own: SparkSession, make: Make) -> None:
    make("legacy_orders")
    make("legacy_returns")
    (block,) = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"sfn": sfn, "spark": own}
    exec(block.replace("sales.", "managing."), names)  # noqa: S102 - it is ours
    assert names["orders"].partition_fields == ("order_ts=day", "customer_id=bucket[8]")
    assert names["tried"].table == "lake.managing.returns"
    assert rows(own, "managing.legacy_returns") == rows(own, "lake.managing.returns")
