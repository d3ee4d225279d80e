"""The engine and data source `sfn`: read by directory with PyIceberg in Spark's Python workers, without a jar.

Spark finds the data sources by the modules `pyspark_sfn` and `pyspark_sfn_log` beside this package, which import the
package on use.
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

_GROUP: Final = 128 << 20
"""The size in bytes of small data files that one task reads together (Iceberg's `read.split.target-size`)."""
_OPENING: Final = 2 << 20
"""The cost of opening a file, in bytes: half of Iceberg's (`read.split.open-file-cost`), because another task costs
more in Python."""


def plan_scan(scan: PinnedScan, which: BooleanExpression = AlwaysTrue()) -> list[FileScanTask]:  # noqa: B008 - frozen
    """Return the files that have the rows of a scan.

    Args:
        which: a filter; rows for which it is not true may be left out.

    Raises:
        NotSupported: PyIceberg can't read some file.
        Unreadable: see `sfn.reader.table.read_rows` for its kinds.
    """
    remedy = "read it with engine='iceberg'"
    plan = partial(_plan, scan)
    return reading.plan_files(scan.metadata, scan.location, plan, which, remedy)


def group_tasks(tasks: Sequence[FileScanTask]) -> list[list[FileScanTask]]:
    """Return the files in as few groups as needed, of about equal size."""
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
    """Yield the rows of some files, one file after another.

    Args:
        columns: the columns to read.
        schema: their types for Spark.
        which: a filter; rows for which it is not true may be left out.

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
    # PyIceberg's scan would use its own planner for a filter, so the filter is applied afterwards.
    appended = IncrementalAppendScan(
        scan.metadata,
        scan.io,
        from_snapshot_id=scan.after,
        to_snapshot_id=scan.snapshot.snapshot_id,
    )
    return planner.filter_tasks(appended.plan_files())


@dataclass(frozen=True, slots=True)
class PartitionFiles(InputPartition):
    """The data files, with their delete files, that one task reads."""

    tasks: Sequence[FileScanTask]


class SfnDataSourceReader(DataSourceReader):
    """The reader of one load.

    Args:
        scan: the rows.
        schema: the columns, with Spark's types.
        is_pushed: accept Spark's filters.

    Raises:
        ValueError: the table has no such columns, or they have other types.
        NotSupported: a column has a type that can't be read.
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
        # If there are no partitions, Spark calls this once with None.
        tasks = partition.tasks if isinstance(partition, PartitionFiles) else ()
        schema = to_arrow_schema(self._schema)
        yield from read_rows(self._scan, self._columns, schema, self._which, tasks)

    def push_filters(self, filters: Sequence[Filter]) -> None:
        """Use filters to leave out files and rows."""
        self._which = to_iceberg_filter(filters, self._scan.schema)


class _PushFilters:
    """The method `pushFilters` of a reader, as an attribute of the object.

    While `spark.sql.python.filterPushdown.enabled` is off, Spark refuses every reader with its own method
    `pushFilters`, and a reader does not know the setting. So the class has no such method, and this object claims to be
    the base class's. Spark calls it if the setting is on, and reads without it otherwise.
    """

    def __init__(self, reader: SfnDataSourceReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: Sequence[Filter]) -> Sequence[Filter]:
        self._reader.push_filters(filters)
        # Return all filters: Spark applies them again, and its comparison decides.
        return filters


def _check(own: StructType, given: StructType) -> None:
    """Refuse a schema with types other than the table's."""
    for field, taken in zip(own, given, strict=True):
        if field.dataType.simpleString() != taken.dataType.simpleString():
            types = f"{field.dataType.simpleString()}, not {taken.dataType.simpleString()}"
            raise ValueError(f"the schema may only choose columns, but {field.name} is of type {types}")


SFN_SOURCE: Final = "sfn"
PINNED_OPTION: Final = "pinnedtoken"
"""The option with which this package's own engine passes a pinned state; not for other callers. The state may contain
credentials of a store, and Spark hides options with `token` in their names."""

_KNOWN: Final = ("ref", "asOf", "columns", "filterPushdown")


class SfnLoad:
    """One `load`. The state is fixed when this object is made, and is sent to other processes.

    Args:
        given: the options from Spark.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
        ValueError: an option is unknown or not valid.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        options = SourceOptions(
            {name: value for name, value in given.items() if name != PINNED_OPTION}, _KNOWN, SFN_SOURCE
        )
        self._is_pushed = options.flag("filterPushdown", default=True)
        if (text := given.get(PINNED_OPTION)) is None:
            request = options.request
            text = pin_scan(request, pin_table(request)).text()
        # Spark pickles this object between its processes; PyIceberg's own objects would be larger.
        self._text = text
        self._names = options.names("columns") if options.get("columns") is not None else None

    def schema(self) -> StructType:
        """Return the columns.

        Raises:
            NotSupported: a column has a type that can't be read.
            ValueError: `columns` names a column that does not exist.
        """
        forget_archive_finders()
        scan = PinnedScan.of(self._text)
        return spark_schema(select_columns(scan.schema, self._names), scan.location)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for the columns of a schema."""
        forget_archive_finders()
        return SfnDataSourceReader(PinnedScan.of(self._text), schema, is_pushed=self._is_pushed)


class SfnEngine:
    """The engine `sfn`: needs no jar and no catalog, and works with every store that fsspec has a driver for."""

    name: str = SFN_SOURCE

    def missing_requirement(self, spark: SparkSession) -> str:
        if find_spec("pyspark.sql.datasource") is None:
            return f"PySpark 4.0 or newer for Python data sources, not {spark.version}"
        return ""

    def read(self, spark: SparkSession, request: ReadRequest) -> DataFrame:
        return to_dataframe(spark, pin_scan(request, pin_table(request)))


def to_dataframe(spark: SparkSession, scan: PinnedScan) -> DataFrame:
    """Return the rows of a pinned state.

    Raises:
        NotSupported: PyIceberg or the data source can't read the table.
        Unreadable: see `sfn.errors` for its other kinds.
    """
    # Spark's processes repeat both calls, but their errors come with pages of stack traces.
    spark_schema(scan.schema, scan.location)
    plan_scan(scan)
    return spark.read.format(SFN_SOURCE).option(PINNED_OPTION, scan.text()).load(scan.directory)
