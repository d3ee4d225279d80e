"""A catalog that nobody can ask: what events told of its tables is the truth, and their metadata files say the rest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from sfn.catalog import Skip, Withheld
from sfn.catalog.contents import Part, metadata_at
from sfn.catalog.metadata import Unintelligible
from sfn.errors import LocationRefused, Permanent, Scope, SfnError, Transient
from sfn.pointer import hearsay
from sfn.pointer.lineage import Relation, version
from sfn.pointer.location import canonical, checked
from sfn.words import (
    Answer,
    Birth,
    Hearing,
    Loaded,
    Missing,
    NotModified,
    Reason,
    Table,
    TableName,
    Telling,
    Told,
    Unheard,
)

REMEMBERED: Final = 64
"""Metadata files of which is remembered what they say: one publish asks for the same a few times."""


ENTRIES: Final = 100_000
"""Entries of their metadata-logs that are remembered, 15 MB; of one file however many it has."""


class ToldCatalog:
    """A catalog that is only told of.

    An answer is what the newest of all told metadata files says, by metadata-log or number; which table has the name is
    said by births and ends alone (`sfn.pointer.hearsay`). What can't be read keeps nothing else from being heard, and
    neither does a commit of a table that nobody told to be there.

    Args:
        name: the name that the configuration gives it.
        catalog_id: its identity in our files.
        part: reads metadata files.
        allowed: canonical prefixes of which every told location must lie below one.
    """

    def __init__(self, name: str, catalog_id: str, part: Part, allowed: Sequence[str]) -> None:
        self._name, self._catalog_id, self._part, self._allowed = name, catalog_id, part, allowed
        self._remembered: OrderedDict[str, Table] = OrderedDict()

    async def load(self, table: TableName, known: str | None, told: Told | None = None) -> Answer:
        """As the port promises, by what was told; nothing told is a table that is missing."""
        heard = await self._heard(told or Told())
        now = hearsay.current(heard.told)
        if now is None or now.location is None:
            return Missing(heard)
        etag = _etag(now.location)
        return NotModified(heard) if etag == known else Loaded(await self._opened(now.location), etag, heard)

    async def listed(self, table: TableName) -> bool:
        """False: there is no listing that could name a table whose end was told of."""
        return False

    async def tables(self, skip: Skip | None = None) -> AsyncGenerator[TableName | Withheld]:
        """Nothing but that all of it is withheld."""
        yield Withheld(
            (), f"the catalog {self._name} is of type told: it is not asked, events alone tell of its tables"
        )

    async def identity(self) -> str:
        """Whose tables these are, for `catalog_id` in our files."""
        return self._catalog_id

    async def close(self) -> None:
        """Nothing is open."""

    async def _heard(self, told: Told) -> Hearing:
        """All that can be heard, in the order in which it was told."""
        looks = await self._looked_into(told)
        after = replace(told, tellings=())
        for telling in hearsay.in_order(told.tellings):
            if telling.ends:
                after = hearsay.after_end(after, telling)
            elif (look := looks.seen.get(telling.location or "")) is not None and telling.location is not None:
                order = await self._order(after, look, telling.location)
                after = hearsay.after(after, telling, look.uuid, order)
        unheard = {telling: why for telling in told.tellings if (why := looks.unheard(after, telling)) is not None}
        is_news = any(not telling.is_doubtful and telling not in unheard for telling in told.tellings)
        return Hearing(after, tuple(why for one, why in unheard.items() if not (one.is_doubtful and is_news)))

    async def _looked_into(self, told: Told) -> _Looks:
        """Look into as few files as tell whose they are: one whose log names the others, mostly."""
        looks = _Looks({table.location: _Look(table.uuid) for table in told.tables if table.location is not None})
        for known in list(looks.seen):
            if (held := self._remembered.get(known)) is not None:
                looks.logged(held)
        over = hearsay.foreseen(told)
        for telling in sorted(told.tellings, key=_newest_first):
            location = telling.location
            if location is None or location in looks.seen or location in looks.troubles:
                continue
            if canonical(location) in looks.log:
                looks.seen[location] = _Look(looks.log[canonical(location)])
            elif telling.uuid is not None and _is_over(over, telling):
                looks.seen[location] = _Look(telling.uuid, is_over=True)
            else:
                await self._look_into(location, looks)
        return looks

    async def _look_into(self, location: str, looks: _Looks) -> None:
        try:
            table = await self._opened(location)
        except (_NotThere, Permanent) as trouble:
            if trouble.scope is not Scope.TABLE:
                raise
            looks.troubles[location] = trouble
        else:
            looks.seen[location] = _Look(table.uuid, table)
            looks.logged(table)

    async def _order(self, told: Told, look: _Look, location: str) -> Relation:
        """What a location is to the one that is known of its table."""
        known = hearsay.of_uuid(told, look.uuid)
        if known.location is not None and canonical(known.location) == canonical(location):
            return Relation.SAME
        log = look.table.metadata_log if look.table is not None else ()
        order = hearsay.relation(known, location, log)
        if order is not Relation.UNKNOWN or known.location is None:
            return order
        if look.is_over:
            return Relation.OLDER
        try:
            held = await self._opened(known.location)
        except (_NotThere, Permanent) as trouble:
            if trouble.scope is not Scope.TABLE:
                raise
            return order
        return hearsay.relation(known, location, log, held.metadata_log)

    async def _opened(self, location: str) -> Table:
        """What a metadata file says; it never changes."""
        found = self._remembered.get(location)
        if found is None:
            found = await self._read(location)
        self._remembered[location] = found
        self._remembered.move_to_end(location)
        while self._is_too_much():
            self._remembered.popitem(last=False)
        return found

    def _is_too_much(self) -> bool:
        entries = sum(len(table.metadata_log) for table in self._remembered.values())
        return len(self._remembered) > REMEMBERED or (entries > ENTRIES and len(self._remembered) > 1)

    async def _read(self, location: str) -> Table:
        place = checked(location, self._allowed)
        try:
            table = await metadata_at(self._part, place, location)
        except Unintelligible as error:
            found = str(error)
        else:
            if table is not None:
                return table
            raise _NotThere(location)
        raise Permanent(
            location,
            scope=Scope.TABLE,
            expected="a metadata file of an Iceberg table",
            found=found,
            remedy="see what lies there, and what the sender tells as metadata_location",
        )


class _NotThere(Transient):
    """A metadata file that was told of does not exist, or not yet."""

    def __init__(self, location: str) -> None:
        super().__init__(
            location,
            scope=Scope.TABLE,
            expected="the metadata file that an event told of",
            found="no such file",
            remedy="see whether the sender tells right locations, and tells them after the file is written",
        )


@dataclass(frozen=True, slots=True)
class _Look:
    """Whose metadata lies at a location.

    Attributes:
        uuid: of the table.
        table: what the file says; None where it need not be opened.
        is_over: it need not, as its table has ended.
    """

    uuid: str | None
    table: Table | None = None
    is_over: bool = False


@dataclass(slots=True)
class _Looks:
    """What one load found.

    Attributes:
        seen: by location.
        log: table uuids by canonical location of older metadata, of files that were opened.
        troubles: locations that can't be read.
    """

    seen: dict[str, _Look]
    log: dict[str, str | None] = field(default_factory=dict)
    troubles: dict[str, _NotThere | Permanent] = field(default_factory=dict)

    def logged(self, table: Table) -> None:
        """Know the metadata-log of a table."""
        uuid = table.uuid
        self.log.update({canonical(entry): uuid for entry in table.metadata_log})

    def unheard(self, told: Told, telling: Telling) -> Unheard | None:
        """Why a telling means nothing yet, given all that was heard; None where it does, or never will."""
        trouble = self.troubles.get(telling.location or "")
        if isinstance(trouble, _NotThere):
            return None if _is_gone(told, telling) else Unheard(telling, None, str(trouble))
        if trouble is not None:
            reason = Reason.LOCATION_REFUSED if isinstance(trouble, LocationRefused) else Reason.PERMANENT
            return Unheard(telling, reason, str(trouble))
        look = self.seen.get(telling.location or "")
        is_stray = look is not None and telling.birth is None and hearsay.is_stray(told, look.uuid)
        return Unheard(telling, None, str(_stray(telling))) if is_stray else None


def _stray(telling: Telling) -> SfnError:
    return SfnError(
        telling.location or "",
        expected="an event of the operation create or register of its table, as another one has the name or had it",
        found="a commit alone",
        remedy="have the sender tell of it",
    )


def _is_gone(told: Told, telling: Telling) -> bool:
    """Whether a file that is not there is not waited for: most likely it was deleted with its table, or as too old."""
    if telling.birth is not None:
        return telling.seq < told.ended_at
    now = hearsay.current(told)
    if now is None:
        return told != Told()
    ours, theirs = version(now.location or ""), version(telling.location or "")
    return ours is not None and theirs is not None and theirs < ours


def _is_over(told: Told, telling: Telling) -> bool:
    """Whether nothing that a file says could bring its table back: it was dropped or renamed, so is not opened."""
    table = hearsay.of_uuid(told, telling.uuid)
    return telling.birth is not Birth.REGISTER and table.ended_at >= 0 and not hearsay.is_alive(told, table)


def _newest_first(telling: Telling) -> tuple[int, int]:
    number = version(telling.location or "")
    return (-1 if number is None else number) * -1, -telling.seq


def _etag(location: str) -> str:
    # A metadata file never changes: its location stands for its content.
    return f'"{sha256(location.encode()).hexdigest()[:32]}"'
