"""The comparison of readers: odd tables read by every engine and by Iceberg's own library, alone and in batches."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyiceberg import types
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as source
from pyspark.sql import functions as f

import sfn
import sfn.spark
from sfn.errors import NotSupported, SfnError
from sfn.sfnfile.document import render
from sfn.sfnfile.naming import MAIN_BRANCH
from tests.spark.differential.batches import Report
from tests.spark.differential.tables import DANGLING_BRANCH, OTHER, TAG, Maker, OddTable
from tests.spark.differential.values import Filter, from_arrow, from_json, some_filter
from tests.spark.session import SMALL_TABLES, spark_session, spark_settings
from tests.spark.tables import read_rows
from tests.support.table_directory import Directory

Rows: TypeAlias = Sequence[dict[str, Any]]
IDENTIFIER: Final = "odd.table"
READ: Final = sfn.spark.read
"""Each access to the name checks the versions of packages, which takes 10 ms."""
FILTERS = 4
"""Of each table."""
EARLIER = 0.3
"""The share of tables of which an earlier snapshot is read as well."""

KNOWN = ["Type not recognized: decimal_", "ResidualEvaluator$ResidualVisitor.startsWith(", "Invalid object: null"]
"""What PyIceberg refuses: an Avro file that has a type of decimals twice. Where Iceberg's own library fails: `like` and
`not in` with texts, in an `or` with another column, for a file of which the partition is NULL."""
PLAIN = ("equality deletes", "a partition by values of type fixed")
"""What `sfn.read` refuses."""
_LAST_LINES: Final = 15
"""Lines of Spark's log that are printed after the JVM ended."""


def compare_table(spark: SparkSession, folder: Path, seed: int, most: int | None = None, on_spark: int = 2) -> Report:
    """Return what was different.

    Args:
        folder: gets the table, for as long as it is compared.
        most: steps that make the table, at most.
        on_spark: how many of the filters its engines are asked with, each of which costs a tenth of a second.
    """
    report = Report(seed)
    try:
        _compare(spark, folder, report, most, on_spark)
    finally:
        shutil.rmtree(folder / f"t{seed}", ignore_errors=True)
    return report


def _compare(spark: SparkSession, folder: Path, report: Report, most: int | None, on_spark: int) -> None:
    table = Maker(spark, folder, report.seed, most).make()
    report.trace = table.trace
    publish(table)
    schema = schema_of(spark, table)
    rng = Random(f"filters {report.seed}")
    if table.reference:
        _refer(spark, table, schema, report)
    if table.reference != DANGLING_BRANCH:
        table.edited = None
        publish(table)
    _rows(spark, table, schema, report, rng, on_spark)
    if earlier := _earlier(table, rng):
        report.trace.append(f"{earlier.ref} at {earlier.snapshot}")
        _rows(spark, earlier, schema_of(spark, earlier), report, rng, 1)


def _earlier(table: OddTable, rng: Random) -> OddTable | None:
    """Return some tables with a branch or tag at an earlier snapshot."""
    snapshots = [one.snapshotId() for one in table.java.snapshots()][:-1]
    if not snapshots or table.edited is not None or rng.random() > EARLIER:
        return None
    ref, snapshot = rng.choice([TAG, OTHER]), rng.choice(snapshots)
    refs = table.java.manageSnapshots()
    (refs.createTag if ref == TAG else refs.createBranch)(ref, snapshot).commit()
    table.java.refresh()
    publish(table)
    return replace(table, ref=ref, snapshot=snapshot)


def _rows(spark: SparkSession, table: OddTable, schema: Schema, report: Report, rng: Random, on_spark: int) -> None:
    """Compare the rows, without a filter and with some."""
    filters = [some_filter(rng, schema) for _ in range(FILTERS if table.snapshot is None else 1)]
    try:
        rows = oracle(spark, table, schema)
    except Exception as error:  # noqa: BLE001 - Java's
        report.counts["oracle failed"] += 1
        report.trace.append(f"oracle: {_cause(f'{error}')}")
        return
    report.trace += [f"row {list(row.values())}" for row in rows]
    if table.snapshot is not None:
        report.counts[f"earlier {table.ref}"] += 1
    _Comparison(spark, table, schema, rows, report).run(filters, rng, on_spark)


