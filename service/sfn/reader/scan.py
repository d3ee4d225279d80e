"""Read the rows of a table, filtered and projected, as an Arrow table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    In,
    LessThanOrEqual,
    LiteralPredicate,
    Or,
    Reference,
    SetPredicate,
)
from pyiceberg.expressions.literals import Literal, LongLiteral
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, ManifestGroupPlanner
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import TimeTransform
from pyiceberg.typedef import KeyDefaultDict
from typing_extensions import override

from sfn.errors import NotSupported, SfnError
from sfn.reader.data_file import Projection, describe_file, first_misread_field, read_batches
from sfn.reader.predicate import bind_filter
from sfn.reader.table import to_unreadable

_READ: Final = {FileFormat.PARQUET, FileFormat.ORC}
_READ_DELETES: Final = {*_READ, FileFormat.PUFFIN}
_DELETES: Final = {DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES}

_EQUALITY: Final = "equality deletes"
"""A part of PyIceberg's message if there are equality deletes; its exception has no type of its own."""


def plan_files(
    metadata: TableMetadata,
    location: str,
    plan: Callable[[BooleanExpression], Iterable[FileScanTask]],
    pruning: BooleanExpression,
    remedy: str,
) -> list[FileScanTask]:
    """Return the files to read.

    Args:
        location: the metadata file, for messages.
        plan: returns PyIceberg's tasks for the files that may have rows for which an expression is true.
        pruning: that expression.
        remedy: advice for a table that can't be read here.

    Raises:
        NotSupported: PyIceberg or PyArrow can't read some file.
        Unreadable: see `sfn.reader.table.read_rows` for its kinds.
    """
    try:
        tasks = _tasks(plan, pruning)
    except SfnError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and _EQUALITY in f"{error}":
            raise _refusal(location, "files without equality deletes", _EQUALITY, remedy) from error
        # PyIceberg, PyArrow and the drivers raise errors of any type.
        raise to_unreadable(location, error) from error
    for task in tasks:
        _check(task, metadata, location, remedy)
    return tasks


def _tasks(
    plan: Callable[[BooleanExpression], Iterable[FileScanTask]], pruning: BooleanExpression
) -> list[FileScanTask]:
    try:
        return list(plan(pruning))
    except (SfnError, OSError):
        raise
    except Exception:
        if isinstance(pruning, AlwaysTrue):
            raise
        # If statistics can't be decoded, no file is ruled out.
        return list(plan(AlwaysTrue()))


def _check(task: FileScanTask, metadata: TableMetadata, location: str, remedy: str) -> None:
    if task.file.file_format not in _READ:
        raise _refusal(location, "data in Parquet or ORC files", describe_file("data", task.file), remedy)
    if task.file.file_format is FileFormat.ORC and (found := first_misread_field(task.file, metadata.schema())):
        raise _refusal(location, "what PyArrow reads of ORC files", describe_file(found, task.file), remedy)
    for delete in task.delete_files:
        if delete.file_format not in _READ_DELETES:
            expected = "position deletes in Parquet, ORC or Puffin files"
            raise _refusal(location, expected, describe_file("position deletes", delete), remedy)


def _refusal(location: str, expected: str, found: str, remedy: str) -> NotSupported:
    return NotSupported(location, expected=expected, found=found, remedy=remedy)


class FilePlanner(ManifestGroupPlanner):
    """A planner for the files that may have rows for which an expression is true.

    A delete file is ruled out only by its partition. Its column statistics describe the rows of the delete file: the
    value of a column that is no key may differ from the value in the row that it deletes.

    The year, month, day or hour of a file before 1970 may be one too large. Iceberg's Java library before 0.11 rounded
    these numbers towards zero. Later versions widen their comparisons in the same way.
    """

    def plan_current_snapshot(self) -> Iterable[FileScanTask]:
        """Return the data files of the table's current snapshot, each with its deletes."""
        snapshot = self.table_metadata.current_snapshot()
        return () if snapshot is None else self.plan_files(snapshot.manifests(self.io))

    def filter_tasks(self, tasks: Iterable[FileScanTask]) -> list[FileScanTask]:
        """Return the tasks with a data file that may hold a matching row, by its partition and its statistics."""
        in_partition = KeyDefaultDict(self._build_partition_evaluator)
        by_statistics = self._build_metrics_evaluator()
        return [task for task in tasks if in_partition[task.file.spec_id](task.file) and by_statistics(task.file)]

    @override
    def _build_partition_projection(self, spec_id: int) -> BooleanExpression:
        fields = self.table_metadata.specs()[spec_id].fields
        times = {field.name for field in fields if isinstance(field.transform, TimeTransform)}
        return _widened(super()._build_partition_projection(spec_id), times)

    @override
    def _build_metrics_evaluator(self) -> Callable[[DataFile], bool]:
        may_match = super()._build_metrics_evaluator()
        return lambda file: file.content in _DELETES or may_match(file)


