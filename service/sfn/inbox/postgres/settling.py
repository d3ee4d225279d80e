"""How claims end: over the port to the database, several in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from msgspec.structs import replace

from sfn.inbox.letters import Letter, Status, supersedes
from sfn.inbox.postgres.sheet import Sheet
from sfn.inbox.postgres.unit import Place, Unit
from sfn.inbox.row import LastSweep, Row, is_held_by
from sfn.inbox.standing import Said
from sfn.inbox.terms import Terms
from sfn.inbox.transitions import asked, settled
from sfn.pointer.site import layout_location
from sfn.words import Ask, Claim, Dead, Done, Findings, Later, Outcome, Subject, Swept, TableName


@dataclass(frozen=True, slots=True)
class Ending:
    """A claim that is to be settled.

    Attributes:
        claim, outcome, now: as of `Worklist.settle`.
        tried: what earlier tries leave on the row if they were taken, which nobody knows.
    """

    claim: Claim
    outcome: Outcome
    now: datetime
    tried: tuple[Said, ...] = ()

    @property
    def findings(self) -> Findings:
        """What else there is to settle."""
        found = self.outcome.findings if isinstance(self.outcome, Done | Later | Dead) else None
        return found or Findings()

    @property
    def places(self) -> frozenset[Place]:
        """Where other rows are to look."""
        return frozenset(Place(self.claim.subject.catalog, location) for location in self.findings.stirs)


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of it.

    Attributes:
        kept: the claim had its row still, or an earlier try was taken.
        stirring: other rows may have fallen due by it.
    """

    kept: bool
    stirring: bool = False


@dataclass(slots=True)
class _Beside:
    """What is written beside the rows."""

    opened: list[tuple[Letter, datetime]] = field(default_factory=list)
    superseded: dict[Subject, datetime] = field(default_factory=dict)
    swept: list[tuple[str, Swept]] = field(default_factory=list)


async def settle_all(unit: Unit, endings: Sequence[Ending], terms: Terms) -> list[Settled]:
    """Several `Worklist.settle` in one transaction, one after the other."""
    places = {place for ending in endings for place in ending.places}
    visitors: list[TableName] = []
    if places:
        await unit.roster.hold(places)
        visitors = await unit.roster.visitors(places)
    asks = [ask for ending in endings for ask in ending.findings.asks]
    sheet = Sheet(unit.rows)
    subjects = {ending.claim.subject for ending in endings} | {ask.table for ask in asks} | set(visitors)
    most = len(asks) + len(subjects) * sum(bool(ending.places) for ending in endings)
    numbers = await sheet.lock(subjects, most)
    beside = _Beside()
    answers = [_settle(sheet, ending, terms, numbers, beside) for ending in endings]
    await sheet.write()
    await _write(unit, beside)
    return answers


def ask(sheet: Sheet, asks: Sequence[Ask], numbers: Iterator[int], now: datetime, cap: timedelta) -> bool:
    """Have other rows look, which are locked; whether one of them changed."""
    changed = False
    for one in asks:
        after = asked(sheet.load(one.table), one, next(numbers), now, cap)
        if after is not None:
            sheet.save(one.table, after)
            changed = True
    return changed


def _settle(sheet: Sheet, ending: Ending, terms: Terms, numbers: Iterator[int], beside: _Beside) -> Settled:
    claim, outcome, now = ending.claim, ending.outcome, ending.now
    row = sheet.load(claim.subject)
    if row is None or not is_held_by(row, claim):
        return Settled(_was_taken(row, ending))
    # The memo is the claim's: nothing else changes it while the claim has its row.
    row = sheet.remind(replace(row, memo=claim.memo))
    sheet.save(claim.subject, settled(row, claim, outcome, now, terms.cap))
    if isinstance(outcome, Dead):
        beside.opened.append((Letter(claim.subject, outcome.reason, outcome.detail, row.attempt), now))
    elif supersedes(outcome):
        beside.superseded[claim.subject] = now
    if isinstance(outcome, Swept):
        beside.swept.append((claim.subject.catalog, outcome))
    stirring = ask(sheet, ending.findings.asks, numbers, now, terms.cap)
    stirred = {name for place in ending.places for name in _at(sheet, place)} - {claim.subject}
    others = [Ask(name) for name in sorted(stirred)]
    return Settled(kept=True, stirring=ask(sheet, others, numbers, now, terms.cap) or stirring)


def _was_taken(row: Row | None, ending: Ending) -> bool:
    """Whether a try was taken after all: its transaction ended well, though its answer never came."""
    if row is None:
        return bool(ending.tried) and isinstance(ending.outcome, Done) and ending.outcome.forget
    return row.token == ending.claim.token and row.said in ending.tried


def _at(sheet: Sheet, place: Place) -> Iterator[TableName]:
    """The locked rows that may have a file at a place by now."""
    for row in sheet.rows():
        name, there = row.subject, map(layout_location, row.locations)
        if isinstance(name, TableName) and name.catalog == place.catalog and place.location in there:
            yield name


async def _write(unit: Unit, beside: _Beside) -> None:
    if beside.opened:
        await unit.letters.open(beside.opened)
    if beside.superseded:
        await unit.letters.close(beside.superseded, Status.SUPERSEDED)
    for catalog, swept in beside.swept:
        await unit.catalogs.note_sweep(catalog, LastSweep.ended(swept))
        if swept.calm:
            await unit.catalogs.trip(catalog, tripped=False)
