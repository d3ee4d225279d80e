"""Pin a table's state: find the snapshot of a request, and keep what is needed to read it later."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import IcebergBaseModel

from sfn.errors import CommitNotFound, MalformedMetadata, NotSupported
from sfn.reader import metadata
from sfn.reader import resolve as reading
from sfn.reader.files import FileSystemOptions, run_synchronously
from sfn.reader.metadata import AllowedLocations, check_log_times
from sfn.reader.resolve import Resolved
from sfn.reader.table import load_metadata, metadata_at_ref, open_allowed_io, schema_of
from sfn.sfnfile.document import LAST_ORDINAL, render_ordinal
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH
from sfn.spark.request import AsOfOrdinal, AsOfRef, AsOfSnapshot, AsOfTime, ReadRequest

_MAX_NAMED = 10
_MILLENNIUM = 946_684_800_000
_REMEDY_SNAPSHOT = "ask for one of these; expired snapshots are gone"
_REMEDY_TIME = f"{_REMEDY_SNAPSHOT}; a time in Unix milliseconds is given as a datetime or an Ordinal"


def snapshot_at(log: Iterable[tuple[int, int]], milliseconds: int, where: str) -> int:
    """Return the id of the snapshot that was current at a time.

    Args:
        log: the table's history: times in Unix milliseconds, and ids of the snapshots that became current.
        where: the metadata file.

    Raises:
        CommitNotFound: the history begins later, or its times are impossible.
    """
    entries = list(log)
    check_log_times(entries, "snapshot-log", where)
    earlier = [number for at, number in entries if at <= milliseconds]
    if not earlier:
        first = min((at for at, _ in entries), default=None)
        raise CommitNotFound(
            where,
            expected=f"a snapshot at or before {render_ordinal(milliseconds)}",
            found="none" if first is None else f"the first of {render_ordinal(first)}",
            remedy="ask for a later time; expired snapshots are gone",
        )
    return earlier[-1]


def check_snapshot_id(number: int, known: Collection[int], where: str) -> None:
    """Check that a table has a snapshot.

    Args:
        known: the ids of the table's snapshots, oldest first.
        where: the metadata file.

    Raises:
        CommitNotFound: the table has no such snapshot.
    """
    if number not in known:
        raise CommitNotFound(
            where,
            expected=f"a snapshot {number}",
            found=f"the newest: {', '.join(map(str, list(known)[-_MAX_NAMED:])) or 'none'}",
            remedy=_REMEDY_TIME if _MILLENNIUM < number <= LAST_ORDINAL else _REMEDY_SNAPSHOT,
        )


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """A table in one state.

    Attributes:
        found: the metadata file with the state.
        metadata: its contents.
        snapshot: the snapshot to read; None if the table is empty.
        schema: the schema to read it with.
    """

    found: Resolved
    metadata: TableMetadata
    snapshot: Snapshot | None
    schema: Schema


def pin_table(request: ReadRequest) -> PinnedTable:
    """Find the state that a request asks for.

    Raises:
        NotSupported: PyIceberg does not know something in the metadata.
        Unreadable: see `sfn.errors` for its other kinds; CommitNotFound if the table has no such snapshot.
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
        # If the file is no metadata at all, this raises a more exact error.
        run_synchronously(
            metadata.read_metadata(request.file_system_options.open_file_system(), canonical(found.metadata_location))
        )
        # The third of the four lines of PyIceberg's error names the type.
        reason = " ".join(f"{error.__cause__}".splitlines()[2:3]).strip().partition(" [type=")[0]
        raise NotSupported(
            found.metadata_location,
            expected="metadata that PyIceberg supports",
            found=f"what it does not know: {reason}" if reason else error.found,
            remedy="engine='iceberg' may read it",
        ) from error


def _current_snapshot(whole: TableMetadata) -> Snapshot | None:
    return None if whole.current_snapshot_id is None else whole.snapshot_by_id(whole.current_snapshot_id)


def _pin_at_snapshot(found: Resolved, whole: TableMetadata, number: int) -> PinnedTable:
    check_snapshot_id(number, [one.snapshot_id for one in whole.snapshots], found.metadata_location)
    (snapshot,) = (one for one in whole.snapshots if one.snapshot_id == number)
    return PinnedTable(found, whole, snapshot, schema_of(whole, snapshot, found.metadata_location))


