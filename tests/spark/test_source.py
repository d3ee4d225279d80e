"""The data source `sfn` and the engine of that name: what Iceberg's own library gives, or a refusal."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_json
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimeType,
    UUIDType,
)
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as spark_filters
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType as SparkLong
from pyspark.sql.types import StringType as SparkString

import sfn.spark
from sfn.demo.environment import RestCatalogServer
from sfn.errors import NotSupported, Unsafe
from sfn.reader.data_file import Projection
from sfn.spark.arrow_types import spark_schema
from sfn.spark.engine_sfn import PINNED_OPTION, PartitionFiles, SfnLoad, group_tasks
from sfn.spark.source_options import STORAGE
from tests.spark.tables import files_per_task, own_catalog, publish, read_rows, write_sfn_file
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


@pytest.fixture(name="namespace", scope="module")
def fixture_namespace(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE lake.source")


def row_texts(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


@pytest.mark.usefixtures("namespace")
def test_every_type_is_what_iceberg_makes_of_it(spark: SparkSession, catalog: RestCatalogServer) -> None:
    spark.sql(f"CREATE TABLE lake.source.types ({TYPES}) USING iceberg")
    spark.sql(f"INSERT INTO lake.source.types SELECT {VALUES} FROM RANGE(0, 20, 1, 2)")
    spark.sql("INSERT INTO lake.source.types (i) VALUES (99)")
    with catalog.client() as client:
        directory = publish(client, "source.types")
    found = sfn.spark.read(spark, directory, engine="sfn")
    expected = spark.table("lake.source.types")
    assert found.schema == expected.schema
    assert row_texts(found) == row_texts(expected)
    # Sessions of users compile their plans, that of the tests does not.
    compiled = {"spark.sql.codegen.factoryMode": "CODEGEN_ONLY", "spark.sql.codegen.wholeStage": "true"}
    interpreted = {name: str(spark.conf.get(name)) for name in compiled}
    try:
        for name, choice in compiled.items():
            spark.conf.set(name, choice)
        assert row_texts(sfn.spark.read(spark, directory, engine="sfn")) == row_texts(expected)
    finally:
        for name, choice in interpreted.items():
            spark.conf.set(name, choice)


@pytest.mark.usefixtures("namespace")
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
        directory = publish(client, name)
    found = read_rows(directory)
    assert sorted(row["id"] for row in found) == [number for number in range(1000) if number % 3 and number != 500]
    assert {(row["t"], row["s"]) for row in found} == {("a", None)}


@pytest.mark.usefixtures("namespace")
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
        directory = publish(client, "source.equality")
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
    options = {name: value.format(tagged=made.tagged, later=later) for name, value in options.items()}
    assert {row["id"] for row in read_rows(made.directory, (), **options)} == ids


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
        read_rows(made.directory, (), **options)


@pytest.mark.parametrize(("source", "option"), [("sfn", STORAGE), ("sfn", PINNED_OPTION), ("sfn-log", STORAGE)])
def test_what_a_driver_is_given_is_in_no_plan(source: str, option: str, spark: SparkSession, made: RealTable) -> None:
    given = {"path": made.directory, option: '{"key": "hushed"}'}
    options = ", ".join(f"{name} '{value}'" for name, value in given.items())
    view = f"CREATE TEMPORARY VIEW plans_none USING `{source}` OPTIONS ({options})"
    plans: list[object] = [spark.sql(f"EXPLAIN {kind} {view}").head() for kind in ("FORMATTED", "EXTENDED")]
    if option == PINNED_OPTION:
        frame = sfn.spark.read(spark, made.directory, engine="sfn", storage_options={"key": "hushed"})
    else:
        frame = spark.read.format(source).options(**given).load()
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


NAN = math.nan
NUMBERS = [None, 1.0, 2.0, NAN]


@pytest.fixture(name="own")
def fixture_own(tmp_path: Path) -> Iterator[SqlCatalog]:
    with own_catalog(tmp_path) as own:
        yield own


@pytest.fixture(name="numbers", scope="module")
def fixture_numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    days = [date(2026, 1, number) for number in (1, 2, 3)]
    deep = pa.array([{"inner": 1}, {"inner": 2}, None, None])
    part = pa.table({"x": pa.array(NUMBERS), "s": ["a", "a", "b", None], "day": [*days, None], "deep": deep})
    with own_catalog(tmp_path_factory.mktemp("numbers")) as own:
        yield write_table(own, part)


def write_table(own: SqlCatalog, *parts: pa.Table) -> str:
    table = own.create_table("n.t", parts[0].schema)
    for part in parts:
        table.append(part)
    return write_sfn_file(table, "n.t")


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([spark_filters.EqualTo(("x",), 1.0)], [1.0]),
        ([spark_filters.EqualTo(("x",), NAN)], NUMBERS),
        ([spark_filters.GreaterThan(("x",), 1.0)], NUMBERS),
        ([spark_filters.GreaterThanOrEqual(("x",), 2.0)], NUMBERS),
        ([spark_filters.LessThan(("x",), 2.0)], [1.0]),
        ([spark_filters.Not(spark_filters.LessThan(("x",), 2.0))], NUMBERS),
        ([spark_filters.IsNull(("x",))], [None]),
        ([spark_filters.Not(spark_filters.EqualNullSafe(("x",), 1.0))], NUMBERS),
        ([spark_filters.EqualNullSafe(("x",), None)], [None]),
        ([spark_filters.IsNotNull(("x",)), spark_filters.StringContains(("s",), "a")], [1.0, 2.0, NAN]),
        ([spark_filters.Not(spark_filters.EqualNullSafe(("s",), "a"))], NUMBERS),
        ([spark_filters.Not(spark_filters.EqualTo(("s",), "a"))], [2.0]),
        ([spark_filters.In(("s",), ("a", "z"))], [None, 1.0]),
        ([spark_filters.In(("s",), ("a", None))], NUMBERS),
        ([spark_filters.StringStartsWith(("s",), "b")], [2.0]),
        ([spark_filters.EqualTo(("s",), 7)], NUMBERS),
        ([spark_filters.EqualTo(("day",), date(2026, 1, 3))], [2.0]),
        ([spark_filters.EqualTo(("deep", "inner"), 1)], NUMBERS),
    ],
)
def test_no_row_is_left_out_that_spark_would_keep(
    filters: list[spark_filters.Filter], kept: list[float | None], numbers: str
) -> None:
    found = [row["x"] for row in read_rows(numbers, filters)]
    assert repr(sorted(found, key=repr)) == repr(sorted(kept, key=repr))


def test_files_that_can_have_no_such_row_are_not_opened(own: SqlCatalog) -> None:
    directory = write_table(own, *(pa.table({"id": [number]}) for number in range(4)))
    rows = SfnLoad({"path": directory})
    reader = rows.reader(rows.schema())
    reader.pushFilters([spark_filters.GreaterThan(("id",), 1)])
    (only,) = reader.partitions()
    assert isinstance(only, PartitionFiles)
    assert len(only.tasks) == 2
    assert files_per_task(directory, filterPushdown="false") == [4]


def test_null_is_no_empty_list_or_map(own: SqlCatalog) -> None:
    struct = pa.struct([("a", pa.int32())])
    part = pa.table(
        {
            "li": pa.array([None, [], [None, {"a": 1}]], pa.list_(struct)),
            "ma": pa.array([None, [], [("k", {"a": 1})]], pa.map_(pa.string(), struct)),
            "st": pa.array([None, {"a": None}, {"a": 1}], struct),
        }
    )
    directory = write_table(own, part)
    file = next(Path(directory).rglob("*.parquet"))
    # PyIceberg loses the difference as it writes, too.
    pq.write_table(pa.Table.from_pylist(part.to_pylist(), pq.read_schema(file)), file)
    assert read_rows(directory) == part.to_pylist()


def test_a_column_is_found_by_its_id(own: SqlCatalog) -> None:
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    table = own.create_table("n.t", pa.schema([("id", pa.int32()), ("old", pa.string()), ("st", inner)]))
    table.append(pa.table({"id": pa.array([1], pa.int32()), "old": ["x"], "st": pa.array([{"a": 1, "b": "y"}], inner)}))
    with table.update_schema(allow_incompatible_changes=True) as schema:
        schema.update_column("id", LongType()).rename_column("old", "new")
        schema.rename_column("st.a", "c").delete_column("st.b").move_first("st")
    with table.update_schema() as schema:
        schema.add_column("old", IntegerType()).add_column(("st", "a"), StringType())
    assert read_rows(write_sfn_file(table, "n.t")) == [{"st": {"c": 1, "a": None}, "id": 1, "new": "x", "old": None}]
    assert read_rows(write_sfn_file(table, "n.t"), columns="old") == [{"old": None}]


def test_a_uuid_is_text_wherever_it_stands(own: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "u", UUIDType()), NestedField(2, "id", LongType()))
    table = own.create_table("n.t", schema)
    raw = pa.array([bytes(range(16)), None, b"\xff" * 16], pa.uuid())
    table.append(pa.table({"u": raw, "id": [1, 2, 3]}))
    directory = write_sfn_file(table, "n.t")
    assert [field.dataType for field in SfnLoad({"path": directory}).schema()] == [SparkString(), SparkLong()]
    texts = ["00010203-0405-0607-0809-0a0b0c0d0e0f", None, "ffffffff-ffff-ffff-ffff-ffffffffffff"]
    assert [row["u"] for row in read_rows(directory)] == texts
    assert [row["id"] for row in read_rows(directory, [spark_filters.EqualTo(("u",), texts[0])])] == [1, 2, 3]


def test_a_filter_of_a_widened_column_is_not_made_to_fit_old_files(own: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "c", FloatType()))
    table = own.create_table("n.t", schema)
    table.append(pa.table({"id": [1], "c": pa.array([0.1], pa.float32())}))
    with table.update_schema() as update:
        update.update_column("c", DoubleType())
    # A tenth is more as a float than it is as a double.
    found = read_rows(write_sfn_file(table, "n.t"), [spark_filters.GreaterThan(("c",), 0.1)])
    assert [row["id"] for row in found] == [1]


def test_a_type_that_spark_lacks_is_refused_by_name(own: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimeType()))
    table = own.create_table("n.t", schema)
    table.append(pa.table({"id": [1], "at": pa.array([time(1)], pa.time64("us"))}))
    directory = write_sfn_file(table, "n.t")
    with pytest.raises(NotSupported, match=r"found the type time, of column 'at'; leave the column out"):
        read_rows(directory)
    assert read_rows(directory, columns="id") == [{"id": 1}]


def test_values_that_only_the_partition_has_are_read(own: SqlCatalog) -> None:
    table = own.create_table("n.t", pa.schema([("id", pa.int64()), ("day", pa.date32())]))
    with table.update_spec() as spec:
        spec.add_field("day", IdentityTransform(), "day")
    table.append(pa.table({"id": [1], "day": [date(2026, 1, 1)]}))
    file = next(Path(table.location().removeprefix("file://")).rglob("*.parquet"))
    pq.write_table(pq.read_table(file).select(["id"]), file)
    assert read_rows(write_sfn_file(table, "n.t")) == [{"id": 1, "day": date(2026, 1, 1)}]


def test_small_files_are_read_together() -> None:
    mebibytes = [1, 200, 64, 1, *[2] * 40]
    tasks = [FileScanTask(DataFile.from_args(file_size_in_bytes=size << 20)) for size in mebibytes]
    groups = [[task.file.file_size_in_bytes >> 20 for task in group] for group in group_tasks(tasks)]
    assert sorted(size for group in groups for size in group) == sorted(mebibytes)
    # As many as parts of 128 MiB, where opening a file counts as 2 MiB.
    assert [sum(max(size, 2) for size in group) for group in groups] == [200, 74, 74]


def test_an_empty_table_has_no_rows(own: SqlCatalog) -> None:
    directory = write_table(own, pa.table({"id": pa.array([], pa.int64())}))
    assert read_rows(directory) == []


def test_data_elsewhere_is_not_opened(own: SqlCatalog, tmp_path: Path) -> None:
    properties = {"write.data.path": f"file://{tmp_path}/elsewhere"}
    table = own.create_table("n.t", pa.schema([("id", pa.int64())]), properties=properties)
    table.append(pa.table({"id": [1]}))
    directory = write_sfn_file(table, "n.t")
    with pytest.raises(Unsafe):
        read_rows(directory, allowed=f"{directory}/metadata")
    assert read_rows(directory, allowed=f"{directory}, {tmp_path}/elsewhere") == [{"id": 1}]
    assert read_rows(directory) == [{"id": 1}]


def test_a_column_that_was_added_has_its_default() -> None:
    file = Schema(NestedField(1, "id", LongType()))
    defaults: dict[str, tuple[PrimitiveType, Any]] = {
        "day": (DateType(), date(2026, 1, 1)),
        "price": (DecimalType(9, 2), Decimal("1.20")),
    }
    defaults |= {"key": (UUIDType(), UUID(int=7)), "number": (DoubleType(), 5), "raw": (FixedType(2), b"\0\xff")}
    fields = [
        NestedField(number, name, kind, initial_default=to_json(kind, value))
        for number, (name, (kind, value)) in enumerate(defaults.items(), 2)
    ]
    columns = Schema(*fields)
    schema = to_arrow_schema(spark_schema(columns, "m"))
    projected = Projection(file, columns, schema, {}).project(pa.record_batch({"id": [1, 2]}))
    expected = {"day": date(2026, 1, 1), "price": Decimal("1.20"), "key": str(UUID(int=7)), "number": 5.0}
    assert projected.to_pylist() == [{**expected, "raw": b"\0\xff"}] * 2
