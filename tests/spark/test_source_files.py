"""How the data source reads files, in the process that tests run in: what Spark's own processes do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date, time
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
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType as SparkLong
from pyspark.sql.types import StringType as SparkString

from sfn.errors import NotSupported, Unsafe
from sfn.reader.data_file import Projection
from sfn.spark.arrow_types import spark_schema
from sfn.spark.engine_sfn import PartitionFiles, SfnLoad, group_tasks
from tests.spark.beside import beside
from tests.spark.rows_read import partitions, rows_read

NAN = math.nan
NUMBERS = [None, 1.0, 2.0, NAN]


@pytest.fixture(name="catalog")
def fixture_catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with own_catalog(tmp_path) as catalog:
        yield catalog


@pytest.fixture(name="numbers", scope="module")
def fixture_numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    days = [date(2026, 1, number) for number in (1, 2, 3)]
    deep = pa.array([{"inner": 1}, {"inner": 2}, None, None])
    part = pa.table({"x": pa.array(NUMBERS), "s": ["a", "a", "b", None], "day": [*days, None], "deep": deep})
    with own_catalog(tmp_path_factory.mktemp("numbers")) as catalog:
        yield made(catalog, part)


@contextmanager
def own_catalog(folder: Path) -> Iterator[SqlCatalog]:
    with closing(SqlCatalog("own", uri=f"sqlite:///{folder}/own.db", warehouse=f"file://{folder}")) as catalog:
        catalog.create_namespace("n")
        yield catalog


def made(catalog: SqlCatalog, *parts: pa.Table) -> str:
    table = catalog.create_table("n.t", parts[0].schema)
    for part in parts:
        table.append(part)
    return beside(table, "n.t")


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([spark.EqualTo(("x",), 1.0)], [1.0]),
        ([spark.EqualTo(("x",), NAN)], NUMBERS),
        ([spark.GreaterThan(("x",), 1.0)], NUMBERS),
        ([spark.GreaterThanOrEqual(("x",), 2.0)], NUMBERS),
        ([spark.LessThan(("x",), 2.0)], [1.0]),
        ([spark.Not(spark.LessThan(("x",), 2.0))], NUMBERS),
        ([spark.IsNull(("x",))], [None]),
        ([spark.Not(spark.EqualNullSafe(("x",), 1.0))], NUMBERS),
        ([spark.EqualNullSafe(("x",), None)], [None]),
        ([spark.IsNotNull(("x",)), spark.StringContains(("s",), "a")], [1.0, 2.0, NAN]),
        ([spark.Not(spark.EqualNullSafe(("s",), "a"))], NUMBERS),
        ([spark.Not(spark.EqualTo(("s",), "a"))], [2.0]),
        ([spark.In(("s",), ("a", "z"))], [None, 1.0]),
        ([spark.In(("s",), ("a", None))], NUMBERS),
        ([spark.StringStartsWith(("s",), "b")], [2.0]),
        ([spark.EqualTo(("s",), 7)], NUMBERS),
        ([spark.EqualTo(("day",), date(2026, 1, 3))], [2.0]),
        ([spark.EqualTo(("deep", "inner"), 1)], NUMBERS),
    ],
)
def test_no_row_is_left_out_that_spark_would_keep(
    filters: list[spark.Filter], kept: list[float | None], numbers: str
) -> None:
    found = [row["x"] for row in rows_read(numbers, filters)]
    assert repr(sorted(found, key=repr)) == repr(sorted(kept, key=repr))


def test_files_that_can_have_no_such_row_are_not_opened(catalog: SqlCatalog) -> None:
    directory = made(catalog, *(pa.table({"id": [number]}) for number in range(4)))
    rows = SfnLoad({"path": directory})
    reader = rows.reader(rows.schema())
    reader.pushFilters([spark.GreaterThan(("id",), 1)])
    (only,) = reader.partitions()
    assert isinstance(only, PartitionFiles)
    assert len(only.tasks) == 2
    assert partitions(directory, filterPushdown="false") == [4]


def test_null_is_no_empty_list_or_map(catalog: SqlCatalog) -> None:
    struct = pa.struct([("a", pa.int32())])
    part = pa.table(
        {
            "li": pa.array([None, [], [None, {"a": 1}]], pa.list_(struct)),
            "ma": pa.array([None, [], [("k", {"a": 1})]], pa.map_(pa.string(), struct)),
            "st": pa.array([None, {"a": None}, {"a": 1}], struct),
        }
    )
    directory = made(catalog, part)
    file = next(Path(directory).rglob("*.parquet"))
    # PyIceberg loses the difference as it writes, too.
    pq.write_table(pa.Table.from_pylist(part.to_pylist(), pq.read_schema(file)), file)
    assert rows_read(directory) == part.to_pylist()


def test_a_column_is_found_by_its_id(catalog: SqlCatalog) -> None:
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    table = catalog.create_table("n.t", pa.schema([("id", pa.int32()), ("old", pa.string()), ("st", inner)]))
    table.append(pa.table({"id": pa.array([1], pa.int32()), "old": ["x"], "st": pa.array([{"a": 1, "b": "y"}], inner)}))
    with table.update_schema(allow_incompatible_changes=True) as schema:
        schema.update_column("id", LongType()).rename_column("old", "new")
        schema.rename_column("st.a", "c").delete_column("st.b").move_first("st")
    with table.update_schema() as schema:
        schema.add_column("old", IntegerType()).add_column(("st", "a"), StringType())
    assert rows_read(beside(table, "n.t")) == [{"st": {"c": 1, "a": None}, "id": 1, "new": "x", "old": None}]
    assert rows_read(beside(table, "n.t"), columns="old") == [{"old": None}]


def test_a_uuid_is_text_wherever_it_stands(catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "u", UUIDType()), NestedField(2, "id", LongType()))
    table = catalog.create_table("n.t", schema)
    raw = pa.array([bytes(range(16)), None, b"\xff" * 16], pa.uuid())
    table.append(pa.table({"u": raw, "id": [1, 2, 3]}))
    directory = beside(table, "n.t")
    assert [field.dataType for field in SfnLoad({"path": directory}).schema()] == [SparkString(), SparkLong()]
    texts = ["00010203-0405-0607-0809-0a0b0c0d0e0f", None, "ffffffff-ffff-ffff-ffff-ffffffffffff"]
    assert [row["u"] for row in rows_read(directory)] == texts
    assert [row["id"] for row in rows_read(directory, [spark.EqualTo(("u",), texts[0])])] == [1, 2, 3]


def test_a_filter_of_a_widened_column_is_not_made_to_fit_old_files(catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "c", FloatType()))
    table = catalog.create_table("n.t", schema)
    table.append(pa.table({"id": [1], "c": pa.array([0.1], pa.float32())}))
    with table.update_schema() as update:
        update.update_column("c", DoubleType())
    # A tenth is more as a float than it is as a double.
    assert [row["id"] for row in rows_read(beside(table, "n.t"), [spark.GreaterThan(("c",), 0.1)])] == [1]


def test_a_type_that_spark_lacks_is_refused_by_name(catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimeType()))
    table = catalog.create_table("n.t", schema)
    table.append(pa.table({"id": [1], "at": pa.array([time(1)], pa.time64("us"))}))
    directory = beside(table, "n.t")
    with pytest.raises(NotSupported, match=r"found the type time, of column 'at'; leave the column out"):
        rows_read(directory)
    assert rows_read(directory, columns="id") == [{"id": 1}]


def test_values_that_only_the_partition_has_are_read(catalog: SqlCatalog) -> None:
    table = catalog.create_table("n.t", pa.schema([("id", pa.int64()), ("day", pa.date32())]))
    with table.update_spec() as spec:
        spec.add_field("day", IdentityTransform(), "day")
    table.append(pa.table({"id": [1], "day": [date(2026, 1, 1)]}))
    file = next(Path(table.location().removeprefix("file://")).rglob("*.parquet"))
    pq.write_table(pq.read_table(file).select(["id"]), file)
    assert rows_read(beside(table, "n.t")) == [{"id": 1, "day": date(2026, 1, 1)}]


def test_small_files_are_read_together() -> None:
    mebibytes = [1, 200, 64, 1, *[2] * 40]
    tasks = [FileScanTask(DataFile.from_args(file_size_in_bytes=size << 20)) for size in mebibytes]
    groups = [[task.file.file_size_in_bytes >> 20 for task in group] for group in group_tasks(tasks)]
    assert sorted(size for group in groups for size in group) == sorted(mebibytes)
    # As many as parts of 128 MiB, where opening a file counts as 2 MiB.
    assert [sum(max(size, 2) for size in group) for group in groups] == [200, 74, 74]


def test_an_empty_table_has_no_rows(catalog: SqlCatalog) -> None:
    directory = made(catalog, pa.table({"id": pa.array([], pa.int64())}))
    assert rows_read(directory) == []


def test_data_elsewhere_is_not_opened(catalog: SqlCatalog, tmp_path: Path) -> None:
    properties = {"write.data.path": f"file://{tmp_path}/elsewhere"}
    table = catalog.create_table("n.t", pa.schema([("id", pa.int64())]), properties=properties)
    table.append(pa.table({"id": [1]}))
    directory = beside(table, "n.t")
    with pytest.raises(Unsafe):
        rows_read(directory, allowed=f"{directory}/metadata")
    assert rows_read(directory, allowed=f"{directory}, {tmp_path}/elsewhere") == [{"id": 1}]
    assert rows_read(directory) == [{"id": 1}]


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
