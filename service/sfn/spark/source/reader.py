"""What Spark asks the data source: on the driver which partitions there are, on executors for their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import FileScanTask
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from typing_extensions import override

from sfn.spark.finders import forget_archive_finders
from sfn.spark.source.filters import to_iceberg_filter
from sfn.spark.source.scan import group_tasks, plan_scan, read_rows
from sfn.spark.source.settled import PinnedScan
from sfn.spark.source.types import select_columns, spark_schema


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
