"""The tables that events report in event-only catalogs, by name: one event changes them at a time. Pure.

Events arrive late, twice and in any order, so a rule must not depend on the order where the events themselves decide:

- Of two metadata files of one table, the one with the greater version number is newer, whatever came first.
- A table is created once. It comes back to a name that it lost only by a registration or a rename with a metadata file
  that is not older. A commit brings no table back, and takes no name from a table that was created there.
- A drop or a rename ends the table with the uuid of the event, also if it comes before all other events of the table.
- What is reported under a former name follows the table to its new name.

Events without a uuid are about the table that has the name now. Their order of arrival decides. After an end, a commit
without a uuid may be of the next table or a late one: the metadata file decides (`sfn.catalogs.event_sourced`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from sfn.domain.events import Notification, TableOrigin, TableReport, current_table
from sfn.domain.identifiers import TableIdentifier, normal_uuid
from sfn.domain.jobs import DeadLetterReason, PendingChange
from sfn.inbox.model import Job
from sfn.sfnfile.ordering import MetadataOrder, compare_metadata

MAX_TABLES = 8
"""Most tables of one name that are remembered."""
MAX_LOCATIONS = 4
"""Most metadata locations of a table that wait for a publish, because their order is not known yet."""
_MAX_RENAMES = 8
"""Most renames that are followed from the name in a late event."""
_DOUBTFUL_REASONS = frozenset(
    {DeadLetterReason.LOCATION_REFUSED, DeadLetterReason.PERMANENT, DeadLetterReason.EXHAUSTED, DeadLetterReason.POISON}
)

Tables: TypeAlias = tuple[TableReport, ...]


def tables_of(job: Job | None) -> Tables:
    """Return the tables of a job's name, with what its last publish showed about the current one.

    The published file shows the table's uuid and, after a publish of all events, is its newest file. If the job is a
    dead letter that a wrong location may have caused, only the published location remains, so that the next event
    counts.
    """
    tables, published = (job.table_state.reported, job.table_state.live) if job is not None else ((), None)
    table = after = current_table(tables)
    if job is None or after is None:
        return tables
    is_doubtful, location = job.reason in _DOUBTFUL_REASONS, None
    if published is not None and after.uuid is None and published.metadata_location in after.locations:
        tables = tuple(one for one in tables if one is table or one.uuid != published.uuid)
        after = replace(after, uuid=published.uuid)
    if published is not None and after.uuid == published.uuid:
        location = published.metadata_location
    if is_doubtful:
        after = replace(after, locations=(location,) if location is not None else ())
    elif location in after.locations and job.pending == PendingChange():
        after = replace(after, locations=(location,))
    return _replace_table(tables, table, after)


def on_report(
    name: TableIdentifier, notification: Notification, seq: int, known: Callable[[TableIdentifier], Tables]
) -> dict[TableIdentifier, Tables]:
    """Return the tables of each name that an event of an event-only catalog changes.

    Args:
        name: the subject of the event.
        notification: the event.
        seq: its number.
        known: returns the tables of a name before the event.
    """
    report = _Report(seq, known)
    report.fold(name, notification)
    return {name: tables for name, tables in report.tables.items() if tables != report.before[name]}


class _Report:
    """One event.

    Attributes:
        before: the tables of the names that the event is about.
        tables: these tables after the event.
    """

    def __init__(self, seq: int, known: Callable[[TableIdentifier], Tables]) -> None:
        self._seq, self._known = seq, known
        self.before: dict[TableIdentifier, Tables] = {}
        self.tables: dict[TableIdentifier, Tables] = {}

    def fold(self, name: TableIdentifier, notification: Notification) -> None:
        uuid, location = normal_uuid(notification.uuid), notification.min_metadata_location
        locations = () if location is None else (location,)
        if notification.renamed_from is not None or notification.renamed_to is not None:
            self._rename(notification.renamed_from or name, notification.renamed_to or name, uuid, locations)
        elif notification.drop:
            self._end(name, uuid)
        elif locations:
            self._report(name, uuid, locations, notification.origin)

    def _of(self, name: TableIdentifier) -> Tables:
        if name not in self.tables:
            self.before[name] = self.tables[name] = self._known(name)
        return self.tables[name]

    def _replace(self, name: TableIdentifier, table: TableReport | None, after: TableReport) -> None:
        self.tables[name] = _replace_table(self._of(name), table, after)

    def _rename(self, old: TableIdentifier, new: TableIdentifier, uuid: str | None, locations: tuple[str, ...]) -> None:
        """Move a table to its new name, once: a rename is reported under both names, and perhaps again."""
        last = max(self._of(old), key=lambda one: max(one.created_seq, one.ended_seq or -1), default=None)
        table = (last if uuid is None else _with_uuid(self._of(old), uuid)) or TableReport(uuid)
        if table.ended_seq is None:
            self._end(old, uuid or table.uuid, new)
        elif table.renamed_to != new and uuid is None:
            return
        uuid = uuid or table.uuid
        if any(table.ended_seq is not None and one.created_seq >= table.ended_seq for one in self._of(new)):
            if locations:
                self._report(new, uuid, locations, None)
        elif (locations := (*table.locations, *locations)) or uuid is not None:
            self._report(new, uuid, locations, TableOrigin.REGISTER)

    def _end(self, name: TableIdentifier, uuid: str | None, renamed_to: TableIdentifier | None = None) -> None:
        """End the table of the event; without a uuid, all tables that have the name.

        Without a uuid, a table that is known by commits alone goes on if another one ends: its creation is late.
        """
        tables = self._of(name)
        if uuid is not None:
            found = _with_uuid(tables, uuid)
            ended = [found] if found is not None else []
        else:
            live = [table for table in tables if table.ended_seq is None]
            ended = [table for table in live if table.created_seq >= 0] or live
        if not ended and (uuid is not None or not tables):
            self._replace(name, None, TableReport(uuid, ended_seq=self._seq, renamed_to=renamed_to))
        for table in ended:
            if table.ended_seq is None:
                after = replace(table, uuid=table.uuid or uuid, ended_seq=self._seq, renamed_to=renamed_to)
                self._replace(name, table, after)

    def _report(
        self, name: TableIdentifier, uuid: str | None, locations: tuple[str, ...], origin: TableOrigin | None
    ) -> None:
        """Report metadata locations of a table, or its new name, and follow the table to the name that it has now."""
        for _ in range(_MAX_RENAMES):
            is_first = not self._of(name)
            if uuid is not None:
                table = _with_uuid(self._of(name), uuid)
            elif origin is None:
                table = current_table(self._of(name))
            else:
                table = None
                self.tables[name] = tuple(
                    other if other.ended_seq is not None else replace(other, ended_seq=self._seq)
                    for other in self._of(name)
                )
            created_seq = self._seq if origin is not None or is_first else -1
            after = _after_report(table or TableReport(uuid), uuid, locations, origin, created_seq)
            self._replace(name, table, after)
            if after.ended_seq is None or after.renamed_to is None or not locations:
                return
            name, origin = after.renamed_to, None


def _after_report(
    table: TableReport, uuid: str | None, locations: Sequence[str], origin: TableOrigin | None, created_seq: int
) -> TableReport:
    is_known = table.created_seq >= 0
    is_proven = table.uuid == uuid and (uuid is not None or is_known)
    created = table.created_seq if is_known else created_seq
    if table.ended_seq is not None:
        # A registration that the end overtook brings nothing back, nor does a late one with an older file.
        if origin is not TableOrigin.REGISTER or not is_known or _is_older(locations, table.locations):
            return replace(table, created_seq=created)
        table, created = TableReport(table.uuid), created_seq
    known = table.locations
    for location in locations:
        known = _add_location(known, location, is_proven=is_proven)
    return replace(table, uuid=table.uuid or uuid, locations=known, created_seq=created)


def _with_uuid(tables: Tables, uuid: str) -> TableReport | None:
    """Return the table with a uuid, else the current table if no event showed its uuid."""
    current = current_table(tables)
    unknown = current if current is not None and current.uuid is None else None
    return next((table for table in tables if table.uuid == uuid), unknown)


def _add_location(known: tuple[str, ...], location: str, *, is_proven: bool) -> tuple[str, ...]:
    """Return the locations that may be the newest one; an event that does not prove its table replaces none."""
    remaining = []
    for other in known:
        order = compare_metadata(other, (), location, ())
        if order is MetadataOrder.SAME or (is_proven and order is MetadataOrder.OLDER):
            return known
        if not (is_proven and order is MetadataOrder.NEWER):
            remaining.append(other)
    remaining.append(location)
    return tuple(remaining[-MAX_LOCATIONS:])


def _is_older(locations: Sequence[str], known: Sequence[str]) -> bool:
    """Return whether reported locations are not as new as the known ones; no location is not new either."""
    return not locations or any(compare_metadata(one, (), locations[-1], ()) is MetadataOrder.OLDER for one in known)


def _replace_table(tables: Tables, table: TableReport | None, after: TableReport) -> Tables:
    if table is not None:
        return tuple(after if one is table else one for one in tables)
    tables = (*tables, after)
    if len(tables) <= MAX_TABLES:
        return tables
    current = current_table(tables)
    oldest = min(
        (one for one in tables if one is not current and one is not after),
        key=lambda one: (one.ended_seq is None, max(one.created_seq, one.ended_seq or -1)),
    )
    return tuple(one for one in tables if one is not oldest)
