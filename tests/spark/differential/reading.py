"""What each engine of ours reads of a table, and what Iceberg's own library does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as source
from pyspark.sql import functions as f

import sfn
import sfn.spark
from sfn.errors import NotSupported, SfnError
from sfn.sfnfile.document import render
from tests.spark.differential.filters import Filter
from tests.spark.differential.tables import TAG, OddTable
from tests.spark.differential.values import from_arrow, from_json
from tests.spark.rows_read import rows_read
from tests.support.table_directory import Directory

Rows: TypeAlias = Sequence[dict[str, Any]]
IDENTIFIER: Final = "odd.table"
READ: Final = sfn.spark.read
"""Each look-up of the name checks the versions of packages, which takes 10 ms."""


@dataclass(frozen=True, slots=True)
class Refused:
    """What a reader said instead of rows."""

    kind: str
    found: str


def publish(table: OddTable) -> None:
    """Write the table's SFN file, as the service does."""
    place = Directory(table.location)
    current = table.java.operations().current()
    snapshot = current.currentSnapshot()
    document = place.document(
        IDENTIFIER,
        guid=f"{current.uuid()}",
        metadata_file_path=f"file:{table.metadata_location}",
        snapshot_id=None if snapshot is None else snapshot.snapshotId(),
        ordinal=current.lastUpdatedMillis(),
    )
    place.sfn_file(IDENTIFIER).write_bytes(render(document))


def schema_of(spark: SparkSession, table: OddTable) -> Schema:
    """Return the schema that is read: of a tag that of its snapshot, of a branch the current one."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no name of its own for it
    return Schema.model_validate_json(jvm.org.apache.iceberg.SchemaParser.toJson(_java_schema(jvm, table)))


def _java_schema(jvm: Any, table: OddTable) -> Any:  # noqa: ANN401 - Java's
    if table.ref == TAG:
        return jvm.org.apache.iceberg.util.SnapshotUtil.schemaFor(table.java, table.snapshot)
    return table.java.schema()


def oracle(spark: SparkSession, table: OddTable, schema: Schema) -> Rows:
    """Return the rows that Iceberg's own library reads; of names that are mapped it knows on Spark alone."""
    if not table.is_mapped:
        # Its generic records have no JSON of some defaults and partitions.
        with suppress(Py4JJavaError, PySparkException):
            return _generic(spark, table, schema)
    if table.has_milliseconds:
        raise ValueError("no library that reads milliseconds right")
    return of_arrow(READ(spark, f"{table.location}", ref=table.ref, engine="iceberg").toArrow(), schema)


def _generic(spark: SparkSession, table: OddTable, schema: Schema) -> Rows:
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    iceberg = jvm.org.apache.iceberg
    builder = iceberg.data.IcebergGenerics.read(table.java)
    if table.snapshot is not None:
        builder = builder.useSnapshot(table.snapshot).project(_java_schema(jvm, table))
    found = builder.build()
    rows = []
    records = found.iterator()
    while records.hasNext():
        record = records.next()
        # Where rows are deleted a record has their positions, too.
        struct = record.struct()
        wrapped = iceberg.data.InternalRecordWrapper(struct).wrap(record)
        row = json.loads(iceberg.SingleValueParser.toJson(struct, wrapped))
        rows.append({one.name: from_json(row.get(f"{one.field_id}"), one.field_type) for one in schema.fields})
    found.close()
    return rows


def counted(rows: Iterable[dict[str, Any]], names: Sequence[str]) -> Counter[str]:
    """Return the rows in a form that can be compared: NaN is NaN there, and zeros have signs."""
    return Counter(repr([row[name] for name in names]) for row in rows)


