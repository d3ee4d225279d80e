"""`EventCatalog`: a catalog that cannot be queried. Its events are the source of truth, with the metadata files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from sfn.catalogs import SkipNamespace, UnlistedNamespace
from sfn.catalogs.metadata import ReadRange, UnreadableDocument, read_metadata_at
from sfn.domain.catalog_answer import AppliedChanges, Loaded, LoadResult, NoSuchTable, NotModified, UnappliedChange
from sfn.domain.events import EventHistory, ReportedChange, TableOrigin
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import DeadLetterReason
from sfn.errors import ErrorScope, LocationRefused, Permanent, SfnError, Transient
from sfn.sfnfile import event_history
from sfn.sfnfile.locations import canonical, check_location
from sfn.sfnfile.ordering import MetadataOrder, metadata_version

MAX_CACHED_FILES: Final = 64
"""Metadata files that are cached: one publish asks for the same file several times."""
MAX_CACHED_LOG_ENTRIES: Final = 100_000
"""Entries of metadata-logs in the cache (15 MB), over all files; a single file may exceed it."""


class EventCatalog:
    """A catalog known only through its events.

    `load` returns the newest reported metadata file, by metadata-log or version number. Creations, registrations and
    drops alone decide which table has a name (`sfn.sfnfile.event_history`). An unreadable file, or a commit of a table
    without a creation, does not block the other changes.

    Args:
        name: the catalog's name in the configuration.
        catalog_id: its identity in our files.
        read_range: reads metadata files.
        allowed_locations: canonical prefixes; every reported location must be below one of them.
    """

    def __init__(self, name: str, catalog_id: str, read_range: ReadRange, allowed_locations: Sequence[str]) -> None:
        self._name, self._catalog_id, self._read_range, self._allowed_locations = (
            name,
            catalog_id,
            read_range,
            allowed_locations,
        )
        self._cached: OrderedDict[str, Table] = OrderedDict()

    async def load(
        self, table: TableIdentifier, known_etag: str | None, history: EventHistory | None = None
    ) -> LoadResult:
        """Return the state of a table by its events; a table without events is missing."""
        applied = await self._apply(history or EventHistory())
        current = event_history.current(applied.history)
        if current is None or current.metadata_location is None:
            return NoSuchTable(applied)
        etag = _etag(current.metadata_location)
        return (
            NotModified(applied)
            if etag == known_etag
            else Loaded(await self._metadata(current.metadata_location), etag, applied)
        )

    async def is_listed(self, table: TableIdentifier) -> bool:
        """Return False: there is no listing that could contain a table after its drop."""
        return False

    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        """Yield the whole catalog as unlisted."""
        yield UnlistedNamespace(
            (), f'the catalog {self._name} has type = "events": it cannot be queried, only events report its tables'
        )

    async def identity(self) -> str:
        """Return the `catalog_id` for our files."""
        return self._catalog_id

    async def close(self) -> None:
        """Do nothing, as nothing is open."""

    async def _apply(self, history: EventHistory) -> AppliedChanges:
        """Apply all changes that can be applied, in the order of their events."""
        examined = await self._examine(history)
        applied = replace(history, reported_changes=())
        for change in event_history.in_event_order(history.reported_changes):
            if change.is_end:
                applied = event_history.apply_end(applied, change)
            elif (
                file := examined.by_location.get(change.metadata_location or "")
            ) is not None and change.metadata_location is not None:
                order = await self._order(applied, file, change.metadata_location)
                applied = event_history.apply_location(applied, change, file.uuid, order)
        unapplied = {
            change: why
            for change in history.reported_changes
            if (why := examined.unapplied(applied, change)) is not None
        }
        is_news = any(not change.is_doubtful and change not in unapplied for change in history.reported_changes)
        return AppliedChanges(
            applied, tuple(why for one, why in unapplied.items() if not (one.is_doubtful and is_news))
        )

    async def _examine(self, history: EventHistory) -> _ExaminedFiles:
        """Read as few files as needed to know the tables of all: mostly one, because its log names the others."""
        examined = _ExaminedFiles(
            {
                table.metadata_location: _FileOwnership(table.uuid)
                for table in history.tables
                if table.metadata_location is not None
            }
        )
        for known in list(examined.by_location):
            if (metadata := self._cached.get(known)) is not None:
                examined.add_log(metadata)
        expected = event_history.apply_known(history)
        for change in sorted(history.reported_changes, key=_newest_first):
            location = change.metadata_location
            if location is None or location in examined.by_location or location in examined.errors:
                continue
            if canonical(location) in examined.log:
                examined.by_location[location] = _FileOwnership(examined.log[canonical(location)])
            elif change.uuid is not None and _has_ended(expected, change):
                examined.by_location[location] = _FileOwnership(change.uuid, has_ended=True)
            else:
                await self._examine_file(location, examined)
        return examined

    async def _examine_file(self, location: str, examined: _ExaminedFiles) -> None:
        try:
            table = await self._metadata(location)
        except (_MetadataMissing, Permanent) as error:
            if error.scope is not ErrorScope.TABLE:
                raise
            examined.errors[location] = error
        else:
            examined.by_location[location] = _FileOwnership(table.uuid, table)
            examined.add_log(table)

    async def _order(self, history: EventHistory, file: _FileOwnership, location: str) -> MetadataOrder:
        """Return the order of a location relative to the known one of its table."""
        known = event_history.history_of(history, file.uuid)
        if known.metadata_location is not None and canonical(known.metadata_location) == canonical(location):
            return MetadataOrder.SAME
        log = file.table.metadata_log if file.table is not None else ()
        order = event_history.order_of(known, location, log)
        if order is not MetadataOrder.UNKNOWN or known.metadata_location is None:
            return order
        if file.has_ended:
            return MetadataOrder.OLDER
        try:
            metadata = await self._metadata(known.metadata_location)
        except (_MetadataMissing, Permanent) as error:
            if error.scope is not ErrorScope.TABLE:
                raise
            return order
        return event_history.order_of(known, location, log, metadata.metadata_log)

    async def _metadata(self, location: str) -> Table:
        """Return the content of a metadata file, which never changes."""
        found = self._cached.get(location)
        if found is None:
            found = await self._read(location)
        self._cached[location] = found
        self._cached.move_to_end(location)
        while self._is_too_much():
            self._cached.popitem(last=False)
        return found

    def _is_too_much(self) -> bool:
        entries = sum(len(table.metadata_log) for table in self._cached.values())
        return len(self._cached) > MAX_CACHED_FILES or (entries > MAX_CACHED_LOG_ENTRIES and len(self._cached) > 1)

    async def _read(self, location: str) -> Table:
        place = check_location(location, self._allowed_locations)
        try:
            table = await read_metadata_at(self._read_range, place, location)
        except UnreadableDocument as error:
            found = str(error)
        else:
            if table is not None:
                return table
            raise _MetadataMissing(location)
        raise Permanent(
            location,
            scope=ErrorScope.TABLE,
            expected="a metadata file of an Iceberg table",
            found=found,
            remedy="check the file, and the sender's value of metadata_location",
        )


class _MetadataMissing(Transient):
    """A reported metadata file that does not exist, or not yet."""

    def __init__(self, location: str) -> None:
        super().__init__(
            location,
            scope=ErrorScope.TABLE,
            expected="the metadata file that an event named",
            found="no such file",
            remedy="check that the sender sends right locations, and only after the file is written",
        )


@dataclass(frozen=True, slots=True)
class _FileOwnership:
    """The table to which a metadata file belongs.

    Attributes:
        uuid: UUID of the table.
        table: content of the file; None if it need not be read.
        has_ended: True if it need not be read because its table was dropped.
    """

    uuid: str | None
    table: Table | None = None
    has_ended: bool = False


@dataclass(slots=True)
class _ExaminedFiles:
    """The files that one load examined.

    Attributes:
        by_location: owner by location.
        log: table UUID by canonical location, of older metadata files in the logs of those that were read.
        errors: error by location, for files that cannot be read.
    """

    by_location: dict[str, _FileOwnership]
    log: dict[str, str | None] = field(default_factory=dict)
    errors: dict[str, _MetadataMissing | Permanent] = field(default_factory=dict)

    def add_log(self, table: Table) -> None:
        """Add the metadata-log of a table."""
        uuid = table.uuid
        self.log.update({canonical(entry): uuid for entry in table.metadata_log})

    def unapplied(self, history: EventHistory, change: ReportedChange) -> UnappliedChange | None:
        """Return why a change cannot be applied yet; None if it was applied, or never will be."""
        error = self.errors.get(change.metadata_location or "")
        if isinstance(error, _MetadataMissing):
            return None if _is_not_awaited(history, change) else UnappliedChange(change, None, str(error))
        if error is not None:
            reason = (
                DeadLetterReason.LOCATION_REFUSED if isinstance(error, LocationRefused) else DeadLetterReason.PERMANENT
            )
            return UnappliedChange(change, reason, str(error))
        file = self.by_location.get(change.metadata_location or "")
        is_orphan = file is not None and change.origin is None and event_history.is_orphan(history, file.uuid)
        return UnappliedChange(change, None, str(_orphan_error(change))) if is_orphan else None


def _orphan_error(change: ReportedChange) -> SfnError:
    return SfnError(
        change.metadata_location or "",
        expected="an event with the operation create or register for the table, as its name is or was another table's",
        found="only a commit",
        remedy="configure the sender to send it",
    )


def _is_not_awaited(history: EventHistory, change: ReportedChange) -> bool:
    """Return True if a missing file is not awaited: it was probably deleted, with its table or as too old."""
    if change.origin is not None:
        return change.seq < history.ended_seq
    now = event_history.current(history)
    if now is None:
        return history != EventHistory()
    current_version, version_of_change = (
        metadata_version(now.metadata_location or ""),
        metadata_version(change.metadata_location or ""),
    )
    return current_version is not None and version_of_change is not None and version_of_change < current_version


def _has_ended(history: EventHistory, change: ReportedChange) -> bool:
    """Return True if no file can bring the change's table back, as it was dropped or renamed; the file is not read."""
    table = event_history.history_of(history, change.uuid)
    return (
        change.origin is not TableOrigin.REGISTER
        and table.ended_seq >= 0
        and not event_history.is_alive(history, table)
    )


def _newest_first(change: ReportedChange) -> tuple[int, int]:
    number = metadata_version(change.metadata_location or "")
    return (-1 if number is None else number) * -1, -change.seq


def _etag(location: str) -> str:
    # A metadata file never changes, so its location stands for its content.
    return f'"{sha256(location.encode()).hexdigest()[:32]}"'
