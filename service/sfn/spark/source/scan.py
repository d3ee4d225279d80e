"""Planning with PyIceberg, and reading what was planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from heapq import heapreplace
from typing import Final

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, IncrementalAppendScan

from sfn.errors import SfnError
from sfn.reader import scan as reading
from sfn.reader.data_file import read_batches, split_batch
from sfn.reader.table import to_unreadable
from sfn.spark.source.settled import PinnedScan

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
