"""Which table a name has, and where it stands, by what was told of it alone: for a catalog that nobody can ask.

Events come late, twice and in any order. What is kept of them is therefore numbers that only grow, so that hearing one
once more changes nothing, and the end of a table that overtakes its beginning still ends it. Where two events
contradict each other about one table (dropped and registered again, renamed and renamed back) the later told is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sfn.domain.events import EventHistory, ReportedChange, TableHistory, TableOrigin
from sfn.sfnfile.ordering import MetadataOrder, compare_metadata

MAX_TABLES = 8
"""Tables of one name that are remembered."""


def is_alive(history: EventHistory, table: TableHistory) -> bool:
    """Whether the table is known to have come to the name, and not to have left it since."""
    return table.created_seq > max(table.ended_seq, history.ended_seq)


def current(history: EventHistory) -> TableHistory | None:
    """The table that has the name: of those alive the one born last."""
    live = [table for table in history.tables if is_alive(history, table)]
    return max(live, key=lambda table: table.created_seq, default=None)


def is_orphan(history: EventHistory, uuid: str | None) -> bool:
    """Whether commits of a table were told, but neither that it came to the name nor that it left it."""
    table = history_of(history, uuid)
    return table.metadata_location is not None and max(table.created_seq, table.ended_seq) < 0


def history_of(history: EventHistory, uuid: str | None) -> TableHistory:
    """What is known of a table; without any event, its uuid. Uuids are spelled as by `normal_uuid`."""
    return next((table for table in history.tables if table.uuid == uuid), TableHistory(uuid))


def order_of(
    table: TableHistory, location: str, log: Iterable[str] = (), held_log: Iterable[str] = ()
) -> MetadataOrder:
    """What a metadata location is to the one that is known of its table; newer than none.

    Args:
        log: of the location's own metadata, oldest first; empty where it is not known.
        held_log: of the metadata at the known location.
    """
    return (
        MetadataOrder.NEWER
        if table.metadata_location is None
        else compare_metadata(table.metadata_location, held_log, location, log)
    )


def apply_end(history: EventHistory, change: ReportedChange) -> EventHistory:
    """What is known once an end was heard: of the table that it names, else of the one that has the name."""
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
    """What is known once a location was heard.

    Another table than the one that has the name takes it by a birth only: a commit of it may be a late one, or one that
    overtook its table's birth, and is remembered until that is heard.

    Args:
        uuid: of the table whose metadata lies there.
        order: what the location is to the one that is known of that table. Where it is unknown the later told counts.
    """
    table = _with_birth(history, history_of(history, uuid), change, order)
    if order is MetadataOrder.SAME:
        table = replace(table, changed_seq=max(table.changed_seq, change.seq))
    elif order is MetadataOrder.NEWER or (order is MetadataOrder.UNKNOWN and change.seq >= table.changed_seq):
        table = replace(table, metadata_location=change.metadata_location, changed_seq=change.seq)
    return _with_table(history, table)


def in_event_order(changes: Iterable[ReportedChange]) -> list[ReportedChange]:
    """As they were told; what a table takes along to a new name before that it came there."""
    return sorted(changes, key=lambda change: (change.seq, change.origin is not None))


def apply_known(history: EventHistory) -> EventHistory:
    """What is known without a look into any metadata file; what is left to be heard says no uuid."""
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
    """What a row was given up with."""
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
    # What was created is never created again: such an event is a late one. So is a birth that leads to an older file
    # than was told of before, unless both were told at once: then it is what a table takes along to a new name.
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
