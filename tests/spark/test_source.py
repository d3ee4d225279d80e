"""The data source `sfn` and the engine of that name: what Iceberg's own library gives, or a refusal."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

import sfn.spark
from sfn.demo.environment import RestCatalogServer
from sfn.errors import NotSupported
from sfn.spark.engine_sfn import PINNED_OPTION, SfnLoad
from sfn.spark.source_options import STORAGE
from tests.spark.beside import published
from tests.spark.rows_read import rows_read
from tests.support.real_table import RealTable, real_table

TYPES = """
  b BOOLEAN, i INT NOT NULL, l BIGINT, f FLOAT, d DOUBLE, small DECIMAL(9, 2), big DECIMAL(38, 10), day DATE,
  at TIMESTAMP, local TIMESTAMP_NTZ, s STRING, raw BINARY, st STRUCT<a: INT NOT NULL, b: STRUCT<c: STRING>>,
  li ARRAY<STRING>, deep ARRAY<STRUCT<x: BIGINT, y: ARRAY<INT>>>, ma MAP<STRING, STRUCT<z: DOUBLE>>
"""
VALUES = """
  id % 2 = 0, INT(id), id, FLOAT(id) / 3, id / 7, DECIMAL(id), DECIMAL(id), DATE_ADD(DATE '2026-01-01', INT(id)),
  TIMESTAMP_MILLIS(id * 777), TIMESTAMP_NTZ '2026-01-01 00:00:00', 's' || id, BINARY('b' || id),
  IF(id % 3 = 0, NULL, NAMED_STRUCT('a', INT(id), 'b', NAMED_STRUCT('c', STRING(id)))), ARRAY('p', NULL),
  IF(id % 4 = 0, NULL, ARRAY(NAMED_STRUCT('x', id, 'y', ARRAY(1)), NULL)),
  IF(id % 5 = 0, NULL, MAP('k', NAMED_STRUCT('z', DOUBLE(id))))
