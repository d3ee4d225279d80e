"""The engine `files`: tables that Iceberg's own library wrote, and imported files without columns or with odd names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import FixedType, LongType, NestedField, StringType, UUIDType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import sfn.spark
from sfn.demo.environment import RestCatalogServer
from sfn.errors import NotInstalled, NotSupported
from sfn.spark import read_table
from sfn.spark.files_pruning import HadoopUris
from tests.spark.tables import own_catalog, publish, write_sfn_file

MERGE_ON_READ = "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='partition'"
Read = Callable[[str], DataFrame]


@pytest.fixture(name="read", scope="module")
def fixture_read(spark: SparkSession, catalog: RestCatalogServer) -> Read:
    """Reads a table of the namespace `files` with the engine."""
    spark.sql("CREATE NAMESPACE lake.files")

    def read(name: str) -> DataFrame:
        with catalog.client() as client:
            return read_table.read(spark, publish(client, f"files.{name}"), engine="files")

    return read


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def planned(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution())  # noqa: SLF001 - `explain` prints it


def check_alike(found: DataFrame, spark: SparkSession, name: str) -> None:
    expected = spark.table(f"lake.files.{name}")
    assert rows(found) == rows(expected)
    assert found.schema == expected.schema


@pytest.mark.parametrize("version", [2, 3])
def test_deleted_rows_are_found_wherever_a_file_lies(
    spark: SparkSession, read: Read, tmp_path: Path, version: int
) -> None:
    """Position deletes and deletion vectors, of files whose names mean something else to Spark, or in a URI."""
    name = f"lake.files.deleted_{version}"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, of STRING) USING iceberg PARTITIONED BY (of) "
        f"LOCATION 'file://{tmp_path}/it''s 100%25 {{a,b}}[c]* +' "
        f"TBLPROPERTIES ('format-version'='{version}', 'write.distribution-mode'='none', {MERGE_ON_READ})"
    )
    for first in (0, 100):
        some = spark.range(first, first + 40, 1, 1).selectExpr("id", "if(id % 2 = 0, 'ü %{*}', 'b') of")
        some.sortWithinPartitions("of").writeTo(name).append()
        spark.sql(f"DELETE FROM {name} WHERE id % 7 = 3 AND id > {first - 60}")
    spark.sql(f"INSERT INTO {name} VALUES (200, 'untouched'), (3, 'untouched')")
    found = read(f"deleted_{version}")
    check_alike(found, spark, f"deleted_{version}")
    assert found.where("of = 'b' AND id > 90").count() == spark.table(name).where("of = 'b' AND id > 90").count()
    assert {one["content"] for one in spark.table(f"{name}.files").collect()} == {0, 1}


def test_columns_are_found_by_their_ids(spark: SparkSession, read: Read) -> None:
    name = "lake.files.evolved"
    spark.sql(
        f"CREATE TABLE {name} (id INT NOT NULL, a STRING, b STRING, price DECIMAL(9, 2), score FLOAT, `o d.d``` INT, "
        "at TIMESTAMP, there TIMESTAMP_NTZ, day DATE, raw BINARY) USING iceberg"
    )
    old = "TIMESTAMP '1400-01-01 12:00:00', TIMESTAMP_NTZ '0001-01-01 00:00:00.000001', DATE '1500-02-28', X'00FF'"
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a1', 'b1', 1.25, 0.1, 7, {old}), (2, NULL, 'b2', -1, -0.5, 8, {old})")
    for change in (
        "ALTER COLUMN id TYPE BIGINT",
        "ALTER COLUMN price TYPE DECIMAL(18, 2)",
        "ALTER COLUMN score TYPE DOUBLE",
        "DROP COLUMN b",
        "ADD COLUMN b STRING FIRST",
        "RENAME COLUMN a TO c",
        "RENAME COLUMN day TO a",
    ):
        spark.sql(f"ALTER TABLE {name} {change}")
    spark.sql(
        f"INSERT INTO {name} VALUES ('new', 3000000000, 'c3', 1234567890123456.5, 1e300, 9, "
        "TIMESTAMP '2026-11-25 12:00:00', NULL, DATE '2026-11-25', NULL)"
    )
    found, expected = read("evolved"), spark.table(name)
    check_alike(found, spark, "evolved")
    # Statistics of what had the name before would leave out rows.
    for which in ("b IS NULL", "b = 'b1'", "a < DATE '2000-01-01'", "c IS NULL", "id = 3000000000", "id < 3"):
        assert rows(found.where(which)) == rows(expected.where(which)), which


def test_a_filter_is_asked_of_parquets_statistics_where_the_name_is_one_columns_alone(
    spark: SparkSession, read: Read
) -> None:
    spark.sql("CREATE TABLE lake.files.pruned (id BIGINT, a STRING, b STRING) USING iceberg")
    spark.sql("INSERT INTO lake.files.pruned VALUES (1, 'a', 'b')")
    spark.sql("ALTER TABLE lake.files.pruned DROP COLUMN b")
    spark.sql("ALTER TABLE lake.files.pruned ADD COLUMN b STRING")
    plan = planned(read("pruned").where("id = 1 AND b = 'x'"))
    pushed = plan.rpartition("PushedFilters: ")[2].partition("]")[0]
    assert "EqualTo(id,1)" in pushed
    assert "(b," not in pushed


def test_nested_columns_are_right_whatever_part_of_them_is_asked_for(spark: SparkSession, read: Read) -> None:
    """Iceberg's own library is not asked: of some of this it makes errors, or empty lists."""
    name = "lake.files.nested"
    spark.sql(
        f"CREATE TABLE {name} (s STRUCT<x: INT NOT NULL, y: STRING, l: ARRAY<STRUCT<a: INT>>> NOT NULL, "
        "l ARRAY<STRUCT<a: INT>>, m MAP<STRING, STRUCT<a: INT>>, plain STRUCT<a: INT, b: INT>) USING iceberg"
    )
    values = (
        "named_struct('x', 1, 'y', 'y1', 'l', array(struct(2))), array(struct(3)), map('k', struct(4)), struct(5, 6)"
    )
    spark.sql(f"INSERT INTO {name} SELECT {values}")
    for change in (
        *("DROP COLUMN s.y", "ADD COLUMN s.y STRING", "ALTER COLUMN s.x TYPE BIGINT"),
        *("ADD COLUMN l.element.z INT", "ADD COLUMN m.value.z INT", "ADD COLUMN s.l.element.z INT"),
        *("ADD COLUMN s.t STRUCT<u: INT>", "RENAME COLUMN l TO k", "RENAME COLUMN s TO t"),
    ):
        spark.sql(f"ALTER TABLE {name} {change}")
    found = read("nested")
    assert rows(found) == rows(spark.table(name))
    assert found.schema.simpleString() == spark.table(name).schema.simpleString()
    asked = found.selectExpr("t.y", "k.z", "m['k'].z", "t.l.z", "t.t.u", "t IS NULL", "plain.b")
    assert [tuple(row) for row in asked.collect()] == [(None, [None], None, [None], None, False, 6)]
    for part in ("t.y", "k.z", "map_values(m).z", "t.l.z", "t.t.u"):
        ((value,),) = found.selectExpr(part).collect()
        assert value in (None, [None]), part
        assert found.selectExpr(part).count() == found.where(f"{part} IS NULL").count() + (value is not None), part
    assert "ReadSchema: struct<plain:struct<b:int>>" in planned(found.select("plain.b"))