def _widened(projected: BooleanExpression, times: Collection[str]) -> BooleanExpression:
    """Return an expression of partition values that also holds for values before 1970 that are one too large.

    Args:
        projected: an inclusive projection by PyIceberg: `and`, `or`, and predicates without `not`, `<` and `>`.
        times: the names of the fields that are years, months, days or hours.
    """
    match projected:
        case And(left=left, right=right):
            return And(_widened(left, times), _widened(right, times))
        case Or(left=left, right=right):
            return Or(_widened(left, times), _widened(right, times))
        case LiteralPredicate(term=Reference(name=name)) if name in times:
            return _later(projected)
        case SetPredicate(term=Reference(name=name)) if name in times:
            return In(term=projected.term, values=_with_later(projected.literals))
        case _:
            return projected


def _later(predicate: LiteralPredicate) -> BooleanExpression:
    match predicate:
        case LessThanOrEqual() if predicate.literal.value < 0:
            return LessThanOrEqual(term=predicate.term, value=LongLiteral(predicate.literal.value + 1))
        case EqualTo():
            return In(term=predicate.term, values=_with_later({predicate.literal}))
        case _:
            # Values that are too large match a lower bound all the more.
            return predicate


def _with_later(literals: Iterable[Literal[Any]]) -> set[Literal[Any]]:
    return {*literals, *(LongLiteral(one.value + 1) for one in literals if one.value < 0)}


if TYPE_CHECKING:
    from pyiceberg.table import StaticTable

_WIDTH: Final = 16
"""Files that are read at a time."""


class RowScan:
    """A read of some rows and columns.

    Args:
        table: the table to read.
        which: the row filter; None for all rows.
        selected_fields: the columns, as for PyIceberg's `Table.scan`.

    Raises:
        ValueError: `which` or `selected_fields` do not fit the table.
    """

    def __init__(
        self, table: StaticTable, which: str | BooleanExpression | None, selected_fields: Sequence[str]
    ) -> None:
        self._metadata, self._io, self._location = table.metadata, table.io, table.metadata_location
        self._filter = bind_filter(table.schema(), which)
        self._columns = table.scan(selected_fields=tuple(selected_fields)).projection()
        self._read = _with(self._columns, table.schema(), self._filter.columns)
        self._types = schema_to_pyarrow(self._columns, include_field_ids=False)
        self._read_types = schema_to_pyarrow(self._read, include_field_ids=False)

    def rows(self, limit: int | None) -> pa.Table:
        """Return the rows.

        Args:
            limit: the maximum number of rows; None for all.

        Raises:
            NotSupported: PyIceberg or PyArrow can't read some file.
            Unreadable: see `sfn.reader.table.read_rows` for its kinds.
        """
        remedy = "read it with PySpark: sfn.spark.read(…, engine='iceberg')"
        tasks = plan_files(self._metadata, self._location, self._plan, self._filter.pruning, remedy)
        try:
            found = list(self._batches(tasks, limit))
        except (SfnError, MemoryError):
            raise
        except Exception as error:
            # PyIceberg, PyArrow and the drivers raise errors of any type.
            raise to_unreadable(self._location, error) from error
        return pa.Table.from_batches(found, self._types).slice(0, limit)

    def _plan(self, pruning: BooleanExpression) -> Iterable[FileScanTask]:
        return FilePlanner(self._metadata, self._io, pruning).plan_current_snapshot()

    def _batches(self, tasks: Sequence[FileScanTask], limit: int | None) -> Iterator[pa.RecordBatch]:
        rows, first = 0, 0
        # Without a limit all files are read. With a limit the first file alone may have enough rows.
        width = 1 if limit is not None else max(1, len(tasks))
        with ThreadPoolExecutor(_WIDTH) as pool:
            while first < len(tasks) and (limit is None or rows < limit):
                for found in pool.map(lambda task: self._file(task, limit), tasks[first : first + width]):
                    yield from found
                    rows += sum(batch.num_rows for batch in found)
                first, width = first + width, min(2 * width, _WIDTH)

    def _file(self, task: FileScanTask, limit: int | None) -> list[pa.RecordBatch]:
        """Return the matching rows of a file; each batch is filtered as it is read."""
        projection = Projection(self._read, self._columns, self._types, {})
        found: list[pa.RecordBatch] = []
        rows = 0
        pruning = self._filter.pruning
        for batch in read_batches(task, self._metadata, self._io, self._read, self._read_types, pruning):
            if limit is not None and rows >= limit:
                break
            selected = self._filter.apply(batch)
            if selected.num_rows:
                found.append(selected if self._read is self._columns else projection.project(selected))
                rows += selected.num_rows
        return found


def _with(columns: Schema, table: Schema, needed: frozenset[int]) -> Schema:
    """Return the columns to read: the selected ones, and all columns that the filter compares, as a whole."""
    own = {field.field_id: field for field in columns.fields}
    whole = {field.field_id: field for field in table.fields if field.field_id in needed}
    if all(own.get(number) == field for number, field in whole.items()):
        return columns
    return Schema(*(own | whole).values())