def of_arrow(table: pa.Table, schema: Schema) -> list[dict[str, Any]]:
    """Return the rows of an Arrow table, column by column: names may be alike."""
    columns = {}
    for one in schema.fields:
        if one.name in table.column_names:
            columns[one.name] = [from_arrow(cell, one.field_type) for cell in _cells(table.column(one.name))]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _cells(column: pa.ChunkedArray) -> list[Any]:
    # Python's times end in the year 9999, and pandas' sooner.
    kind = column.type
    plain = column.cast(pa.int64()) if pa.types.is_timestamp(kind) or pa.types.is_time(kind) else column
    return list(plain.to_pylist())


def attempted(read: Callable[[], Counter[str]]) -> Counter[str] | Refused:
    """Return the rows, or a refusal; anything else than a typed error of ours is a fault, and raised."""
    try:
        return read()
    except NotSupported as refusal:
        return Refused("NotSupported", refusal.found)
    except SfnError as refusal:
        return Refused(type(refusal).__name__, f"{refusal}")


def by_python(table: OddTable, schema: Schema, which: Filter | None, names: Sequence[str]) -> Counter[str]:
    """Return what `sfn.read` reads of some columns."""
    found = sfn.read(table.location, ref=table.ref, row_filter=which.text if which else None, selected_fields=names)
    assert found.column_names == [one.name for one in schema.fields if one.name in names]
    return counted(of_arrow(found, schema), names)


def by_source(table: OddTable, schema: Schema, which: Filter | None = None) -> Counter[str]:
    """Return what the data source `sfn` gives Spark, which it offers a filter to; Spark leaves out rows afterwards."""
    offered = [] if which is None or which.pushed is None else [_offered(*which.pushed)]
    rows = rows_read(f"{table.location}", offered, ref=table.ref)
    read = [{one.name: from_arrow(row[one.name], one.field_type) for one in schema.fields} for row in rows]
    return counted(
        (row for row in read if which is None or which.holds(row) is True), [one.name for one in schema.fields]
    )


def _offered(operator: str, column: str, value: Any) -> source.Filter:  # noqa: ANN401 - of any type
    name = (column,)
    match operator:
        case "=":
            return source.EqualTo(name, value)
        case "<>":
            return source.Not(source.EqualTo(name, value))
        case "<":
            return source.LessThan(name, value)
        case "<=":
            return source.LessThanOrEqual(name, value)
        case ">":
            return source.GreaterThan(name, value)
        case ">=":
            return source.GreaterThanOrEqual(name, value)
        case "in":
            return source.In(name, tuple(value))
        case "not in":
            return source.Not(source.In(name, tuple(value)))
        case "like":
            return source.StringStartsWith(name, value)
        case _:
            return source.Not(source.StringStartsWith(name, value))


@dataclass(frozen=True, slots=True)
class Asked:
    """A read by an engine of Spark's."""

    engine: str
    which: Filter | None

    @property
    def what(self) -> str:
        return self.which.text if self.which else "all"


def by_spark(
    spark: SparkSession, table: OddTable, schema: Schema, asked: Sequence[Asked]
) -> list[Counter[str] | Refused]:
    """Return what some reads give, all of them in one job."""
    names = [one.name for one in schema.fields]
    found: list[Counter[str] | Refused] = []
    frames: list[DataFrame] = []
    for number, one in enumerate(asked):
        try:
            frame = READ(
                spark,
                f"{table.location}",
                ref=table.ref,
                engine=one.engine,
                row_filter=one.which.text if one.which else None,
            )
        except SfnError as refusal:
            found.append(Refused(type(refusal).__name__, getattr(refusal, "found", f"{refusal}")))
            continue
        assert frame.columns == names
        found.append(Counter())
        frames.append(frame.withColumn("_number", f.lit(number)))
    if not frames:
        return found
    whole = reduce(DataFrame.union, frames).coalesce(1).toArrow()
    rows: dict[int, list[dict[str, Any]]] = {}
    for number, row in zip(whole.column("_number").to_pylist(), of_arrow(whole, schema), strict=True):
        rows.setdefault(number, []).append(row)
    return [
        counted(rows.get(number, []), names) if isinstance(one, Counter) else one for number, one in enumerate(found)
    ]
