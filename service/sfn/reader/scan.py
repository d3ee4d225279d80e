"""The rows of a table, filtered and projected, as Arrow has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask

from sfn.errors import SfnError
from sfn.reader.datafile import read_batches
from sfn.reader.planning import FilePlanner, plan_files
from sfn.reader.predicate import bind_filter
from sfn.reader.project import Projection
from sfn.reader.table import to_unreadable

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable

_WIDTH: Final = 16
"""Files that are read at a time."""


class RowScan:
    """A read of some rows and columns.

    Args:
        table: whose rows.
        which: the row filter; None for all rows.
        selected_fields: as PyIceberg's `Table.scan` takes them.

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
        """Return the rows, `limit` of them at most.

        Raises:
            NotSupported: the table has something that is not read.
            Unreadable: see `sfn.reader.table.read_rows` for its kinds.
        """
        remedy = "read it with PySpark: sfn.spark.read(…, engine='iceberg')"
        tasks = plan_files(self._metadata, self._location, self._plan, self._filter.pruning, remedy)
        try:
            found = list(self._batches(tasks, limit))
        except (SfnError, MemoryError):
            raise
        except Exception as error:
            # PyIceberg, PyArrow and the drivers let through whatever they stumble over.
            raise to_unreadable(self._location, error) from error
        return pa.Table.from_batches(found, self._types).slice(0, limit)

    def _plan(self, pruning: BooleanExpression) -> Iterable[FileScanTask]:
        return FilePlanner(self._metadata, self._io, pruning).plan_current_snapshot()

    def _batches(self, tasks: Sequence[FileScanTask], limit: int | None) -> Iterator[pa.RecordBatch]:
        rows, first = 0, 0
        # Without a limit all files are read; with one the first alone may have rows enough.
        width = 1 if limit is not None else max(1, len(tasks))
        with ThreadPoolExecutor(_WIDTH) as pool:
            while first < len(tasks) and (limit is None or rows < limit):
                for found in pool.map(lambda task: self._file(task, limit), tasks[first : first + width]):
                    yield from found
                    rows += sum(batch.num_rows for batch in found)
                first, width = first + width, min(2 * width, _WIDTH)

    def _file(self, task: FileScanTask, limit: int | None) -> list[pa.RecordBatch]:
        """Return the rows of a file, those that the filter leaves out dropped batch by batch."""
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
    """Return the columns that are read: those that are selected, and the whole of those that the filter compares."""
    own = {field.field_id: field for field in columns.fields}
    whole = {field.field_id: field for field in table.fields if field.field_id in needed}
    if all(own.get(number) == field for number, field in whole.items()):
        return columns
    return Schema(*(own | whole).values())