def test_a_column_that_lost_all_that_a_file_has_of_it_is_refused(spark: SparkSession, read: Read) -> None:
    spark.sql("CREATE TABLE lake.files.emptied (l ARRAY<STRUCT<a: INT>>) USING iceberg")
    spark.sql("INSERT INTO lake.files.emptied SELECT array(struct(1))")
    spark.sql("ALTER TABLE lake.files.emptied ADD COLUMN l.element.b INT")
    spark.sql("ALTER TABLE lake.files.emptied DROP COLUMN l.element.a")
    with pytest.raises(NotSupported, match="nothing of a part of column 'l'"):
        read("emptied")


def test_types_that_spark_has_no_word_for(spark: SparkSession, catalog: RestCatalogServer, read: Read) -> None:
    schema = Schema(
        NestedField(1, "key", UUIDType(), required=True),
        NestedField(2, "other", UUIDType()),
        NestedField(3, "four", FixedType(4)),
    )
    one = UUID("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9")
    with catalog.client() as client:
        table = client.create_table("files.odd_types", schema)
        columns = {"key": [one.bytes], "other": [None], "four": [b"\0\1\2\3"]}
        table.append(pa.table(columns, schema=schema.as_arrow()))
    found = read("odd_types")
    check_alike(found, spark, "odd_types")
    assert found.where(f.col("key") == str(one)).count() == 1