def _refer(spark: SparkSession, table: OddTable, schema: Schema, report: Report) -> None:
    """Compare what readers make of references that are wrong: every engine refuses the metadata."""
    names = [one.name for one in schema.fields]
    if table.reference == DANGLING_BRANCH:
        table = replace(table, ref=OTHER)
    found = {
        "read": attempted(partial(by_python, table, schema, None, names)),
        "source": attempted(partial(by_source, table, schema)),
    }
    for engine in ("files", "iceberg"):
        try:
            (found[engine],) = by_spark(spark, table, schema, [SparkRead(engine, None)])
        except Exception as error:  # noqa: BLE001 - Iceberg's own library has its own
            found[engine] = Refused(type(error).__name__, _cause(f"{error}"))
    report.counts[table.reference] += 1
    for engine, one in found.items():
        if not isinstance(one, Refused) or one.kind != "MalformedMetadata":
            report.bad.append(f"{engine}, {table.reference}: {one}")


class _Comparison:
    """The reads of a table, and the rows that they must give."""

    def __init__(self, spark: SparkSession, table: OddTable, schema: Schema, rows: Rows, report: Report) -> None:
        self._spark, self._table, self._schema, self._rows, self._report = spark, table, schema, rows, report
        self._names = [one.name for one in schema.fields]

    def run(self, filters: Sequence[Filter], rng: Random, on_spark: int) -> None:
        """Read with each of some filters, and with some columns."""
        for which in (None, *filters):
            some = rng.sample(self._names, rng.randrange(1, len(self._names) + 1))
            chosen = self._names if which is None or rng.random() < 0.4 else some
            self._check(
                f"read, {which.text if which else 'all'}, {chosen}",
                partial(by_python, self._table, self._schema, which, chosen),
                self._expected(which, chosen),
            )
        for which in (None, *(one for one in filters if one.pushed is not None)):
            self._check(
                f"source, {which.text if which else 'all'}",
                partial(by_source, self._table, self._schema, which),
                self._expected(which, self._names),
            )
        self._on_spark(filters[:on_spark])

    def _on_spark(self, filters: Sequence[Filter]) -> None:
        # Iceberg's own library loses rows where it compares these with the bounds of files.
        odd = {
            one.name
            for one in self._schema.fields
            if isinstance(one.field_type, types.UUIDType) or one.initial_default is not None
        }
        if self._table.snapshot is not None:
            # It looks up a filter's columns in the schema of the snapshot and in the current one.
            then, now = (
                {(one.name, one.field_id, f"{one.field_type}") for one in schema_of(self._spark, other).fields}
                for other in (replace(self._table, ref=TAG), replace(self._table, ref=MAIN_BRANCH))
            )
            odd |= {name for name, *_ in then ^ now}
        reads = [SparkRead("files", which) for which in (None, *filters)]
        # Iceberg's own library refuses metadata for any reference that is wrong.
        if not self._table.has_milliseconds and self._table.edited is None:
            # Nor does it apply a delete file whose statistics contradict a filter.
            reads += [
                SparkRead("iceberg", which)
                for which in (None, *filters)
                if which is None or not (which.columns & odd or self._table.has_odd_deletes)
            ]
        try:
            founds = by_spark(self._spark, self._table, self._schema, reads)
        except Exception:  # noqa: BLE001 - each is read again by itself, to find the one that fails
            founds = [self._alone(one) for one in reads]
        for one, found in zip(reads, founds, strict=True):
            _judge(self._report, f"{one.engine}, {one.what}", found, self._expected(one.which, self._names))

    def _alone(self, one: SparkRead) -> Counter[str] | Refused:
        try:
            return by_spark(self._spark, self._table, self._schema, [one])[0]
        except Exception as error:  # noqa: BLE001 - whatever it is, no reader of ours may raise it
            return Refused(type(error).__name__, _cause(f"{error}"))

    def _expected(self, which: Filter | None, chosen: Sequence[str]) -> Counter[str]:
        return counted((row for row in self._rows if which is None or which.holds(row) is True), chosen)

    def _check(self, what: str, read: Callable[[], Counter[str]], right: Counter[str]) -> None:
        try:
            found = attempted(read)
        except Exception as error:  # noqa: BLE001 - as above
            found = Refused(type(error).__name__, _cause(f"{error}"))
        _judge(self._report, what, found, right)