_NAME_MAPPING: Final = "schema.name-mapping.default"
"""The table property that maps columns of files without field ids."""


@dataclass(frozen=True, slots=True)
class PinnedScan:
    """A selection of a table's rows that can be sent to other processes.

    Attributes:
        location: the metadata file, for messages and for the check of locations.
        metadata: the part of the metadata that these rows need; later commits and clean-ups do not change it.
        directory: the table's canonical URL.
        allowed: see `ReadRequest`.
        options: see `ReadRequest`; they may contain secrets.
        after: for appended rows, the snapshot after which they were appended; None for all rows.
        is_appended: only the rows that were appended after that snapshot, or ever, up to the current one.
    """

    location: str
    metadata: TableMetadata = field(repr=False)
    directory: str
    allowed: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    after: int | None = None
    is_appended: bool = False

    @property
    def schema(self) -> Schema:
        """The schema of the rows."""
        return self.metadata.schema()

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot to read; None if the table is empty."""
        return self.metadata.current_snapshot()

    @property
    def io(self) -> FileIO:
        """PyIceberg's access to the table's files."""
        opening = FileSystemOptions(self.directory, self.options, self.allowed)
        return open_allowed_io(self.location, AllowedLocations(self.directory, self.allowed), opening)

    def text(self) -> str:
        """Return the scan as text, for an option of Spark.

        Raises:
            NotSupported: an option of the store's driver can't be written as JSON.
        """
        body = {
            "location": self.location,
            # PyIceberg 0.12 can't write metadata of version 3, and its own `model_dump_json` refuses to.
            "metadata": IcebergBaseModel.model_dump_json(self.metadata, exclude_none=True),
            "directory": self.directory,
            "allowed": self.allowed,
            "options": {name: self._checked_option(name, value) for name, value in self.options.items()},
            "after": self.after,
            "is_appended": self.is_appended,
        }
        return json.dumps(body)

    def _checked_option(self, name: str, value: object) -> object:
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            # The value may be a secret, and so may the encoder's message.
            raise NotSupported(
                self.directory,
                expected="storage_options that are JSON, as they go to Spark's Python processes",
                found=f"one that is none: {name!r}, {type(value).__name__}",
                remedy="give it as JSON has it, or use engine='files' or engine='iceberg'",
            ) from None
        return value

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the scan of a text that `text` made."""
        body = json.loads(text)
        metadata, allowed = TableMetadataUtil.parse_raw(body.pop("metadata")), tuple(body.pop("allowed"))
        return cls(metadata=metadata, allowed=allowed, **body)


def pin_scan(request: ReadRequest, pinned: PinnedTable) -> PinnedScan:
    """Return the scan of a pinned state's rows."""
    snapshots = () if pinned.snapshot is None else (pinned.snapshot,)
    return _to_pinned_scan(request, pinned, snapshots)


def pin_appended_scan(
    request: ReadRequest, pinned: PinnedTable, after: int | None, since: Sequence[Snapshot]
) -> PinnedScan:
    """Return the scan of the rows that some of a table's snapshots appended; the last of these is the pinned one.

    Args:
        after: the snapshot before the first of them; None if they begin with the table.
        since: the snapshots, in any order.
    """
    return _to_pinned_scan(request, pinned, since, after, is_appended=True)


def _to_pinned_scan(
    request: ReadRequest,
    pinned: PinnedTable,
    snapshots: Sequence[Snapshot],
    after: int | None = None,
    *,
    is_appended: bool = False,
) -> PinnedScan:
    metadata_file = pinned.metadata
    needed = {
        "schemas": [pinned.schema],
        "current_schema_id": pinned.schema.schema_id,
        "snapshots": list(snapshots),
        "current_snapshot_id": None if pinned.snapshot is None else pinned.snapshot.snapshot_id,
        "properties": {_NAME_MAPPING: metadata_file.properties[_NAME_MAPPING]}
        if _NAME_MAPPING in metadata_file.properties
        else {},
        "refs": {},
        "snapshot_log": [],
        "metadata_log": [],
        "statistics": [],
        "partition_statistics": [],
        "sort_orders": [],
        "default_sort_order_id": 0,
    }
    location = pinned.found.metadata_location
    metadata = metadata_file.model_copy(update=needed)
    return PinnedScan(location, metadata, request.directory, request.allowed, dict(request.options), after, is_appended)
