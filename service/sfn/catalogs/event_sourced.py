"""`EventCatalog`: a catalog that cannot be queried. Its events are the source of truth, with the metadata files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Final, TypeAlias

from sfn.catalogs import Loaded, LoadResult, NoSuchTable, NotModified, SkipNamespace, UnlistedNamespace
from sfn.catalogs.metadata import ReadRange, UnreadableDocument, read_metadata_at
from sfn.domain.events import TableReport, current_table
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ErrorScope, Permanent, Transient
from sfn.sfnfile.locations import MetadataOrder, check_location, compare_metadata

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
        tables = await self._reported(table)
        current = current_table(tables)
        if current is None or not current.locations:
            return NoSuchTable()
        # Events that name no table, after the end of another one, may be late events of that one.
        is_unnamed = current.uuid is None and current.created_seq < 0
        former = frozenset(one.uuid for one in tables if one is not current) if is_unnamed else frozenset()
        if not former and len(current.locations) == 1 and _etag(current.locations[0]) == known_etag:
            return NotModified()
        newest = await self._newest(current, former)
        if newest is None:
            return NoSuchTable()
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

    async def _newest(self, reported: TableReport, former: frozenset[str | None]) -> Table | None:
        """Return the newest of a table's metadata files, with as few reads as needed: mostly one.

        Args:
            reported: the table.
            former: the uuids of the tables that had the name before, if the reported table has no uuid and may be one
                of them; None for an unknown one.

        Returns:
            None if no file is certainly of another table than the former ones.
        """
        newest, late = None, None
        missing: list[str] = []
        for location in reversed(reported.locations):
            if newest is not None and _is_not_newer(location, newest):
                continue
            found = await self._metadata(location)
            if found is None:
                # Of two files of unknown order, the one that was reported first is older.
                if newest is None or _order(newest, location) is MetadataOrder.NEWER:
                    missing.append(location)
            elif _is_late(found, reported, former):
                late = found
            elif newest is None or _order(newest, location, found.metadata_log) is MetadataOrder.NEWER:
                newest = found
        for location in missing:
            if newest is None or not _is_not_newer(location, newest):
                raise _missing(location)
        if newest is None and late is not None and not former:
            raise _other_table(late, reported)
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


def _order(newest: Table, location: str, log: Sequence[str] = ()) -> MetadataOrder:
    return compare_metadata(newest.metadata_location, newest.metadata_log, location, log)


def _is_not_newer(location: str, newest: Table) -> bool:
    """Return whether a location is known to be older than a metadata file that was read, without a read of its own."""
    return _order(newest, location) in {MetadataOrder.SAME, MetadataOrder.OLDER}


def _is_late(found: Table, reported: TableReport, former: frozenset[str | None]) -> bool:
    """Return whether a file is, or may be, of another table than the one that has the name."""
    if former:
        return found.uuid in former or None in former
    return reported.uuid is not None and found.uuid is not None and found.uuid != reported.uuid


def _missing(location: str) -> Transient:
    return Transient(
        location,
        scope=ErrorScope.TABLE,
        expected="the metadata file that an event named",
        found="no such file",
        remedy="check that the sender sends right locations, and only after the file is written",
    )


def _other_table(found: Table, reported: TableReport) -> Permanent:
    return Permanent(
        found.metadata_location,
        scope=ErrorScope.TABLE,
        expected=f"a metadata file of the table {reported.uuid}, which has the name by the events so far",
        found=f"one of the table {found.uuid}",
        remedy="configure the sender to send create, register and drop events too, each with table_uuid",
    )


def _etag(location: str) -> str:
    # A metadata file never changes, so its location stands for its content.
    return f'"{sha256(location.encode()).hexdigest()[:32]}"'
