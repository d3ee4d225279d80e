"""The snapshot of a table that an engine reads, for those engines that have PyIceberg plan."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from sfn.errors import CommitNotFound
from sfn.pointer.document import render_ordinal
from sfn.reader import resolve as reading
from sfn.reader.files import finish
from sfn.reader.resolve import Resolved
from sfn.reader.table import at_ref, loaded
from sfn.spark.asked import Asked, Moment, Ordinal, Ref, SnapshotId


@dataclass(frozen=True, slots=True)
class Pinned:
    """A table in one state.

    Attributes:
        found: which metadata file has it.
        whole: what stands in there.
        snapshot: the one to be read; None where the table is empty.
        schema: with which it is read.
    """

    found: Resolved
    whole: TableMetadata
    snapshot: Snapshot | None
    schema: Schema


def pin(asked: Asked) -> Pinned:
    """The state that is asked for, looked up now.

    Raises:
        Unreadable: see `sfn.errors` for its kinds; CommitNotFound where the table has no such snapshot.
    """
    found = finish(reading.answer(asked.opening.storage(), asked.question, asked.opening))
    whole = loaded(found)
    match asked.state:
        case Ref(name):
            at = at_ref(whole, name, found.metadata_location)
            return Pinned(found, whole, _head(at), at.schema())
        case Ordinal():
            return Pinned(found, whole, _head(whole), whole.schema())
        case SnapshotId(number):
            return _at(found, whole, number)
        case Moment(milliseconds):
            return _at(found, whole, _current_at(found, whole, milliseconds))


def _head(whole: TableMetadata) -> Snapshot | None:
    return None if whole.current_snapshot_id is None else whole.snapshot_by_id(whole.current_snapshot_id)


def _current_at(found: Resolved, whole: TableMetadata, milliseconds: int) -> int:
    """The snapshot that was the table's own at a time, by its history."""
    earlier = [entry for entry in whole.snapshot_log if entry.timestamp_ms <= milliseconds]
    if not earlier:
        first = min((entry.timestamp_ms for entry in whole.snapshot_log), default=None)
        raise CommitNotFound(
            found.metadata_location,
            expected=f"a snapshot at or before {render_ordinal(milliseconds)}",
            found="none" if first is None else f"the first of {render_ordinal(first)}",
            remedy="ask for a later time; expired snapshots are gone",
        )
    return earlier[-1].snapshot_id


def _at(found: Resolved, whole: TableMetadata, number: int) -> Pinned:
    snapshot = whole.snapshot_by_id(number)
    if snapshot is None:
        known = ", ".join(str(one.snapshot_id) for one in whole.snapshots[-10:]) or "none"
        raise CommitNotFound(
            found.metadata_location,
            expected=f"a snapshot {number}",
            found=f"the newest: {known}",
            remedy="ask for one of these; expired snapshots are gone",
        )
    schema = next((one for one in whole.schemas if one.schema_id == snapshot.schema_id), whole.schema())
    return Pinned(found, whole, snapshot, schema)
