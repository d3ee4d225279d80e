"""How notes come in: over the port to the database, the same for one put and for many at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

from sfn.inbox.bell import stirs
from sfn.inbox.postgres import noting
from sfn.inbox.postgres.sheet import Sheet
from sfn.inbox.postgres.unit import Entry, Unit
from sfn.inbox.row import has_news
from sfn.inbox.tellings import taken
from sfn.inbox.terms import Terms
from sfn.words import Accepted, Answered, Hint, Intent, Note, Subject, Undecodable

Put: TypeAlias = tuple[Sequence[Note], datetime]
"""The notes of one call, and when it came."""


class Taken(NamedTuple):
    """What became of a hint.

    Attributes:
        new: it was not known.
        superseded: its subject had news waiting already.
        stirring: a row may have fallen due by it.
    """

    new: bool
    superseded: bool = False
    stirring: bool = False


class PutAnswer(NamedTuple):
    """What became of one put; `stirring` as of `Taken`."""

    accepted: Accepted
    stirring: bool


class Intake:
    """Takes notes in.

    Args:
        terms: settings.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    async def put_all(self, unit: Unit, puts: Sequence[Put], also: set[Subject]) -> list[PutAnswer]:
        """Several puts in one transaction.

        Args:
            also: rows that are needed beside; grows by those that turn out to be.

        Raises:
            Again: it has grown, or somebody made a row meanwhile.
        """
        noted = [(note, now) for notes, now in puts for note in notes if isinstance(note, Intent | Answered)]
        if noted:
            await noting.take(unit, noted)
        sheet = Sheet(unit.rows)
        hints = [(note, now) for notes, now in puts for note in notes if isinstance(note, Hint)]
        numbers = await sheet.lock(self.subjects(hint for hint, _ in hints) | also, len(hints))
        answers = iter(await self.take(unit, sheet, hints, numbers))
        also |= sheet.lacking
        await sheet.write()
        odd = [(note, now) for notes, now in puts for note in notes if isinstance(note, Undecodable)]
        if odd:
            await unit.letters.keep(odd)
        return [_summed([next(answers) for note in notes if isinstance(note, Hint)]) for notes, _ in puts]

    def subjects(self, hints: Iterable[Hint]) -> set[Subject]:
        """The rows that hints may change; of catalogs that nobody can ask there may be more."""
        subjects: set[Subject] = set()
        for hint in hints:
            subjects.add(hint.subject)
            if hint.subject.catalog in self._terms.told:
                subjects.update(name for name in (hint.renamed_from, hint.renamed_to) if name is not None)
        return subjects

    async def take(
        self, unit: Unit, sheet: Sheet, hints: Sequence[tuple[Hint, datetime]], numbers: Iterator[int]
    ) -> list[Taken]:
        """Log hints and have their rows changed, which are locked but not written yet.

        Args:
            numbers: one for each, drawn since the rows were locked.
        """
        if not hints:
            return []
        entries = [Entry(next(numbers), hint, now) for hint, now in hints]
        new = await unit.events.log(entries)
        return [self._fold(sheet, entry) if entry.seq in new else Taken(new=False) for entry in entries]

    def _fold(self, sheet: Sheet, entry: Entry) -> Taken:
        seq, hint, now = entry
        superseded, stirring = has_news(sheet.load(hint.subject)), False
        for subject, row in taken(hint, seq, now, self._terms, sheet.load).items():
            stirring = stirring or stirs(sheet.load(subject), row)
            sheet.save(subject, row)
        return Taken(new=True, superseded=superseded, stirring=stirring)


def _summed(taken: Sequence[Taken]) -> PutAnswer:
    new = sum(one.new for one in taken)
    accepted = Accepted(new, len(taken) - new, sum(one.superseded for one in taken))
    return PutAnswer(accepted, any(one.stirring for one in taken))
