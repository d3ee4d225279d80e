"""The snapshot of a table that an engine reads, for those engines that have PyIceberg plan."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from sfn.errors import MalformedMetadata, NotSupported
from sfn.reader import metadata
from sfn.reader import resolve as reading
from sfn.reader.files import run_synchronously
from sfn.reader.resolve import Resolved
from sfn.reader.table import load_metadata, metadata_at_ref, schema_of
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH
from sfn.spark.asked import AsOfOrdinal, AsOfRef, AsOfSnapshot, AsOfTime, ReadRequest
from sfn.spark.moments import check_snapshot_id, snapshot_at


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """A table in one state.

    Attributes:
        found: which metadata file has it.
        metadata: what stands in there.
        snapshot: the one to be read; None where the table is empty.
        schema: with which it is read.
    """

    found: Resolved
    metadata: TableMetadata
    snapshot: Snapshot | None
    schema: Schema


def pin_table(request: ReadRequest) -> PinnedTable:
    """The state that is asked for, looked up now.

    Raises:
        NotSupported: the metadata has what PyIceberg does not know.
        Unreadable: see `sfn.errors` for its other kinds; CommitNotFound where the table has no such snapshot.
    """
    found = run_synchronously(
        reading.resolve_question(
            request.file_system_options.open_file_system(), request.question, request.file_system_options
        )
    )
    whole = _load_metadata(request, found)
    match request.as_of:
        case AsOfRef(name):
            at = metadata_at_ref(whole, name, found.metadata_location)
            return PinnedTable(found, whole, _current_snapshot(at), at.schema())
        case AsOfOrdinal():
            at = metadata_at_ref(whole, MAIN_BRANCH, found.metadata_location)
            return PinnedTable(found, whole, _current_snapshot(at), at.schema())
        case AsOfSnapshot(number):
            return _pin_at_snapshot(found, whole, number)
        case AsOfTime(milliseconds):
            log = [(entry.timestamp_ms, entry.snapshot_id) for entry in whole.snapshot_log]
            return _pin_at_snapshot(found, whole, snapshot_at(log, milliseconds, found.metadata_location))


def _load_metadata(request: ReadRequest, found: Resolved) -> TableMetadata:
    try:
        return load_metadata(found)
    except MalformedMetadata as error:
        # Only if that is not what it is: else this says so.
        run_synchronously(
            metadata.read_metadata(request.file_system_options.open_file_system(), canonical(found.metadata_location))
        )
        # PyIceberg's own words name the type, in the third line of four.
        said = " ".join(f"{error.__cause__}".splitlines()[2:3]).strip().partition(" [type=")[0]
        raise NotSupported(
            found.metadata_location,
            expected="metadata of which PyIceberg knows everything",
            found=f"what it does not know: {said}" if said else error.found,
            remedy="engine='iceberg' may read it",
        ) from error


def _current_snapshot(whole: TableMetadata) -> Snapshot | None:
    return None if whole.current_snapshot_id is None else whole.snapshot_by_id(whole.current_snapshot_id)


def _pin_at_snapshot(found: Resolved, whole: TableMetadata, number: int) -> PinnedTable:
    check_snapshot_id(number, [one.snapshot_id for one in whole.snapshots], found.metadata_location)
    (snapshot,) = (one for one in whole.snapshots if one.snapshot_id == number)
    return PinnedTable(found, whole, snapshot, schema_of(whole, snapshot, found.metadata_location))