def test_an_empty_table_has_columns(spark: SparkSession, read: Read) -> None:
    spark.sql("CREATE TABLE lake.files.empty (id BIGINT NOT NULL, l ARRAY<STRUCT<a: INT>>) USING iceberg")
    check_alike(read("empty"), spark, "empty")


def test_the_rows_are_those_of_the_callers_own_session(spark: SparkSession, read: Read) -> None:
    """And no setting is changed in it, nor one that is changed afterwards of any consequence."""
    spark.sql("CREATE TABLE lake.files.own (id BIGINT, a STRING) USING iceberg")
    spark.sql("INSERT INTO lake.files.own VALUES (1, 'a')")
    spark.sql("ALTER TABLE lake.files.own DROP COLUMN a")
    spark.sql("ALTER TABLE lake.files.own ADD COLUMN a STRING")
    before = spark.conf.getAll
    found = read("own")
    assert spark.conf.getAll == before
    assert found.sparkSession is spark
    found.createOrReplaceTempView("own_rows")
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "false")
    try:
        spark.catalog.refreshTable("own_rows")
        assert rows(spark.sql("SELECT * FROM own_rows WHERE a IS NULL")) == ["Row(id=1, a=None)"]
    finally:
        spark.conf.unset("spark.sql.parquet.fieldId.read.enabled")
        spark.catalog.dropTempView("own_rows")


def test_files_that_are_not_parquet_are_refused(spark: SparkSession, read: Read) -> None:
    spark.sql("CREATE TABLE lake.files.orc (id BIGINT) USING iceberg TBLPROPERTIES ('write.format.default'='orc')")
    spark.sql("INSERT INTO lake.files.orc VALUES (1)")
    with pytest.raises(NotSupported, match=r"found data in ORC files; engine='iceberg'"):
        read("orc")


def test_files_without_ids_are_refused_and_others_beside_a_name_mapping_are_read(
    catalog: RestCatalogServer, read: Read, tmp_path: Path
) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "note", StringType()))
    some = pa.table({"id": [1], "note": ["a"]})
    pq.write_table(some, tmp_path / "foreign.parquet")
    with catalog.client() as client:
        table = client.create_table("files.mapped", schema)
        with table.transaction() as transaction:
            transaction.set_properties({"schema.name-mapping.default": schema.name_mapping.model_dump_json()})
        table.append(some)
        assert rows(read("mapped")) == ["Row(id=1, note='a')"]
        table.add_files([f"file://{tmp_path}/foreign.parquet"])
    with pytest.raises(NotSupported, match=r"foreign\.parquet: .*a file without field ids"):
        read("mapped")


