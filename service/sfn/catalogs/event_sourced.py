"""`EventCatalog`: a catalog that cannot be queried. Its events are the source of truth, with the metadata files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Final, TypeAlias

from sfn.catalogs import SkipNamespace, UnlistedNamespace
from sfn.catalogs.metadata import ReadRange, UnreadableDocument, read_metadata_at
from sfn.domain.catalog_answer import Loaded, LoadResult, NoSuchTable, NotModified
from sfn.domain.events import TableReport, current_table
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ErrorScope, Permanent, Transient
from sfn.sfnfile.locations import check_location
from sfn.sfnfile.ordering import MetadataOrder, compare_metadata

MAX_CACHED_FILES: Final = 64
"""Metadata files that are cached: one publish asks for the same file several times."""
MAX_CACHED_LOG_ENTRIES: Final = 100_000
"""Entries of metadata-logs in the cache (15 MB), over all files; a single file may exceed it."""

ReportedTables: TypeAlias = Callable[[TableIdentifier], Awaitable[Sequence[TableReport]]]
"""A function like `sfn.inbox.TableIndex.reported_tables`."""


async def nothing_reported(_: TableIdentifier) -> Sequence[TableReport]:
    """Return no tables, for a command without an inbox."""
    return ()


class EventCatalog:
    """A catalog known only through its events.

    `load` returns the newest metadata file that events reported for the table that has the name: by metadata-log, then
    by version number, then by arrival.

    Args:
        name: the catalog's name in the configuration.
        catalog_id: its identity in our files.
        read_range: reads metadata files.
        allowed_locations: canonical prefixes; every reported location must be below one of them.
        reported: returns what events reported of a name so far.
    """

    def __init__(
        self,
        name: str,
        catalog_id: str,
        read_range: ReadRange,
        allowed_locations: Sequence[str],
        reported: ReportedTables = nothing_reported,
    ) -> None:
        self._name, self._catalog_id, self._reported = name, catalog_id, reported
        self._read_range, self._allowed_locations = read_range, allowed_locations
        self._cached: OrderedDict[str, Table] = OrderedDict()

    async def load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        """Return the state of a table by its events; a table without events is missing.

        Raises:
            Transient: with scope table, a reported metadata file does not exist, or not yet.
            Permanent: with scope table, a reported file is no metadata file or belongs to another table;
                `LocationRefused` for a location that is not allowed.
            ExternalError: from `read_range`.
        """
        current = current_table(await self._reported(table))
        if current is None or not current.locations:
            return NoSuchTable()
        if len(current.locations) == 1 and _etag(current.locations[0]) == known_etag:
            return NotModified()
        newest = await self._newest(current)
        etag = _etag(newest.metadata_location)
        return NotModified() if etag == known_etag else Loaded(newest, etag)

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

    async def _newest(self, reported: TableReport) -> Table:
        """Return the newest of a table's metadata files, with as few reads as needed: mostly one."""
        newest: Table | None = None
        problems: dict[str, Transient | Permanent] = {}
        for location in reversed(reported.locations):
            if newest is not None and _is_not_newer(location, newest):
                continue
            found = await self._metadata(location)
            if found is None:
                problems[location] = _missing(location)
            elif None not in {found.uuid, reported.uuid} and found.uuid != reported.uuid:
                problems[location] = _other_table(location, found, reported)
            elif newest is None or _order(newest, found) is MetadataOrder.NEWER:
                newest = found
        for location, problem in problems.items():
            # Another table's file is a late event, as long as there is a file of this table.
            if newest is None or (isinstance(problem, Transient) and not _is_not_newer(location, newest)):
                raise problem
        if newest is None:
            raise ValueError(reported)
        return newest

    async def _metadata(self, location: str) -> Table | None:
        """Return the content of a metadata file, which never changes; None if there is no file."""
        found = self._cached.get(location)
        if found is None:
            found = await self._read(location)
        if found is None:
            return None
        self._cached[location] = found
        self._cached.move_to_end(location)
        while self._is_too_much():
            self._cached.popitem(last=False)
        return found

    def _is_too_much(self) -> bool:
        entries = sum(len(table.metadata_log) for table in self._cached.values())
        return len(self._cached) > MAX_CACHED_FILES or (entries > MAX_CACHED_LOG_ENTRIES and len(self._cached) > 1)

    async def _read(self, location: str) -> Table | None:
        try:
            return await read_metadata_at(self._read_range, check_location(location, self._allowed_locations), location)
        except UnreadableDocument as error:
            raise Permanent(
                location,
                scope=ErrorScope.TABLE,
                expected="a metadata file of an Iceberg table",
                found=str(error),
                remedy="check the file, and the sender's value of metadata_location",
            ) from None


def _order(newest: Table, other: Table) -> MetadataOrder:
    return compare_metadata(newest.metadata_location, newest.metadata_log, other.metadata_location, other.metadata_log)


def _is_not_newer(location: str, newest: Table) -> bool:
    """Return whether a location is known to be older than a metadata file that was read, without a read of its own."""
    order = compare_metadata(newest.metadata_location, newest.metadata_log, location, ())
    return order in {MetadataOrder.SAME, MetadataOrder.OLDER}


def _missing(location: str) -> Transient:
    return Transient(
        location,
        scope=ErrorScope.TABLE,
        expected="the metadata file that an event named",
        found="no such file",
        remedy="check that the sender sends right locations, and only after the file is written",
    )


def _other_table(location: str, found: Table, reported: TableReport) -> Permanent:
    return Permanent(
        location,
        scope=ErrorScope.TABLE,
        expected=f"a metadata file of the table {reported.uuid}, which has the name by the events so far",
        found=f"one of the table {found.uuid}",
        remedy="configure the sender to send create, register and drop events too, each with table_uuid",
    )


def _etag(location: str) -> str:
    # A metadata file never changes, so its location stands for its content.
    return f'"{sha256(location.encode()).hexdigest()[:32]}"'
