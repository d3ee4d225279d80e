"""What hints tell of names in a catalog that nobody can ask: kept on their rows until a publish has heard it. Pure.

A hint says it of its own row. A rename takes along to the new name what was told under the old one, and what is told
under the old one late follows it there, as far as the table's uuid tells that it belongs there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from msgspec import structs

from sfn.inbox.row import Row
from sfn.inbox.terms import Terms
from sfn.inbox.transitions import hinted
from sfn.pointer import hearsay
from sfn.pointer.lineage import metadata_version
from sfn.words import Birth, Hint, Subject, TableName, Telling, Told, ToldTable, normal_uuid

KEPT = 16
"""Tellings of a row that wait to be heard."""
_HOPS = 8
"""Names that a table may have had since a late event named it."""


def told_of(row: Row) -> Told | None:
    """All that was told of a row's name; None for nothing."""
    told = replace(row.story.told or Told(), tellings=row.wish.tellings)
    return told if told != Told() else None


def taken(
    hint: Hint, seq: int, now: datetime, terms: Terms, load: Callable[[Subject], Row | None]
) -> dict[Subject, Row]:
    """The rows that a hint changes: its own, and in a catalog that nobody can ask those that it tells something too.

    Args:
        seq: the hint's number.
        load: a subject's row.
    """
    name = hint.subject
    rows: dict[Subject, Row] = {name: hinted(load(name), hint, seq, now, terms.cap)}
    if name.catalog not in terms.told or not isinstance(name, TableName):
        return rows

    def row_of(other: TableName) -> Row | None:
        return rows.get(other) or load(other)

    for telling in _tellings(hint, seq, row_of):
        for target, said in _addressed(name, telling, row_of):
            row = row_of(target)
            if row is None or target != name:
                row = hinted(row, Hint(target, floor=said.location), seq, now, terms.cap)
            rows[target] = structs.replace(row, wish=replace(row.wish, tellings=_added(row.wish.tellings, said)))
    return rows


def _tellings(hint: Hint, seq: int, row_of: Callable[[TableName], Row | None]) -> Iterator[Telling]:
    hint = replace(hint, uuid=normal_uuid(hint.uuid))
    if hint.renamed_from is not None:
        before = row_of(hint.renamed_from)
        yield from _taken_along(hint, seq, told_of(before) if before is not None else None)
    elif hint.drop or hint.renamed_to is not None:
        yield Telling(seq, uuid=hint.uuid, ends=True, to=hint.renamed_to)
    elif hint.floor is not None:
        yield Telling(seq, hint.floor, hint.uuid, hint.birth)


def _taken_along(hint: Hint, seq: int, told: Told | None) -> Iterator[Telling]:
    """What a table takes along to its new name: the location that its rename told, and what was told before."""
    birth: Birth | None = Birth.REGISTER
    if hint.floor is not None:
        yield Telling(seq, hint.floor, hint.uuid, birth)
        birth = None
    if told is None:
        return
    if told.tellings and told.tellings[-1].to == hint.subject:
        # The rename itself, under the old name.
        told = replace(told, tellings=told.tellings[:-1])
    known = hearsay.apply_known(told)
    table = hearsay.current(known) if hint.uuid is None else hearsay.history_of(known, hint.uuid)
    for location, uuid in _places(told, known, table):
        yield Telling(seq, location, uuid, birth)
        birth = None


def _places(told: Told, known: Told, table: ToldTable | None) -> Iterator[tuple[str, str | None]]:
    """Where a table's metadata lies, or may lie, with its uuid as far as it was told; what is sure first."""
    before = hearsay.history_of(told, table.uuid) if table is not None else None
    if before is not None and before.location is not None:
        yield before.location, before.uuid
    unplaced = [telling for telling in known.tellings if telling.seq > known.ended_at]
    placed = [one for one in told.tellings if table is not None and one.uuid is not None and one.uuid == table.uuid]
    # By a birth it is this table more surely than by a commit, which may be a late one of a table before it.
    births = [telling for telling in unplaced if telling.birth is not None][-1:]
    for telling in dict.fromkeys((*placed, *births, *unplaced)):
        if telling.location is not None:
            yield telling.location, telling.uuid


def _addressed(
    name: TableName, telling: Telling, row_of: Callable[[TableName], Row | None]
) -> Iterator[tuple[TableName, Telling]]:
    """Whom a telling concerns: the row that it names, and that of the name which its table has by now."""
    if telling.uuid is None or telling.ends:
        yield name, telling
        return
    for _ in range(_HOPS):
        row = row_of(name)
        before = hearsay.apply_known((told_of(row) if row is not None else None) or Told())
        yield name, telling
        table = hearsay.history_of(before, telling.uuid)
        # A birth after an end that has its own birth is a return.
        returns = telling.birth is not None and table.born_at >= 0
        if table.to is None or hearsay.is_alive(before, table) or returns:
            return
        name = table.to
        telling = replace(telling, birth=Birth.REGISTER if telling.birth is not None else None)


def _added(tellings: tuple[Telling, ...], telling: Telling) -> tuple[Telling, ...]:
    if telling.ends and tellings and replace(telling, seq=tellings[-1].seq) == tellings[-1]:
        return tellings
    kept = [*(one for one in tellings if not _is_superseded(one, telling)), telling]
    while len(kept) > KEPT:
        kept.remove(_least(kept))
    return tuple(kept)


def _is_superseded(one: Telling, by: Telling) -> bool:
    """Whether a commit need not be heard any more: it was told once more, or of the same table a higher number."""
    if one.birth is not None or by.birth is not None or one.ends or by.ends:
        return False
    if (one.location, one.uuid) == (by.location, by.uuid):
        return True
    return one.uuid is not None and one.uuid == by.uuid and _is_lower(one, by)


def _least(tellings: list[Telling]) -> Telling:
    """Of too many the one to forget: the oldest commit, first one that a later told one has left behind by number."""
    commits = [one for one in tellings if one.birth is None and not one.ends]
    oldest, highest = None, -1
    for one in reversed(commits):
        number = metadata_version(one.location or "")
        if number is not None and number < highest:
            oldest = one
        highest = max(highest, -1 if number is None else number)
    return oldest or (commits or tellings)[0]


def _is_lower(one: Telling, other: Telling) -> bool:
    a, b = metadata_version(one.location or ""), metadata_version(other.location or "")
    return a is not None and b is not None and a < b
