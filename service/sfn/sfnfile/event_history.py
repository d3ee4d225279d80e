"""The current table of a name and its metadata file, by events alone: for event-only catalogs.

Events arrive late, twice and in any order. The stored numbers therefore only grow: an event that arrives again changes
nothing, and an end that overtakes the table's creation still ends the table. If two events contradict each other about
one table (dropped and registered again, renamed and renamed back), the one with the greater number is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sfn.domain.events import EventHistory, ReportedChange, TableHistory, TableOrigin
from sfn.sfnfile.ordering import MetadataOrder, compare_metadata

MAX_TABLES = 8
"""Most tables of one name that are stored."""


def is_alive(history: EventHistory, table: TableHistory) -> bool:
    """Return whether the table is known to have got the name, and not to have lost it since."""
    return table.created_seq > max(table.ended_seq, history.ended_seq)


def current(history: EventHistory) -> TableHistory | None:
    """Return the table that has the name: the live one that got it last."""
    live = [table for table in history.tables if is_alive(history, table)]
    return max(live, key=lambda table: table.created_seq, default=None)


def is_orphan(history: EventHistory, uuid: str | None) -> bool:
    """Return whether events reported commits of a table, but neither that it got the name nor that it lost it."""
    table = history_of(history, uuid)
    return table.metadata_location is not None and max(table.created_seq, table.ended_seq) < 0


def history_of(history: EventHistory, uuid: str | None) -> TableHistory:
    """Return the history of a table; without any event, its uuid alone. Uuids are spelled as by `normal_uuid`."""
    return next((table for table in history.tables if table.uuid == uuid), TableHistory(uuid))


def order_of(
    table: TableHistory, location: str, log: Iterable[str] = (), known_log: Iterable[str] = ()
) -> MetadataOrder:
    """Compare a metadata location with the known one of its table; without a known one, it is newer.

    Args:
        log: the metadata log at the new location, oldest first; empty if it is not known.
        known_log: the metadata log at the known location.
    """
    return (
        MetadataOrder.NEWER
        if table.metadata_location is None
        else compare_metadata(table.metadata_location, known_log, location, log)
    )


def apply_end(history: EventHistory, change: ReportedChange) -> EventHistory:
    """Return the history after an end of the table in the event, or of the table that has the name."""
    table = current(history) if change.uuid is None else history_of(history, change.uuid)
    if change.uuid is None:
        history = replace(history, ended_seq=max(history.ended_seq, change.seq))
        if table is None or table.created_seq > change.seq:
            return history
    if table is None or change.seq <= table.ended_seq:
        return history
    return _with_table(history, replace(table, ended_seq=change.seq, renamed_to=change.renamed_to))


def apply_location(
    history: EventHistory, change: ReportedChange, uuid: str | None, order: MetadataOrder
) -> EventHistory:
    """Return the history after a reported metadata location.

    Another table than the current one takes the name only by a creation. A commit of it may be late, or may have
    overtaken the creation, and is stored until the creation is reported.

    Args:
        uuid: the uuid of the table at that location.
        order: the order of the location and the known one. If it is unknown, the later event wins.
    """
    table = _with_birth(history, history_of(history, uuid), change, order)
    if order is MetadataOrder.SAME:
        table = replace(table, changed_seq=max(table.changed_seq, change.seq))
    elif order is MetadataOrder.NEWER or (order is MetadataOrder.UNKNOWN and change.seq >= table.changed_seq):
        table = replace(table, metadata_location=change.metadata_location, changed_seq=change.seq)
    return _with_table(history, table)


def in_event_order(changes: Iterable[ReportedChange]) -> list[ReportedChange]:
    """Return the changes in the order of events; of one event, a plain location comes before a creation."""
    return sorted(changes, key=lambda change: (change.seq, change.origin is not None))


def apply_known(history: EventHistory) -> EventHistory:
    """Return the history after all changes that can be applied without reading a metadata file; the others name no
    uuid.
    """
    remaining = []
    for change in in_event_order(history.reported_changes):
        if change.is_end:
            history = apply_end(history, change)
        elif change.uuid is not None and change.metadata_location is not None:
            history = apply_location(
                history, change, change.uuid, order_of(history_of(history, change.uuid), change.metadata_location)
            )
        else:
            remaining.append(change)
    return replace(history, reported_changes=tuple(remaining))


def mark_doubtful(changes: Iterable[ReportedChange]) -> tuple[ReportedChange, ...]:
    """Return the changes marked as doubtful, for a job that becomes a dead letter with them."""
    return tuple(replace(change, is_doubtful=True) for change in changes)


def _with_birth(
    history: EventHistory, table: TableHistory, change: ReportedChange, order: MetadataOrder
) -> TableHistory:
    is_first = not history.tables and history.ended_seq < 0
    if change.origin is None and not is_first:
        return table
    if table.created_seq < 0:
        overtaken = table.ended_seq >= 0
        return replace(table, created_seq=change.seq, ended_seq=max(table.ended_seq, change.seq) if overtaken else -1)
    # A table is created only once, so a second creation is a late event. So is an origin with an older file than one
    # reported before, unless both came in one event: then the table brought its file to a new name.
    is_late = change.origin is TableOrigin.CREATE or (order is MetadataOrder.OLDER and table.changed_seq != change.seq)
    if not is_late and not is_alive(history, table) and change.seq > max(table.ended_seq, history.ended_seq):
        return replace(table, created_seq=change.seq)
    return table


def _with_table(history: EventHistory, table: TableHistory) -> EventHistory:
    others = [other for other in history.tables if other.uuid != table.uuid]
    history = replace(history, tables=(*others, table))
    if len(history.tables) <= MAX_TABLES:
        return history
    now = current(history)
    oldest = min((other for other in history.tables if other is not now), key=_last_event_seq)
    return replace(history, tables=tuple(other for other in history.tables if other is not oldest))


def _last_event_seq(table: TableHistory) -> int:
    return max(table.changed_seq, table.created_seq, table.ended_seq)
