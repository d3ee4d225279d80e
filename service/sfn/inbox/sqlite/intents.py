"""The open intents in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from sfn.inbox.book import Book, Change, Dated, parted
from sfn.inbox.codec import key_of, micros, moment, moment_or_none, subject_of
from sfn.inbox.intents import ASKED_AT_ONCE, Opened, OpenIntent, Span, asked, farthest, hints
from sfn.inbox.sqlite.batches import batches
from sfn.words import Hint, Subject, TableName

_ROW = "id, key, sender, peer, opened_at, due_at, unseen, left_open"
_DUE = (
    f"SELECT {_ROW} FROM intent WHERE due_at <= ? UNION ALL SELECT {_ROW} FROM intent WHERE due_at > ? "
    "ORDER BY due_at, id, key LIMIT ?"
)


class IntentTable:
    """The open intents of one connection, and the shelf of those who note more; the caller owns the transaction.

    Args:
        has_row: whether the inbox has a row of that key.
    """

    def __init__(self, db: sqlite3.Connection, has_row: Callable[[str], bool]) -> None:
        self._db, self._has_row = db, has_row

    def take(self, notes: Sequence[Dated]) -> None:
        """Take notes."""
        closed, others = parted(notes)
        for number in closed:
            self._db.execute("DELETE FROM intent WHERE id = ? AND NOT left_open", (number,))
        book = Book(self)
        for note, now in others:
            book.take(note, now)
        self._write(book.changes())

    def ask(self, now: datetime) -> tuple[list[Hint], datetime | None]:
        """The hints of intents that are due, which are put off to their next ask; and when the next one is due."""
        span = self._span()
        if not span.is_any_due(now):
            return [], span.earliest
        found = self._db.execute(_DUE, (micros(now), micros(farthest(now)), ASKED_AT_ONCE)).fetchall()
        due = [_row(one) for one in found]
        self._write([Change(row, asked(row, now)) for row in due])
        span = self._span()
        # More may have been due than are asked for at once.
        return hints(due), now if span.is_any_due(now) else span.earliest

    def counts(self) -> dict[str, Opened]:
        """What is open, by catalog: every one is looked at."""
        query = "SELECT catalog, count(DISTINCT id), min(opened_at), min(due_at) FROM intent GROUP BY catalog"
        return {catalog: Opened(count, moment(at), moment(due)) for catalog, count, at, due in self._db.execute(query)}

    def opened(self, subject: Subject) -> Opened | None:
        """What is open of a subject; None for nothing."""
        query = "SELECT count(*), min(opened_at), min(due_at) FROM intent WHERE key = ?"
        count, at, due = self._db.execute(query, (key_of(subject),)).fetchone()
        return Opened(count, moment(at), moment(due)) if count else None

    def of(self, number: str) -> Iterable[OpenIntent]:
        """See `Shelf.of`."""
        return [_row(one) for one in self._db.execute(f"SELECT {_ROW} FROM intent WHERE id = ?", (number,))]

    def left_at(self, subject: Subject) -> datetime | None:
        """See `Shelf.left_at`."""
        query = "SELECT max(opened_at) FROM intent WHERE key = ? AND left_open"
        (at,) = self._db.execute(query, (key_of(subject),)).fetchone()
        return moment_or_none(at)

    def unseen(self, peer: str) -> int:
        """See `Shelf.unseen`."""
        (count,) = self._db.execute("SELECT count(*) FROM intent WHERE peer = ? AND unseen", (peer,)).fetchone()
        return int(count)

    def has_row(self, table: TableName) -> bool:
        """See `Shelf.has_row`."""
        return self._has_row(key_of(table))

    def _span(self) -> Span:
        # Each for itself is read from an index's end, but not both at once.
        query = "SELECT (SELECT min(due_at) FROM intent), (SELECT max(due_at) FROM intent)"
        earliest, latest = self._db.execute(query).fetchone()
        return Span(moment_or_none(earliest), moment_or_none(latest))

    def _write(self, changes: Sequence[Change]) -> None:
        for some in batches([after for _, after in changes if after is not None]):
            places = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(some))
            values = [value for row in some for value in (row.subject.catalog, *_columns(row))]
            self._db.execute(f"INSERT OR REPLACE INTO intent(catalog, {_ROW}) VALUES {places}", values)
        gone = [(row.id, key_of(row.subject)) for row, after in changes if row is not None and after is None]
        if gone:
            self._db.executemany("DELETE FROM intent WHERE id = ? AND key = ?", gone)


def _columns(row: OpenIntent) -> tuple[Any, ...]:
    moments = micros(row.opened_at), micros(row.due_at)
    return row.id, key_of(row.subject), row.sender, row.peer, *moments, row.is_unseen, row.is_left


def _row(found: Sequence[Any]) -> OpenIntent:
    number, key, sender, peer, opened_at, due_at, unseen, left = found
    subject, moments = subject_of(key), (moment(opened_at), moment(due_at))
    return OpenIntent(number, subject, sender, peer, *moments, is_unseen=bool(unseen), is_left=bool(left))