def test_a_scheme_is_opened_by_the_driver_that_the_session_has(spark: SparkSession) -> None:
    with pytest.raises(NotInstalled, match=r"found none; start Spark with org\.apache\.hadoop:hadoop-aws"):
        HadoopUris(spark).uri("s3://lake/orders/a.parquet")
    spark.conf.set("fs.s3a.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
    try:
        spelling = HadoopUris(spark)
        assert spelling.uri("s3://lake/orders/a.parquet") == "s3a://lake/orders/a.parquet"
        assert spelling.uri("s3://lake/a b%20ü.parquet") == "s3a://lake/a%20b%2520ü.parquet"
    finally:
        spark.conf.unset("fs.s3a.impl")


NAN = float("nan")
Files: TypeAlias = Mapping[str, tuple[Mapping[str, Sequence[Any]], object, Mapping[str, Any]]]
"""Of each data file: its columns, the value of its partition, and what its manifest says of it beside."""


def schema_of(kind: types.IcebergType, *, required: bool = False) -> Schema:
    return Schema(NestedField(1, "id", LongType()), NestedField(2, "s", kind, required=required))


@pytest.fixture(name="write_table")
def fixture_write_table(tmp_path: Path) -> Iterator[Callable[[Schema, Files], str]]:
    """Makes a table of some files that is partitioned by `s`, or by another source; its directory.

    Fields of structs may be lacking in all files.
    """
    with own_catalog(tmp_path) as catalog:

        def write_table(schema: Schema, files: Files, lacking: Collection[int] = (), source: int = 2) -> str:
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
            return write_sfn_file(table, "n.t")

        yield write_table


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


def read_files(spark: SparkSession, directory: str, row_filter: str | None = None) -> DataFrame:
    return sfn.spark.read(spark, directory, engine="files", row_filter=row_filter)


def sorted_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_each_file_that_lacks_its_partitions_column_has_its_own_value(
    spark: SparkSession, write_table: Callable[[Schema, Files], str]
) -> None:
    """Whatever another file of its commit has, and whatever its manifest counts."""
    files: Files = {
        "1.parquet": ({"id": [1, 2], "s": ["a", "a"]}, "a", {"column_sizes": {1: 40, 2: 40}}),
        "2.parquet": ({"id": [3]}, "b", {}),
        "3.parquet": ({"id": [4]}, "c", {"value_counts": {1: 1, 2: 1}, "lower_bounds": {2: b"c"}}),
        "4.parquet": ({"id": [5]}, None, {}),
        "5.parquet": ({"id": [6], "s": ["d"]}, "d", {}),
    }
    directory = write_table(schema_of(StringType()), files)
    found = read_files(spark, directory)
    expected = [(1, "a"), (2, "a"), (3, "b"), (4, "c"), (5, None), (6, "d")]
    assert sorted_rows(found.where("id <> 5")) == [row for row in expected if row[0] != 5]
    assert sorted_rows(found.where("s IS NULL")) == [(5, None)]
    assert sorted_rows(read_files(spark, directory, row_filter="s >= 'b' and id < 6")) == expected[2:4]
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
    spark: SparkSession,
    write_table: Callable[[Schema, Files], str],
    kind: types.IcebergType,
    value: object,
    seen: object,
) -> None:
    directory = write_table(schema_of(kind), {"1.parquet": ({"id": [1]}, value, {})})
    ((number, found),) = (tuple(row) for row in read_files(spark, directory).collect())
    if isinstance(kind, types.TimestamptzType):
        # Python has it in this machine's own zone.
        found = found.astimezone(UTC)
    assert (number, found) == (1, seen)
    assert sorted_rows(read_files(spark, directory)) == sorted_rows(sfn.spark.read(spark, directory, engine="iceberg"))


def test_a_required_column_that_a_file_may_lack_is_refused(
    spark: SparkSession, write_table: Callable[[Schema, Files], str]
) -> None:
    directory = write_table(schema_of(StringType(), required=True), {"1.parquet": ({"id": [1]}, "a", {})})
    with pytest.raises(NotSupported, match=r"may lack the required column 's'.*engine='iceberg'"):
        read_files(spark, directory)


