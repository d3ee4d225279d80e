"""The engine `files` on files that an import adds: without the columns of their partitions, or with names of any kind.

Each of these was a fault once, or was found by `tests.spark.differential`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import DataFrame, SparkSession

import sfn.spark
from sfn.errors import NotSupported
from tests.spark.beside import beside

NAN = float("nan")
Files: TypeAlias = Mapping[str, tuple[Mapping[str, Sequence[Any]], object, Mapping[str, Any]]]
"""Of each data file: its columns, the value of its partition, and what its manifest says of it beside."""


def schema_of(kind: types.IcebergType, *, required: bool = False) -> Schema:
    return Schema(NestedField(1, "id", LongType()), NestedField(2, "s", kind, required=required))


@pytest.fixture(name="made")
def fixture_made(tmp_path: Path) -> Iterator[Callable[[Schema, Files], str]]:
    """Makes a table of some files that is partitioned by `s`, or by another source; its directory.

    Fields of structs may be lacking in all files.
    """
    with closing(SqlCatalog("own", uri=f"sqlite:///{tmp_path}/own.db", warehouse=f"file://{tmp_path}")) as catalog:
        catalog.create_namespace("n")

        def made(schema: Schema, files: Files, lacking: Collection[int] = (), source: int = 2) -> str:
            spec = PartitionSpec(PartitionField(source, 1000, IdentityTransform(), "of"))
            table = catalog.create_table("n.t", schema, partition_spec=spec)
            arrow = schema_to_pyarrow(_without(table.schema(), lacking))
            with table.transaction() as change, change.update_snapshot().fast_append() as append:
                for name, (columns, value, said) in files.items():
                    path = Path(table.location().removeprefix("file://")) / "data" / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    fields = pa.schema([arrow.field(column) for column in columns])
                    pq.write_table(pa.table(dict(columns), schema=fields), path)
                    file = DataFile.from_args(
                        content=DataFileContent.DATA,
                        file_path=f"file://{path}",
                        file_format=FileFormat.PARQUET,
                        partition=Record(value),
                        record_count=len(columns["id"]),
                        **{"file_size_in_bytes": path.stat().st_size, **said},
                    )
                    file.spec_id = 0
                    append.append_data_file(file)
            table.refresh()
            return beside(table, "n.t")

        yield made


def _without(schema: Schema, lacking: Collection[int]) -> Schema:
    """The schema with other structs."""

    def kept(fields: Iterable[NestedField]) -> list[NestedField]:
        return [
            NestedField(field.field_id, field.name, types.StructType(*kept(field.field_type.fields)))
            if isinstance(field.field_type, types.StructType)
            else field
            for field in fields
            if field.field_id not in lacking
        ]

    return Schema(*kept(schema.fields))


def read(spark: SparkSession, directory: str, row_filter: str | None = None) -> DataFrame:
    return sfn.spark.read(spark, directory, engine="files", row_filter=row_filter)


def shown(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_each_file_that_lacks_its_partitions_column_has_its_own_value(
    spark: SparkSession, made: Callable[[Schema, Files], str]
) -> None:
    """Whatever another file of its commit has, and whatever its manifest counts."""
    files: Files = {
        "1.parquet": ({"id": [1, 2], "s": ["a", "a"]}, "a", {"column_sizes": {1: 40, 2: 40}}),
        "2.parquet": ({"id": [3]}, "b", {}),
        "3.parquet": ({"id": [4]}, "c", {"value_counts": {1: 1, 2: 1}, "lower_bounds": {2: b"c"}}),
        "4.parquet": ({"id": [5]}, None, {}),
        "5.parquet": ({"id": [6], "s": ["d"]}, "d", {}),
    }
    directory = made(schema_of(StringType()), files)
    found = read(spark, directory)
    expected = [(1, "a"), (2, "a"), (3, "b"), (4, "c"), (5, None), (6, "d")]
    assert shown(found.where("id <> 5")) == [row for row in expected if row[0] != 5]
    assert shown(found.where("s IS NULL")) == [(5, None)]
    assert shown(read(spark, directory, row_filter="s >= 'b' and id < 6")) == expected[2:4]
    assert found.schema == sfn.spark.read(spark, directory, engine="iceberg").schema


@pytest.mark.parametrize(
    ("kind", "value", "seen"),
    [
        (types.BooleanType(), True, True),
        (types.IntegerType(), -7, -7),
        (types.DoubleType(), 1.5, 1.5),
        (types.DecimalType(9, 2), Decimal("-1.25"), Decimal("-1.25")),
        (types.DateType(), -1, date(1969, 12, 31)),
        (types.TimestampType(), 1, datetime(1970, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001 - it has no zone
        (types.TimestamptzType(), 0, datetime(1970, 1, 1, tzinfo=UTC)),
        (types.UUIDType(), UUID(int=7).bytes, f"{UUID(int=7)}"),
        (types.BinaryType(), b"\xff", bytearray(b"\xff")),
    ],
)
def test_a_partition_of_any_type_is_shown(
    spark: SparkSession, made: Callable[[Schema, Files], str], kind: types.IcebergType, value: object, seen: object
) -> None:
    directory = made(schema_of(kind), {"1.parquet": ({"id": [1]}, value, {})})
    ((number, found),) = (tuple(row) for row in read(spark, directory).collect())
    if isinstance(kind, types.TimestamptzType):
        # Python has it in this machine's own zone.
        found = found.astimezone(UTC)
    assert (number, found) == (1, seen)
    assert shown(read(spark, directory)) == shown(sfn.spark.read(spark, directory, engine="iceberg"))


def test_a_required_column_that_a_file_may_lack_is_refused(
    spark: SparkSession, made: Callable[[Schema, Files], str]
) -> None:
    directory = made(schema_of(StringType(), required=True), {"1.parquet": ({"id": [1]}, "a", {})})
    with pytest.raises(NotSupported, match=r"may lack the required column 's'.*engine='iceberg'"):
        read(spark, directory)


def test_a_part_of_a_struct_that_a_file_lacks_is_that_of_its_partition(
    spark: SparkSession, made: Callable[..., str]
) -> None:
    """Of other engines than `files`, which refuses such a file."""
    inner = types.StructType(NestedField(5, "c", StringType()), NestedField(6, "e", StringType()))
    place = types.StructType(NestedField(3, "d", StringType()), NestedField(4, "q", inner))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", place))
    rows: Mapping[str, Sequence[Any]] = {
        "id": [1, 2, 3],
        "p": [{"d": "x", "q": {"e": "y"}}, {"d": "x", "q": None}, {"d": None, "q": None}],
    }
    files: Files = {
        "1.parquet": (rows, "a", {}),
        "2.parquet": ({"id": [4], "p": [{"d": "z", "q": {"e": "y"}}]}, "b", {}),
    }
    directory = made(schema, files, {5}, 5)
    expected = [(1, ("x", ("a", "y"))), (2, ("x", ("a", None))), (3, (None, ("a", None))), (4, ("z", ("b", "y")))]
    filters: Mapping[str | None, Sequence[int]] = {
        None: [1, 2, 3, 4],
        "p.q.c = 'a'": [1, 2, 3],
        "p.q.c is null": [],
        "p.q.c <> 'a'": [4],
    }
    for engine in ("iceberg", "sfn"):
        for which, ids in filters.items():
            found = shown(sfn.spark.read(spark, directory, engine=engine, row_filter=which))
            assert found == [expected[number - 1] for number in ids], (engine, which)
    with pytest.raises(NotSupported, match=r"may lack 'p\.q\.c'.*engine='iceberg'"):
        read(spark, directory)


def test_a_part_of_a_struct_that_a_file_has_is_its_own(spark: SparkSession, made: Callable[..., str]) -> None:
    place = types.StructType(NestedField(3, "c", StringType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", place))
    files: Files = {
        "1.parquet": ({"id": [1], "p": [{"c": "a"}]}, "a", {"column_sizes": {1: 40, 3: 40}}),
        "2.parquet": ({"id": [2, 3], "p": [{"c": None}, None]}, None, {}),
    }
    directory = made(schema, files, (), 3)
    assert shown(read(spark, directory)) == [(1, ("a",)), (2, (None,)), (3, None)]
    assert shown(read(spark, directory, row_filter="p.c = 'a'")) == [(1, ("a",))]


@pytest.mark.parametrize("name", ["_a.parquet", ".a.parquet", "s=a/_b.parquet"])
def test_a_file_that_spark_passes_over_by_its_name_is_refused(
    spark: SparkSession, made: Callable[[Schema, Files], str], name: str
) -> None:
    directory = made(schema_of(StringType()), {name: ({"id": [1], "s": ["a"]}, "a", {})})
    with pytest.raises(NotSupported, match=r"Spark silently ignores.*engine='iceberg'"):
        read(spark, directory)
    assert shown(sfn.spark.read(spark, directory)) == [(1, "a")]


@pytest.mark.parametrize("name", ["_s=a.parquet", "_d/a.parquet", ".d/a.parquet", "a.gz.parquet", "[a]{b}*.parquet"])
def test_a_file_of_any_other_name_is_read(spark: SparkSession, made: Callable[[Schema, Files], str], name: str) -> None:
    directory = made(schema_of(StringType()), {name: ({"id": [1], "s": ["a"]}, "a", {})})
    assert shown(read(spark, directory)) == [(1, "a")]


def test_a_file_whose_manifest_says_that_it_is_empty_is_refused(
    spark: SparkSession, made: Callable[[Schema, Files], str]
) -> None:
    directory = made(schema_of(StringType()), {"a.parquet": ({"id": [1]}, "a", {"file_size_in_bytes": 0})})
    with pytest.raises(NotSupported, match="silently ignores, by its name or its size"):
        read(spark, directory)


def test_a_name_with_a_dot_is_a_column(spark: SparkSession, made: Callable[[Schema, Files], str]) -> None:
    inner = types.StructType(NestedField(4, "x", LongType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StringType()), NestedField(3, "p.q", inner))
    directory = made(schema, {"1.parquet": ({"id": [1], "s": ["a"], "p.q": [{"x": 7}]}, "a", {})})
    assert [row.asDict(recursive=True) for row in read(spark, directory).collect()] == [
        {"id": 1, "s": "a", "p.q": {"x": 7}}
    ]


@pytest.mark.parametrize("engine", ["iceberg", "files", "sfn"])
@pytest.mark.parametrize(
    ("row_filter", "ids"),
    [
        ("x > 2.0", [1]),
        ("x >= 1.5", [1, 2]),
        ("x <> 1.5", [1]),
        ("not (x < 2.0)", [1]),
        ("x not in (1.5, 7.0)", [1]),
        ("not (x is nan)", [2]),
        ("x is not nan", [2]),
    ],
)
def test_no_engine_loses_nan_to_statistics_that_know_none(
    spark: SparkSession, tmp_path: Path, engine: str, row_filter: str, ids: list[int]
) -> None:
    with closing(SqlCatalog("own", uri=f"sqlite:///{tmp_path}/own.db", warehouse=f"file://{tmp_path}")) as catalog:
        catalog.create_namespace("n")
        rows = pa.table({"id": [1, 2, 3], "x": [NAN, 1.5, None]})
        table = catalog.create_table("n.t", rows.schema)
        table.append(rows)
        directory = beside(table, "n.t")
    found = sfn.spark.read(spark, directory, engine=engine, row_filter=row_filter)
    assert sorted(row.id for row in found.collect()) == ids


def test_a_float_is_compared_with_the_nearest_float(spark: SparkSession, tmp_path: Path) -> None:
    with closing(SqlCatalog("own", uri=f"sqlite:///{tmp_path}/own.db", warehouse=f"file://{tmp_path}")) as catalog:
        catalog.create_namespace("n")
        rows = pa.table({"id": [1, 2], "x": pa.array([0.1, 0.5], pa.float32())})
        table = catalog.create_table("n.t", rows.schema)
        table.append(rows)
        directory = beside(table, "n.t")
    for engine in ("iceberg", "files"):
        found = sfn.spark.read(spark, directory, engine=engine, row_filter="x = 0.1")
        assert [row.id for row in found.collect()] == [1], engine
    assert sfn.read(directory, row_filter="x = 0.1")["id"].to_pylist() == [1]
