"""Which table a name has, and where it stands, by what was told of it alone: for a catalog that nobody can ask.

Events come late, twice and in any order. What is kept of them is therefore numbers that only grow, so that hearing one
once more changes nothing, and the end of a table that overtakes its beginning still ends it. Where two events
contradict each other about one table (dropped and registered again, renamed and renamed back) the later told is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sfn.pointer.lineage import MetadataOrder, compare_metadata
from sfn.words import Birth, Telling, Told, ToldTable

MAX_TABLES = 8
"""Tables of one name that are remembered."""


def is_alive(history: Told, table: ToldTable) -> bool:
    """Whether the table is known to have come to the name, and not to have left it since."""
    return table.born_at > max(table.ended_at, history.ended_at)


def current(history: Told) -> ToldTable | None:
    """The table that has the name: of those alive the one born last."""
    live = [table for table in history.tables if is_alive(history, table)]
    return max(live, key=lambda table: table.born_at, default=None)


def is_orphan(history: Told, uuid: str | None) -> bool:
    """Whether commits of a table were told, but neither that it came to the name nor that it left it."""
    table = history_of(history, uuid)
    return table.location is not None and max(table.born_at, table.ended_at) < 0


def history_of(history: Told, uuid: str | None) -> ToldTable:
    """What is known of a table; without any event, its uuid. Uuids are spelled as by `normal_uuid`."""
    return next((table for table in history.tables if table.uuid == uuid), ToldTable(uuid))


def order_of(table: ToldTable, location: str, log: Iterable[str] = (), held_log: Iterable[str] = ()) -> MetadataOrder:
    """What a metadata location is to the one that is known of its table; newer than none.

    Args:
        log: of the location's own metadata, oldest first; empty where it is not known.
        held_log: of the metadata at the known location.
    """
    return MetadataOrder.NEWER if table.location is None else compare_metadata(table.location, held_log, location, log)


def apply_end(history: Told, change: Telling) -> Told:
    """What is known once an end was heard: of the table that it names, else of the one that has the name."""
    table = current(history) if change.uuid is None else history_of(history, change.uuid)
    if change.uuid is None:
        history = replace(history, ended_at=max(history.ended_at, change.seq))
        if table is None or table.born_at > change.seq:
            return history
    if table is None or change.seq <= table.ended_at:
        return history
    return _with_table(history, replace(table, ended_at=change.seq, to=change.to))


def apply_location(history: Told, change: Telling, uuid: str | None, order: MetadataOrder) -> Told:
    """What is known once a location was heard.

    Another table than the one that has the name takes it by a birth only: a commit of it may be a late one, or one that
    overtook its table's birth, and is remembered until that is heard.

    Args:
        uuid: of the table whose metadata lies there.
        order: what the location is to the one that is known of that table. Where it is unknown the later told counts.
    """
    table = _with_birth(history, history_of(history, uuid), change, order)
    if order is MetadataOrder.SAME:
        table = replace(table, told_at=max(table.told_at, change.seq))
    elif order is MetadataOrder.NEWER or (order is MetadataOrder.UNKNOWN and change.seq >= table.told_at):
        table = replace(table, location=change.location, told_at=change.seq)
    return _with_table(history, table)


def in_event_order(changes: Iterable[Telling]) -> list[Telling]:
    """As they were told; what a table takes along to a new name before that it came there."""
    return sorted(changes, key=lambda change: (change.seq, change.birth is not None))


def apply_known(history: Told) -> Told:
    """What is known without a look into any metadata file; what is left to be heard says no uuid."""
    remaining = []
    for change in in_event_order(history.tellings):
        if change.ends:
            history = apply_end(history, change)
        elif change.uuid is not None and change.location is not None:
            history = apply_location(
                history, change, change.uuid, order_of(history_of(history, change.uuid), change.location)
            )
        else:
            remaining.append(change)
    return replace(history, tellings=tuple(remaining))


def mark_doubtful(changes: Iterable[Telling]) -> tuple[Telling, ...]:
    """What a row was given up with."""
    return tuple(replace(change, is_doubtful=True) for change in changes)


def _with_birth(history: Told, table: ToldTable, change: Telling, order: MetadataOrder) -> ToldTable:
    is_first = not history.tables and history.ended_at < 0
    if change.birth is None and not is_first:
        return table
    if table.born_at < 0:
        overtaken = table.ended_at >= 0
        return replace(table, born_at=change.seq, ended_at=max(table.ended_at, change.seq) if overtaken else -1)
    # What was created is never created again: such an event is a late one. So is a birth that leads to an older file
    # than was told of before, unless both were told at once: then it is what a table takes along to a new name.
    is_late = change.birth is Birth.CREATE or (order is MetadataOrder.OLDER and table.told_at != change.seq)
    if not is_late and not is_alive(history, table) and change.seq > max(table.ended_at, history.ended_at):
        return replace(table, born_at=change.seq)
    return table


def _with_table(history: Told, table: ToldTable) -> Told:
    others = [other for other in history.tables if other.uuid != table.uuid]
    history = replace(history, tables=(*others, table))
    if len(history.tables) <= MAX_TABLES:
        return history
    now = current(history)
    oldest = min((other for other in history.tables if other is not now), key=_last_event_seq)
    return replace(history, tables=tuple(other for other in history.tables if other is not oldest))


def _last_event_seq(table: ToldTable) -> int:
    return max(table.told_at, table.born_at, table.ended_at)
