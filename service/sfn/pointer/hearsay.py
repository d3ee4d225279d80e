"""Which table a name has, and where it stands, by what was told of it alone: for a catalog that nobody can ask.

Events come late, twice and in any order. What is kept of them is therefore numbers that only grow, so that hearing one
once more changes nothing, and the end of a table that overtakes its beginning still ends it. Where two events
contradict each other about one table (dropped and registered again, renamed and renamed back) the later told is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sfn.pointer.lineage import Relation, relate
from sfn.words import Birth, Telling, Told, ToldTable

TABLES = 8
"""Tables of one name that are remembered."""


def is_alive(told: Told, table: ToldTable) -> bool:
    """Whether the table is known to have come to the name, and not to have left it since."""
    return table.born_at > max(table.ended_at, told.ended_at)


def current(told: Told) -> ToldTable | None:
    """The table that has the name: of those alive the one born last."""
    alive = [table for table in told.tables if is_alive(told, table)]
    return max(alive, key=lambda table: table.born_at, default=None)


def is_stray(told: Told, uuid: str | None) -> bool:
    """Whether commits of a table were told, but neither that it came to the name nor that it left it."""
    table = of_uuid(told, uuid)
    return table.location is not None and max(table.born_at, table.ended_at) < 0


def of_uuid(told: Told, uuid: str | None) -> ToldTable:
    """What is known of a table; without any event, its uuid. Uuids are spelled as by `normal_uuid`."""
    return next((table for table in told.tables if table.uuid == uuid), ToldTable(uuid))


def relation(table: ToldTable, location: str, log: Iterable[str] = (), held_log: Iterable[str] = ()) -> Relation:
    """What a metadata location is to the one that is known of its table; newer than none.

    Args:
        log: of the location's own metadata, oldest first; empty where it is not known.
        held_log: of the metadata at the known location.
    """
    return Relation.NEWER if table.location is None else relate(table.location, held_log, location, log)


def after_end(told: Told, telling: Telling) -> Told:
    """What is known once an end was heard: of the table that it names, else of the one that has the name."""
    table = current(told) if telling.uuid is None else of_uuid(told, telling.uuid)
    if telling.uuid is None:
        told = replace(told, ended_at=max(told.ended_at, telling.seq))
        if table is None or table.born_at > telling.seq:
            return told
    if table is None or telling.seq <= table.ended_at:
        return told
    return _with(told, replace(table, ended_at=telling.seq, to=telling.to))


def after(told: Told, telling: Telling, uuid: str | None, order: Relation) -> Told:
    """What is known once a location was heard.

    Another table than the one that has the name takes it by a birth only: a commit of it may be a late one, or one that
    overtook its table's birth, and is remembered until that is heard.

    Args:
        uuid: of the table whose metadata lies there.
        order: what the location is to the one that is known of that table. Where it is unknown the later told counts.
    """
    table = _born(told, of_uuid(told, uuid), telling, order)
    if order is Relation.SAME:
        table = replace(table, told_at=max(table.told_at, telling.seq))
    elif order is Relation.NEWER or (order is Relation.UNKNOWN and telling.seq >= table.told_at):
        table = replace(table, location=telling.location, told_at=telling.seq)
    return _with(told, table)


def in_order(tellings: Iterable[Telling]) -> list[Telling]:
    """As they were told; what a table takes along to a new name before that it came there."""
    return sorted(tellings, key=lambda telling: (telling.seq, telling.birth is not None))


def foreseen(told: Told) -> Told:
    """What is known without a look into any metadata file; what is left to be heard says no uuid."""
    unplaced = []
    for telling in in_order(told.tellings):
        if telling.ends:
            told = after_end(told, telling)
        elif telling.uuid is not None and telling.location is not None:
            told = after(told, telling, telling.uuid, relation(of_uuid(told, telling.uuid), telling.location))
        else:
            unplaced.append(telling)
    return replace(told, tellings=tuple(unplaced))


def doubted(tellings: Iterable[Telling]) -> tuple[Telling, ...]:
    """What a row was given up with."""
    return tuple(replace(telling, is_doubtful=True) for telling in tellings)


def _born(told: Told, table: ToldTable, telling: Telling, order: Relation) -> ToldTable:
    is_first = not told.tables and told.ended_at < 0
    if telling.birth is None and not is_first:
        return table
    if table.born_at < 0:
        overtaken = table.ended_at >= 0
        return replace(table, born_at=telling.seq, ended_at=max(table.ended_at, telling.seq) if overtaken else -1)
    # What was created is never created again: such an event is a late one. So is a birth that leads to an older file
    # than was told of before, unless both were told at once: then it is what a table takes along to a new name.
    is_late = telling.birth is Birth.CREATE or (order is Relation.OLDER and table.told_at != telling.seq)
    if not is_late and not is_alive(told, table) and telling.seq > max(table.ended_at, told.ended_at):
        return replace(table, born_at=telling.seq)
    return table


def _with(told: Told, table: ToldTable) -> Told:
    others = [other for other in told.tables if other.uuid != table.uuid]
    told = replace(told, tables=(*others, table))
    if len(told.tables) <= TABLES:
        return told
    now = current(told)
    oldest = min((other for other in told.tables if other is not now), key=_last_heard_of)
    return replace(told, tables=tuple(other for other in told.tables if other is not oldest))


def _last_heard_of(table: ToldTable) -> int:
    return max(table.told_at, table.born_at, table.ended_at)