def _cause(text: str) -> str:
    """Return the innermost of Java's exceptions and where it was raised, or what there is."""
    found, _, raised = text.rpartition("Caused by: ")[2].partition("\n\tat")
    return f"{found[:600]}{raised.partition(chr(10))[0]}"


def _judge(report: Report, what: str, found: Counter[str] | Refused, right: Counter[str]) -> None:
    engine = what.partition(",")[0]
    if isinstance(found, Refused):
        is_fair = _is_fair(engine, found)
        report.counts[f"{engine}: {'refused' if is_fair else 'failed'}"] += 1
        (report.trace if is_fair else report.bad).append(f"{what}: {found.kind}: {found.found}")
    elif found != right:
        report.counts[f"{engine}: different"] += 1
        report.bad.append(f"{what}: lost {dict(right - found)}, made up {dict(found - right)}")
    else:
        report.counts[f"{engine}: alike"] += 1


def _is_fair(engine: str, refused: Refused) -> bool:
    if any(known in refused.found for known in KNOWN):
        return True
    return refused.kind == "NotSupported" and (engine != "read" or refused.found.startswith(PLAIN))


@contextmanager
def spark_for_small_tables() -> Iterator[tuple[SparkSession, Path]]:
    """Start a session that reads small tables fast, and make a folder for the tables."""
    with TemporaryDirectory(prefix="sfn-differential-") as made:
        folder = Path(made)
        # There is one process per processor.
        chosen = {**spark_settings(folder, "http://127.0.0.1:1"), **SMALL_TABLES, "spark.master": "local[1]"}
        with spark_session(folder, chosen) as spark:
            yield spark, folder


def compare_seeds(seeds: Sequence[int], reports: Connection) -> None:
    """Send True once the session is there, then the report of each seed."""
    with spark_for_small_tables() as (spark, folder):
        reports.send(True)
        for seed in seeds:
            reports.send(_compare_seed(spark, folder, seed))


def _compare_seed(spark: SparkSession, folder: Path, seed: int) -> Report:
    try:
        return compare_table(spark, folder, seed)
    except Exception as error:  # noqa: BLE001 - Java's, of what the generator tried
        jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no name of its own for it
        try:
            jvm.java.lang.System.nanoTime()
        except Exception:  # noqa: BLE001 - whatever PySpark raises without a JVM
            last = (folder / "spark.log").read_text(errors="replace").splitlines()[-_LAST_LINES:]
            print(f"the JVM ended at seed {seed}:", *last, sep="\n", flush=True)
            raise error from None
        return Report(seed, bad=[f"could not be compared: {type(error).__name__}: {error}"])


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
    rows = read_rows(f"{table.location}", offered, ref=table.ref)
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
class SparkRead:
    """A read by an engine of Spark's."""

    engine: str
    which: Filter | None

    @property
    def what(self) -> str:
        return self.which.text if self.which else "all"


def by_spark(
    spark: SparkSession, table: OddTable, schema: Schema, reads: Sequence[SparkRead]
) -> list[Counter[str] | Refused]:
    """Return what some reads give, all of them in one job."""
    names = [one.name for one in schema.fields]
    found: list[Counter[str] | Refused] = []
    frames: list[DataFrame] = []
    for number, one in enumerate(reads):
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
