"""The open intents in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from sfn.inbox.book import Book, Dated, parted
from sfn.inbox.codec import key_of
from sfn.inbox.intents import ASKED_AT_ONCE, Key, Opened, OpenIntent, asked, hints, is_due, opened
from sfn.words import Hint, Subject, TableName


class MemoryIntents:
    """Open intents, and the shelf of those who note more.

    Args:
        has_row: whether the inbox has a row for a table.
    """

    def __init__(self, has_row: Callable[[TableName], bool]) -> None:
        self._has_row = has_row
        self._rows: dict[Key, OpenIntent] = {}

    def take(self, notes: Sequence[Dated]) -> None:
        """Take notes."""
        closed, others = parted(notes)
        for row in [row for row in self._rows.values() if row.id in closed and not row.is_left]:
            del self._rows[row.key]
        book = Book(self)
        for note, now in others:
            book.take(note, now)
        for before, after in book.changes():
            if after is not None:
                self._rows[after.key] = after
            elif before is not None:
                del self._rows[before.key]

    def ask(self, now: datetime) -> tuple[list[Hint], datetime | None]:
        """The hints of intents that are due, which are put off to their next ask; and when the next one is due."""
        due = sorted((row for row in self._rows.values() if is_due(row.due_at, now)), key=_turn)[:ASKED_AT_ONCE]
        for row in due:
            after = asked(row, now)
            if after is not None:
                self._rows[row.key] = after
            else:
                del self._rows[row.key]
        moments = [row.due_at for row in self._rows.values()]
        # More may have been due than are asked for at once.
        is_any_due = any(is_due(at, now) for at in moments)
        return hints(due), now if is_any_due else min(moments, default=None)

    def counts(self) -> dict[str, Opened]:
        """What is open, by catalog."""
        rows = defaultdict[str, list[OpenIntent]](list)
        for row in self._rows.values():
            rows[row.subject.catalog].append(row)
        return {catalog: one for catalog, of in rows.items() if (one := opened(of)) is not None}

    def opened(self, subject: Subject) -> Opened | None:
        """What is open of a subject; None for nothing."""
        return opened([row for row in self._rows.values() if row.subject == subject])

    def of(self, number: str) -> Iterable[OpenIntent]:
        """See `Shelf.of`."""
        return [row for row in self._rows.values() if row.id == number]

    def left_at(self, subject: Subject) -> datetime | None:
        """See `Shelf.left_at`."""
        left = [row.opened_at for row in self._rows.values() if row.subject == subject and row.is_left]
        return max(left, default=None)

    def unseen(self, peer: str) -> int:
        """See `Shelf.unseen`."""
        return sum(row.peer == peer and row.is_unseen for row in self._rows.values())

    def has_row(self, table: TableName) -> bool:
        """See `Shelf.has_row`."""
        return self._has_row(table)


def _turn(row: OpenIntent) -> tuple[datetime, str, str]:
    return row.due_at, row.id, key_of(row.subject)
