"""How intents are opened and closed: over the port to the database, those of many puts at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sfn.inbox.book import Book, Dated, parted
from sfn.inbox.intents import WHOLE, OpenIntent
from sfn.inbox.postgres.notes import Looked, Sought
from sfn.inbox.postgres.unit import Unit
from sfn.words import Answered, Intent, Subject, TableName


class _Shelf:
    """What was read for a book: implements `Shelf`."""

    def __init__(self, rows: Iterable[OpenIntent], looked: Looked) -> None:
        self._looked = looked
        self._rows: dict[str, list[OpenIntent]] = {}
        for row in rows:
            self._rows.setdefault(row.id, []).append(row)

    def of(self, number: str) -> Iterable[OpenIntent]:
        return self._rows.get(number, ())

    def left_at(self, subject: Subject) -> datetime | None:
        return self._looked.left_at.get(subject)

    def unseen(self, peer: str) -> int:
        return self._looked.unseen.get(peer, 0)

    def has_row(self, table: TableName) -> bool:
        return table in self._looked.known


async def take(unit: Unit, notes: Sequence[Dated]) -> None:
    """Take notes, before any row is locked.

    Others may open some of the same peer at the same time, so that it has a few more than its bound; and two that each
    leave one of the same table open may both keep theirs.
    """
    closed, others = parted(notes)
    if closed:
        await unit.intents.close(closed)
    if not others:
        return
    answered = {note.intent for note, _ in others if isinstance(note, Answered)}
    locked = await unit.intents.get(answered) if answered else []
    looked = await unit.intents.look(_sought([note for note, _ in others if isinstance(note, Intent)], locked))
    # Of those that are both it is the locked ones that nobody has changed since.
    book = Book(_Shelf({row.key: row for row in (*looked.rows, *locked)}.values(), looked))
    for note, now in others:
        book.take(note, now)
    changes = book.changes()
    made = [after for before, after in changes if after is not None and (before is None or after.is_whole)]
    changed = [change for change in changes if change.before is not None and not change.before.is_whole]
    if changed:
        await unit.intents.save(changed)
    if made:
        await unit.intents.open(made)


def _sought(opened: Sequence[Intent], answered: Sequence[OpenIntent]) -> Sought:
    return Sought(
        ids={WHOLE, *(intent.id for intent in opened)},
        known={subject for intent in opened for subject in intent.subjects},
        left={row.subject for row in answered},
        peers={intent.peer for intent in opened},
    )