def test_a_part_of_a_struct_that_a_file_lacks_is_that_of_its_partition(
    spark: SparkSession, write_table: Callable[..., str]
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
    directory = write_table(schema, files, {5}, 5)
    expected = [(1, ("x", ("a", "y"))), (2, ("x", ("a", None))), (3, (None, ("a", None))), (4, ("z", ("b", "y")))]
    filters: Mapping[str | None, Sequence[int]] = {
        None: [1, 2, 3, 4],
        "p.q.c = 'a'": [1, 2, 3],
        "p.q.c is null": [],
        "p.q.c <> 'a'": [4],
    }
    for engine in ("iceberg", "sfn"):
        for which, ids in filters.items():
            found = sorted_rows(sfn.spark.read(spark, directory, engine=engine, row_filter=which))
            assert found == [expected[number - 1] for number in ids], (engine, which)
    with pytest.raises(NotSupported, match=r"may lack 'p\.q\.c'.*engine='iceberg'"):
        read_files(spark, directory)


def test_a_part_of_a_struct_that_a_file_has_is_its_own(spark: SparkSession, write_table: Callable[..., str]) -> None:
    place = types.StructType(NestedField(3, "c", StringType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", place))
    files: Files = {
        "1.parquet": ({"id": [1], "p": [{"c": "a"}]}, "a", {"column_sizes": {1: 40, 3: 40}}),
        "2.parquet": ({"id": [2, 3], "p": [{"c": None}, None]}, None, {}),
    }
    directory = write_table(schema, files, (), 3)
    assert sorted_rows(read_files(spark, directory)) == [(1, ("a",)), (2, (None,)), (3, None)]
    assert sorted_rows(read_files(spark, directory, row_filter="p.c = 'a'")) == [(1, ("a",))]


@pytest.mark.parametrize("name", ["_a.parquet", ".a.parquet", "s=a/_b.parquet"])
def test_a_file_that_spark_passes_over_by_its_name_is_refused(
    spark: SparkSession, write_table: Callable[[Schema, Files], str], name: str
) -> None:
    directory = write_table(schema_of(StringType()), {name: ({"id": [1], "s": ["a"]}, "a", {})})
    with pytest.raises(NotSupported, match=r"Spark silently ignores.*engine='iceberg'"):
        read_files(spark, directory)
    assert sorted_rows(sfn.spark.read(spark, directory)) == [(1, "a")]


@pytest.mark.parametrize("name", ["_s=a.parquet", "_d/a.parquet", ".d/a.parquet", "a.gz.parquet", "[a]{b}*.parquet"])
def test_a_file_of_any_other_name_is_read(
    spark: SparkSession, write_table: Callable[[Schema, Files], str], name: str
) -> None:
    directory = write_table(schema_of(StringType()), {name: ({"id": [1], "s": ["a"]}, "a", {})})
    assert sorted_rows(read_files(spark, directory)) == [(1, "a")]


def test_a_file_whose_manifest_says_that_it_is_empty_is_refused(
    spark: SparkSession, write_table: Callable[[Schema, Files], str]
) -> None:
    directory = write_table(schema_of(StringType()), {"a.parquet": ({"id": [1]}, "a", {"file_size_in_bytes": 0})})
    with pytest.raises(NotSupported, match="silently ignores, by its name or its size"):
        read_files(spark, directory)


def test_a_name_with_a_dot_is_a_column(spark: SparkSession, write_table: Callable[[Schema, Files], str]) -> None:
    inner = types.StructType(NestedField(4, "x", LongType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StringType()), NestedField(3, "p.q", inner))
    directory = write_table(schema, {"1.parquet": ({"id": [1], "s": ["a"], "p.q": [{"x": 7}]}, "a", {})})
    assert [row.asDict(recursive=True) for row in read_files(spark, directory).collect()] == [
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
    with own_catalog(tmp_path) as catalog:
        rows = pa.table({"id": [1, 2, 3], "x": [NAN, 1.5, None]})
        table = catalog.create_table("n.t", rows.schema)
        table.append(rows)
        directory = write_sfn_file(table, "n.t")
    found = sfn.spark.read(spark, directory, engine=engine, row_filter=row_filter)
    assert sorted(row.id for row in found.collect()) == ids


def test_a_float_is_compared_with_the_nearest_float(spark: SparkSession, tmp_path: Path) -> None:
    with own_catalog(tmp_path) as catalog:
        rows = pa.table({"id": [1, 2], "x": pa.array([0.1, 0.5], pa.float32())})
        table = catalog.create_table("n.t", rows.schema)
        table.append(rows)
        directory = write_sfn_file(table, "n.t")
    for engine in ("iceberg", "files"):
        found = sfn.spark.read(spark, directory, engine=engine, row_filter="x = 0.1")
        assert [row.id for row in found.collect()] == [1], engine
    assert sfn.read(directory, row_filter="x = 0.1")["id"].to_pylist() == [1]
