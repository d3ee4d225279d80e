"""The Python data sources `sfn` and `sfn-log`: reading by directory where Spark has no jar of Iceberg's.

Spark finds them by the modules `pyspark_sfn` and `pyspark_sfn_log`, which lie beside this package and import it only
once they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapreplace
from importlib.util import find_spec
from typing import Final

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, IncrementalAppendScan
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from typing_extensions import override

from sfn.errors import SfnError
from sfn.reader import scan as reading
from sfn.reader.data_file import read_batches, split_batch
from sfn.reader.table import to_unreadable
from sfn.spark.arrow_types import select_columns, spark_schema
from sfn.spark.request import ReadRequest
from sfn.spark.source_options import SourceOptions, to_iceberg_filter
from sfn.spark.start import forget_archive_finders
from sfn.spark.time_travel import PinnedScan, pin_scan, pin_table

# ── scan: Planning with PyIceberg

_GROUP: Final = 128 << 20
"""Bytes of data files that one task of Spark's reads, where they are small (Iceberg's `read.split.target-size`)."""
_OPENING: Final = 2 << 20
"""What opening a file counts as, in bytes: half of what Iceberg has (`read.split.open-file-cost`), as one more task
costs more where Python reads."""


def plan_scan(scan: PinnedScan, which: BooleanExpression = AlwaysTrue()) -> list[FileScanTask]:  # noqa: B008 - frozen
    """The files that have the rows.

    Args:
        which: rows that it does not hold for may be left out.

    Raises:
        NotSupported: there is something that PyIceberg does not read.
        Unreadable: see `sfn.reader.table.read_rows` for its kinds.
    """
    remedy = "read it with engine='iceberg'"
    plan = partial(_plan, scan)
    return reading.plan_files(scan.metadata, scan.location, plan, which, remedy)


def group_tasks(tasks: Sequence[FileScanTask]) -> list[list[FileScanTask]]:
    """The files, small ones together: in as many groups as there must be, each of about the same size."""
    sizes = [max(task.file.file_size_in_bytes, _OPENING) for task in tasks]
    groups: list[list[FileScanTask]] = [[] for _ in range(min(len(tasks), -(-sum(sizes) // _GROUP)))]
    filled = [(0, number) for number in range(len(groups))]
    for size, index in sorted(zip(sizes, range(len(tasks)), strict=True), reverse=True):
        total, number = filled[0]
        groups[number].append(tasks[index])
        heapreplace(filled, (total + size, number))
    return groups


def read_rows(
    scan: PinnedScan, columns: Schema, schema: pa.Schema, which: BooleanExpression, tasks: Sequence[FileScanTask]
) -> Iterator[pa.RecordBatch]:
    """The rows of some files, one file after another.

    Args:
        columns: which columns.
        schema: their types, as Spark takes them.
        which: rows that it does not hold for may be left out.

    Raises:
        Unreadable: see `sfn.reader.table.read_rows` for its kinds.
    """
    io = scan.io
    try:
        for task in tasks:
            for batch in read_batches(task, scan.metadata, io, columns, schema, which):
                yield from split_batch(batch)
    except (SfnError, MemoryError):
        raise
    except Exception as error:
        raise to_unreadable(scan.location, error) from error


def _plan(scan: PinnedScan, which: BooleanExpression) -> Iterable[FileScanTask]:
    planner = reading.FilePlanner(scan.metadata, scan.io, which)
    if not scan.is_appended:
        return planner.plan_current_snapshot()
    if scan.snapshot is None or scan.snapshot.snapshot_id == scan.after:
        return ()
    # PyIceberg's scan has a planner of its own, so it is given no filter.
    appended = IncrementalAppendScan(
        scan.metadata,
        scan.io,
        from_snapshot_id=scan.after,
        to_snapshot_id=scan.snapshot.snapshot_id,
    )
    return planner.filter_tasks(appended.plan_files())


# ── reader: What Spark asks the data source


@dataclass(frozen=True, slots=True)
class PartitionFiles(InputPartition):
    """The data files, with their delete files, that one task reads."""

    tasks: Sequence[FileScanTask]


class SfnDataSourceReader(DataSourceReader):
    """One read.

    Args:
        settled: which rows.
        schema: which columns, and what Spark takes them for.
        is_pushed: take filters where Spark offers them.

    Raises:
        ValueError: the table has no such columns, or they are of other types.
        NotSupported: a column has a type that is not read.
    """

    def __init__(self, scan: PinnedScan, schema: StructType, *, is_pushed: bool) -> None:
        self._scan, self._schema = scan, schema
        self._columns = select_columns(scan.schema, schema.names)
        _check(spark_schema(self._columns, scan.location), schema)
        self._which: BooleanExpression = AlwaysTrue()
        if is_pushed:
            self.__dict__["pushFilters"] = _PushFilters(self)

    @override
    def partitions(self) -> Sequence[InputPartition]:
        return [PartitionFiles(group) for group in group_tasks(plan_scan(self._scan, self._which))]

    @override
    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        forget_archive_finders()
        # Where there are no partitions Spark asks for the rows of none.
        tasks = partition.tasks if isinstance(partition, PartitionFiles) else ()
        schema = to_arrow_schema(self._schema)
        yield from read_rows(self._scan, self._columns, schema, self._which, tasks)

    def push_filters(self, filters: Sequence[Filter]) -> None:
        """Leave out rows for which these do not hold, as far as that can be seen here."""
        self._which = to_iceberg_filter(filters, self._scan.schema)


class _PushFilters:
    """A reader's `pushFilters`, as an attribute of the reader itself.

    While `spark.sql.python.filterPushdown.enabled` is off Spark refuses every reader whose method is not the base
    class's, and a reader is not told whether it is on. So the class has no such method, and this one says that it is
    the base class's: Spark calls it where the setting is on, and reads without it where it is off.
    """

    def __init__(self, reader: SfnDataSourceReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: Sequence[Filter]) -> Sequence[Filter]:
        self._reader.push_filters(filters)
        # All are left to Spark as well: it is Spark's comparison that counts.
        return filters


def _check(own: StructType, given: StructType) -> None:
    """Refuse a schema that has other types than the table."""
    for field, taken in zip(own, given, strict=True):
        if field.dataType.simpleString() != taken.dataType.simpleString():
            types = f"{field.dataType.simpleString()}, not {taken.dataType.simpleString()}"
            raise ValueError(f"a schema that only chooses columns: {field.name} is of type {types}")


# ── rows: The rows of a table by its directory

SFN_SOURCE: Final = "sfn"
PINNED_OPTION: Final = "settledtoken"
"""The option by which this package's own engine names a state that it settled itself; nobody else has one. It may hold
credentials of a store: Spark shows no option that is called a token."""

_KNOWN: Final = ("ref", "asOf", "columns", "filterPushdown")


class SfnLoad:
    """One `load`. The state is settled as it is made; what goes to other processes says which it is.

    Args:
        given: options as Spark gives them.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
        ValueError: an option is not known, or has no such form.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        options = SourceOptions(
            {name: value for name, value in given.items() if name != PINNED_OPTION}, _KNOWN, SFN_SOURCE
        )
        self._is_pushed = options.flag("filterPushdown", default=True)
        if (text := given.get(PINNED_OPTION)) is None:
            request = options.request
            text = pin_scan(request, pin_table(request)).text()
        # What Spark pickles between its processes: PyIceberg's own objects are larger.
        self._text = text
        self._names = options.names("columns") if options.get("columns") is not None else None

    def schema(self) -> StructType:
        """The columns.

        Raises:
            NotSupported: one has a type that is not read.
            ValueError: `columns` names one that there is not.
        """
        forget_archive_finders()
        scan = PinnedScan.of(self._text)
        return spark_schema(select_columns(scan.schema, self._names), scan.location)

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads the columns of a schema."""
        # It needs a second more of imports than a schema.

        forget_archive_finders()
        return SfnDataSourceReader(PinnedScan.of(self._text), schema, is_pushed=self._is_pushed)


# ── engine: The engine `sfn`


class SfnEngine:
    """Reads with PyIceberg in Spark's Python workers: no jar, no catalog, every store that fsspec has a driver for."""

    name: str = SFN_SOURCE

    def missing_requirement(self, spark: SparkSession) -> str:
        if find_spec("pyspark.sql.datasource") is None:
            return f"PySpark 4.0 or newer for Python data sources, not {spark.version}"
        return ""

    def read(self, spark: SparkSession, request: ReadRequest) -> DataFrame:
        return to_dataframe(spark, pin_scan(request, pin_table(request)))


def to_dataframe(spark: SparkSession, scan: PinnedScan) -> DataFrame:
    """The rows of a settled state.

    Raises:
        NotSupported: the table has what PyIceberg or the data source can't read.
        Unreadable: see `sfn.errors` for its other kinds.
    """
    # Spark's own processes do both again; what they raise comes with pages of traces.
    spark_schema(scan.schema, scan.location)
    plan_scan(scan)
    return spark.read.format(SFN_SOURCE).option(PINNED_OPTION, scan.text()).load(scan.directory)
