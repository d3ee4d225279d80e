"""Planning with PyIceberg, and reading what was planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapreplace
from typing import Final

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, IncrementalAppendScan

from sfn.errors import NotSupported, SfnError
from sfn.reader.table import unread
from sfn.spark.kinds import in_files
from sfn.spark.source.conform import parts
from sfn.spark.source.datafile import batches
from sfn.spark.source.orc import misread
from sfn.spark.source.settled import Settled

_READ: Final = {FileFormat.PARQUET, FileFormat.ORC}
_READ_DELETES: Final = {*_READ, FileFormat.PUFFIN}
_GROUP: Final = 128 << 20
"""Bytes of data files that one task of Spark's reads, where they are small (Iceberg's `read.split.target-size`)."""
_OPENING: Final = 2 << 20
"""What opening a file counts as, in bytes: half of what Iceberg has (`read.split.open-file-cost`), as one more task
costs more where Python reads."""


def planned(settled: Settled, which: BooleanExpression = AlwaysTrue()) -> list[FileScanTask]:  # noqa: B008 - frozen
    """The files that have the rows.

    Args:
        which: rows that it does not hold for may be left out.

    Raises:
        NotSupported: there is something that PyIceberg does not read.
        Unreadable: see `sfn.reader.table.rows` for its kinds.
    """
    try:
        tasks = list(_plan(settled, which))
    except SfnError:
        raise
    except Exception as error:
        if _has_equality_deletes(settled):
            raise _refusal(settled, "files without equality deletes", "equality deletes") from error
        # PyIceberg, PyArrow and the drivers let through whatever they stumble over.
        raise unread(settled.location, error) from error
    _check(settled, tasks)
    return tasks


def grouped(tasks: Sequence[FileScanTask]) -> list[list[FileScanTask]]:
    """The files, small ones together: in as many groups as there must be, each of about the same size."""
    sizes = [max(task.file.file_size_in_bytes, _OPENING) for task in tasks]
    groups: list[list[FileScanTask]] = [[] for _ in range(min(len(tasks), -(-sum(sizes) // _GROUP)))]
    filled = [(0, number) for number in range(len(groups))]
    for size, index in sorted(zip(sizes, range(len(tasks)), strict=True), reverse=True):
        total, number = filled[0]
        groups[number].append(tasks[index])
        heapreplace(filled, (total + size, number))
    return groups


def rows(
    settled: Settled, columns: Schema, schema: pa.Schema, which: BooleanExpression, tasks: Sequence[FileScanTask]
) -> Iterator[pa.RecordBatch]:
    """The rows of some files, one file after another.

    Args:
        columns: which columns.
        schema: their types, as Spark takes them.
        which: rows that it does not hold for may be left out.

    Raises:
        Unreadable: see `sfn.reader.table.rows` for its kinds.
    """
    io = settled.io
    try:
        for task in tasks:
            for batch in batches(task, settled.metadata, io, columns, schema, which):
                yield from parts(batch)
    except (SfnError, MemoryError):
        raise
    except Exception as error:
        raise unread(settled.location, error) from error


def _plan(settled: Settled, which: BooleanExpression) -> Iterable[FileScanTask]:
    if not settled.is_appended:
        return DataScan(settled.metadata, settled.io, row_filter=which).plan_files()
    if settled.snapshot is None or settled.snapshot.snapshot_id == settled.after:
        return ()
    return IncrementalAppendScan(
        settled.metadata,
        settled.io,
        row_filter=which,
        from_snapshot_id=settled.after,
        to_snapshot_id=settled.snapshot.snapshot_id,
    ).plan_files()


def _check(settled: Settled, tasks: Iterable[FileScanTask]) -> None:
    for task in tasks:
        if task.file.file_format not in _READ:
            raise _refusal(settled, "data in Parquet or ORC files", in_files("data", task.file))
        if task.file.file_format is FileFormat.ORC and (found := misread(task.file, settled.schema)):
            raise _refusal(settled, "what PyArrow reads of ORC files", in_files(found, task.file))
        for delete in task.delete_files:
            if delete.file_format not in _READ_DELETES:
                expected = "position deletes in Parquet, ORC or Puffin files"
                raise _refusal(settled, expected, in_files("position deletes", delete))


def _has_equality_deletes(settled: Settled) -> bool:
    if settled.snapshot is None:
        return False
    io = settled.io
    return any(
        entry.data_file.content is DataFileContent.EQUALITY_DELETES
        for manifest in settled.snapshot.manifests(io)
        if manifest.content is ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(io)
    )


def _refusal(settled: Settled, expected: str, found: str) -> NotSupported:
    return NotSupported(settled.location, expected=expected, found=found, remedy="read it with engine='iceberg'")
