"""Which snapshot of a table is meant, by its id or by a time."""

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

# ── moments: Which snapshot of a table is meant

_MAX_NAMED = 10
_MILLENNIUM = 946_684_800_000
_REMEDY_SNAPSHOT = "ask for one of these; expired snapshots are gone"
_REMEDY_TIME = f"{_REMEDY_SNAPSHOT}; a time in Unix milliseconds is given as a datetime or an Ordinal"


def snapshot_at(log: Iterable[tuple[int, int]], milliseconds: int, where: str) -> int:
    """The snapshot that was the table's own at a time.

    Args:
        log: its history: when each became current, in Unix milliseconds, and which that was.
        where: the metadata file.

    Raises:
        CommitNotFound: the history begins later, or its times can't be times.
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
    """Refuse the id of a snapshot that a table does not have.

    Args:
        known: those that it has, the oldest first.
        where: the metadata file.

    Raises:
        CommitNotFound: it has none of this id.
    """
    if number not in known:
        raise CommitNotFound(
            where,
            expected=f"a snapshot {number}",
            found=f"the newest: {', '.join(map(str, list(known)[-_MAX_NAMED:])) or 'none'}",
            remedy=_REMEDY_TIME if _MILLENNIUM < number <= LAST_ORDINAL else _REMEDY_SNAPSHOT,
        )


# ── pinned: The snapshot of a table that an engine reads


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


# ── settled: The state that a DataFrame reads

_NAME_MAPPING: Final = "schema.name-mapping.default"
"""The property that says which columns of files without field ids are which."""


@dataclass(frozen=True, slots=True)
class PinnedScan:
    """Which rows of a table.

    Attributes:
        location: the metadata file, for messages and for where its own files may lie.
        metadata: of it, what is needed to read these rows: no later commit and no clean-up of metadata changes them.
        directory: the table's canonical URL.
        allowed: as of `Asked`.
        options: as of `Asked`; may hold secrets.
        after: of rows that were appended, the snapshot after which; None for all rows.
        is_appended: only the rows that appends added after that snapshot, or ever, up to the current one.
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
        """With which the rows are read."""
        return self.metadata.schema()

    @property
    def snapshot(self) -> Snapshot | None:
        """Which rows; None where there are none."""
        return self.metadata.current_snapshot()

    @property
    def io(self) -> FileIO:
        """What opens the table's files."""
        opening = FileSystemOptions(self.directory, self.options, self.allowed)
        return open_allowed_io(self.location, AllowedLocations(self.directory, self.allowed), opening)

    def text(self) -> str:
        """It, for an option of Spark's.

        Raises:
            NotSupported: an option of the store's driver can't be written down.
        """
        body = {
            "location": self.location,
            # PyIceberg 0.12 writes none of version 3, and so says that there is no text of it.
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
            # It may be a secret, and so may what the encoder says of it.
            raise NotSupported(
                self.directory,
                expected="storage_options that are JSON, as they go to Spark's Python processes",
                found=f"one that is none: {name!r}, {type(value).__name__}",
                remedy="give it as JSON has it, or use engine='files' or engine='iceberg'",
            ) from None
        return value

    @classmethod
    def of(cls, text: str) -> Self:
        """The one whose text it is."""
        body = json.loads(text)
        metadata, allowed = TableMetadataUtil.parse_raw(body.pop("metadata")), tuple(body.pop("allowed"))
        return cls(metadata=metadata, allowed=allowed, **body)


def pin_scan(request: ReadRequest, pinned: PinnedTable) -> PinnedScan:
    """The rows of a pinned state."""
    snapshots = () if pinned.snapshot is None else (pinned.snapshot,)
    return _to_pinned_scan(request, pinned, snapshots)


def pin_appended_scan(
    request: ReadRequest, pinned: PinnedTable, after: int | None, since: Sequence[Snapshot]
) -> PinnedScan:
    """The rows that were appended in some of a table's snapshots, of which the last is the pinned one.

    Args:
        after: the snapshot before the first of them; None where they begin with the table.
        since: they, in any order.
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
