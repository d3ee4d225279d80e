"""Which files hold the rows of a table, as PyIceberg plans them, and which of them are not read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from sfn.errors import NotSupported, SfnError
from sfn.reader.datafile import in_files
from sfn.reader.orc import misread
from sfn.reader.table import unread

_READ: Final = {FileFormat.PARQUET, FileFormat.ORC}
_READ_DELETES: Final = {*_READ, FileFormat.PUFFIN}

_EQUALITY: Final = "equality deletes"
"""What PyIceberg's message has in it where there are such; its exception is of no kind of its own."""


def planned(
    metadata: TableMetadata,
    location: str,
    plan: Callable[[BooleanExpression], Iterable[FileScanTask]],
    pruning: BooleanExpression,
    remedy: str,
) -> list[FileScanTask]:
    """Return the files that are to be read.

    Args:
        location: the metadata file, for messages.
        plan: asks PyIceberg for the files that may have rows for which an expression holds.
        pruning: that expression.
        remedy: what reads tables that this does not.

    Raises:
        NotSupported: there is something that PyIceberg or PyArrow does not read.
        Unreadable: see `sfn.reader.table.rows` for its kinds.
    """
    try:
        tasks = _tasks(plan, pruning)
    except SfnError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and _EQUALITY in f"{error}":
            raise _refusal(location, "files without equality deletes", _EQUALITY, remedy) from error
        # PyIceberg, PyArrow and the drivers let through whatever they stumble over.
        raise unread(location, error) from error
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
        # Statistics that can't be decoded rule no file out.
        return list(plan(AlwaysTrue()))


def _check(task: FileScanTask, metadata: TableMetadata, location: str, remedy: str) -> None:
    if task.file.file_format not in _READ:
        raise _refusal(location, "data in Parquet or ORC files", in_files("data", task.file), remedy)
    if task.file.file_format is FileFormat.ORC and (found := misread(task.file, metadata.schema())):
        raise _refusal(location, "what PyArrow reads of ORC files", in_files(found, task.file), remedy)
    for delete in task.delete_files:
        if delete.file_format not in _READ_DELETES:
            expected = "position deletes in Parquet, ORC or Puffin files"
            raise _refusal(location, expected, in_files("position deletes", delete), remedy)


def _refusal(location: str, expected: str, found: str, remedy: str) -> NotSupported:
    return NotSupported(location, expected=expected, found=found, remedy=remedy)
