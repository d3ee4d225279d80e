"""The snapshot of a table that an engine reads, for those engines that have PyIceberg plan."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from sfn.errors import MalformedMetadata, NotSupported
from sfn.pointer.location import canonical
from sfn.pointer.naming import MAIN_BRANCH
from sfn.reader import metadata
from sfn.reader import resolve as reading
from sfn.reader.files import finish
from sfn.reader.resolve import Resolved
from sfn.reader.table import at_ref, loaded, schema_of
from sfn.spark.asked import Asked, Moment, Ordinal, Ref, SnapshotId
from sfn.spark.moments import check_known, current_at


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
        NotSupported: the metadata has what PyIceberg does not know.
        Unreadable: see `sfn.errors` for its other kinds; CommitNotFound where the table has no such snapshot.
    """
    found = finish(reading.answer(asked.opening.storage(), asked.question, asked.opening))
    whole = _whole(asked, found)
    match asked.state:
        case Ref(name):
            at = at_ref(whole, name, found.metadata_location)
            return Pinned(found, whole, _head(at), at.schema())
        case Ordinal():
            at = at_ref(whole, MAIN_BRANCH, found.metadata_location)
            return Pinned(found, whole, _head(at), at.schema())
        case SnapshotId(number):
            return _at(found, whole, number)
        case Moment(milliseconds):
            log = [(entry.timestamp_ms, entry.snapshot_id) for entry in whole.snapshot_log]
            return _at(found, whole, current_at(log, milliseconds, found.metadata_location))


def _whole(asked: Asked, found: Resolved) -> TableMetadata:
    try:
        return loaded(found)
    except MalformedMetadata as error:
        # Only if that is not what it is: else this says so.
        finish(metadata.contents(asked.opening.storage(), canonical(found.metadata_location)))
        # PyIceberg's own words name the type, in the third line of four.
        said = " ".join(f"{error.__cause__}".splitlines()[2:3]).strip().partition(" [type=")[0]
        raise NotSupported(
            found.metadata_location,
            expected="metadata of which PyIceberg knows everything",
            found=f"what it does not know: {said}" if said else error.found,
            remedy="engine='iceberg' may read it",
        ) from error


def _head(whole: TableMetadata) -> Snapshot | None:
    return None if whole.current_snapshot_id is None else whole.snapshot_by_id(whole.current_snapshot_id)


def _at(found: Resolved, whole: TableMetadata, number: int) -> Pinned:
    check_known(number, [one.snapshot_id for one in whole.snapshots], found.metadata_location)
    (snapshot,) = (one for one in whole.snapshots if one.snapshot_id == number)
    return Pinned(found, whole, snapshot, schema_of(whole, snapshot, found.metadata_location))