"""


@pytest.fixture(name="made", scope="module")
def fixture_made(tmp_path_factory: pytest.TempPathFactory) -> RealTable:
    return real_table(tmp_path_factory.mktemp("made"))


@pytest.fixture(autouse=True, scope="module")
def fixture_namespace(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE lake.source")


def shown(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


def test_every_type_is_what_iceberg_makes_of_it(spark: SparkSession, catalog: RestCatalogServer) -> None:
    spark.sql(f"CREATE TABLE lake.source.types ({TYPES}) USING iceberg")
    spark.sql(f"INSERT INTO lake.source.types SELECT {VALUES} FROM RANGE(0, 20, 1, 2)")
    spark.sql("INSERT INTO lake.source.types (i) VALUES (99)")
    with catalog.client() as client:
        directory = published(client, "source.types")
    found = sfn.spark.read(spark, directory, engine="sfn")
    expected = spark.table("lake.source.types")
    assert found.schema == expected.schema
    assert shown(found) == shown(expected)


@pytest.mark.parametrize("version", [2, 3])
def test_deleted_rows_are_not_read(version: int, spark: SparkSession, catalog: RestCatalogServer) -> None:
    name = f"source.deletes{version}"
    properties = f"'format-version' = '{version}', 'write.delete.mode' = 'merge-on-read'"
    spark.sql(f"CREATE TABLE lake.{name} (id BIGINT, s STRING) USING iceberg TBLPROPERTIES ({properties})")
    spark.sql(f"INSERT INTO lake.{name} SELECT id, 'a' FROM RANGE(0, 1000, 1, 1)")
    spark.sql(f"DELETE FROM lake.{name} WHERE id % 3 = 0")
    spark.sql(f"ALTER TABLE lake.{name} RENAME COLUMN s TO t")
    spark.sql(f"ALTER TABLE lake.{name} ADD COLUMN s INT")
    spark.sql(f"DELETE FROM lake.{name} WHERE id = 500")
    with catalog.client() as client:
        directory = published(client, name)
    found = rows_read(directory)
    assert sorted(row["id"] for row in found) == [number for number in range(1000) if number % 3 and number != 500]
    assert {(row["t"], row["s"]) for row in found} == {("a", None)}


def test_equality_deletes_are_refused(spark: SparkSession, catalog: RestCatalogServer) -> None:
    spark.sql("CREATE TABLE lake.source.equality (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    spark.sql("INSERT INTO lake.source.equality VALUES (1)")
    jvm = spark._jvm  # noqa: SLF001 - only the JVM's library writes such deletes
    assert jvm is not None
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, "lake.source.equality")  # noqa: SLF001 - as above
    ids = spark.sparkContext._gateway.new_array(jvm.int, 1)  # type: ignore[union-attr]  # noqa: SLF001 - as above
    ids[0] = 1
    delete = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.spec()).ofEqualityDeletes(ids)
    file = delete.withPath(f"{table.location()}/data/none.parquet").withFileSizeInBytes(1).withRecordCount(1).build()
    table.newRowDelta().addDeletes(file).commit()
    with catalog.client() as client:
        directory = published(client, "source.equality")
    with pytest.raises(NotSupported, match=r"found equality deletes; read it with engine='iceberg'"):
        sfn.spark.read(spark, directory, engine="sfn")


def test_filters_are_taken_where_the_session_has_that_on(spark: SparkSession, tmp_path: Path) -> None:
    made = real_table(tmp_path)
    frame = spark.read.format("sfn").load(made.directory).where(col("day") == "2026-11-01")
    assert [row.id for row in frame.collect()] == [1]
    next(made.place.path.rglob("day=2026-11-02/*.parquet")).unlink()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pruned = spark.read.format("sfn").load(made.directory).where(col("day") == "2026-11-01")
        assert [row.id for row in pruned.collect()] == [1]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_the_state_is_settled_when_the_frame_is_made(spark: SparkSession, tmp_path: Path) -> None:
    made = real_table(tmp_path)
    frame = spark.read.format("sfn").option("columns", "ID").load(made.directory)
    for file in made.place.path.glob("metadata/*.metadata.json"):
        file.unlink()
    made.place.sfn_file("sales.orders").unlink()
    assert sorted(row.id for row in frame.collect()) == [1, 2]


def test_a_schema_chooses_columns(spark: SparkSession, made: RealTable) -> None:
    frame = spark.read.format("sfn").schema("day STRING, id BIGINT").load(made.directory)
    assert frame.columns == ["day", "id"]
    assert sorted(map(tuple, frame.collect())) == [("2026-11-01", 1), ("2026-11-02", 2)]
    with pytest.raises(AnalysisException, match=r"id is of type bigint, not string"):
        spark.read.format("sfn").schema("id STRING").load(made.directory).collect()


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({}, {1, 2}),
        ({"ref": "audit"}, {1, 3}),
        ({"asOf": "v1"}, {1}),
        ({"asof": "{tagged}"}, {1}),
        ({"asOf": "{later}"}, {1, 2}),
        ({"asOf": "20991231T235959000"}, {1, 2}),
        ({"table": "sales.orders", "columns": '["id"]'}, {1, 2}),
    ],
)
def test_a_state_is_named_as_in_read(options: dict[str, str], ids: set[int], made: RealTable) -> None:
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()  # noqa: TID251 - the table was written just now
    told = {name: value.format(tagged=made.tagged, later=later) for name, value in options.items()}
    assert {row["id"] for row in rows_read(made.directory, (), **told)} == ids


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"colums": "id"}, "'colums' is none; did you mean columns?"),
        ({"ASOFF": "1"}, "'ASOFF' is none; did you mean asOf?"),
        ({"columns": "ids"}, "'ids' is none; did you mean id?"),
        ({"columns": "id, id"}, "each column once"),
        ({"ref": "audit", "asOf": "v1"}, "either ref or as_of"),
        ({"asOf": "2026-11-25T12:00:00"}, "a time zone"),
        ({"storageOptions": "{}"}, "'storageOptions' is none; did you mean secretStorageOptions?"),
        ({"secretStorageOptions": "[]"}, "a JSON object, not list"),
        ({"secretStorageOptions": "{'anon': True}"}, "a JSON object, as json.dumps writes it"),
        ({"filterPushdown": "yes"}, "true or false"),
    ],
)
def test_an_option_that_is_none_is_told(options: dict[str, str], said: str, made: RealTable) -> None:
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        rows_read(made.directory, (), **options)


@pytest.mark.parametrize(("source", "option"), [("sfn", STORAGE), ("sfn", PINNED_OPTION), ("sfn-log", STORAGE)])
def test_what_a_driver_is_given_is_in_no_plan(source: str, option: str, spark: SparkSession, made: RealTable) -> None:
    told = {"path": made.directory, option: '{"key": "hushed"}'}
    options = ", ".join(f"{name} '{value}'" for name, value in told.items())
    view = f"CREATE TEMPORARY VIEW plans_none USING `{source}` OPTIONS ({options})"
    plans: list[object] = [spark.sql(f"EXPLAIN {kind} {view}").head() for kind in ("FORMATTED", "EXTENDED")]
    if option == PINNED_OPTION:
        frame = sfn.spark.read(spark, made.directory, engine="sfn", storage_options={"key": "hushed"})
    else:
        frame = spark.read.format(source).options(**told).load()
    state = frame._jdf.queryExecution()  # noqa: SLF001 - what Spark's own pages and its log of events show
    modes = spark._jvm.org.apache.spark.sql.execution.ExplainMode  # type: ignore[union-attr]  # noqa: SLF001 - as above
    plans += [state.explainString(modes.fromString(one)) for one in ("formatted", "extended")]
    text = "\n".join(map(str, plans))
    assert f"{option} -> *********(redacted)" in text
    assert "hushed" not in text


def test_without_a_path_there_is_nothing_to_read() -> None:
    with pytest.raises(ValueError, match="load\\(directory\\)"):
        SfnLoad({})


def test_what_is_missing_is_told_to_those_alone_who_use_it(tmp_path: Path) -> None:
    for module in ("pyspark_sfn", "pyspark_sfn_log"):
        source = Path(sfn.__file__).parents[1] / f"{module}.py"
        (tmp_path / f"{module}.py").write_bytes(source.read_bytes())
    script = (
        "import sys; sys.modules['sfn'] = None; sys.path.insert(0, sys.argv[1])\n"
        "import pyspark_sfn, pyspark_sfn_log\n"
        "for one in (pyspark_sfn, pyspark_sfn_log):\n"
        "    assert one.__file__.startswith(sys.argv[1])\n"
        "    try: one.DefaultSource({'path': '/'})\n"
        "    except ImportError as error: print(error)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [line.split(" lacks")[0] for line in said] == ['format("sfn")', 'format("sfn-log")']
    assert all("set PYSPARK_PYTHON" in line and sys.executable in line for line in said)
