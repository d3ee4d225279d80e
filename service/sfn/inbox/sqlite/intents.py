"""The open intents in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from sfn.domain.events import Notification
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.inbox.codec import decode_key, encode_key, from_micros, from_micros_or_none, to_micros
from sfn.inbox.intents import (
    MAX_CHECKS_PER_CLAIM,
    DueRange,
    IntentChange,
    OpenIntent,
    OpenIntents,
    OpenIntentStats,
    ReceivedIntent,
    after_check,
    latest_check_at,
    notifications_for_due,
    split_messages,
)
from sfn.inbox.sqlite.jobs import batches

_ROW = "id, key, sender, peer, opened_at, due_at, unseen, left_open"
_DUE = (
    f"SELECT {_ROW} FROM intent WHERE due_at <= ? UNION ALL SELECT {_ROW} FROM intent WHERE due_at > ? "
    "ORDER BY due_at, id, key LIMIT ?"
)


class SqliteIntents:
    """The open intents of one connection, also as the `IntentStore` for new messages; the caller owns the transaction.

    Args:
        has_row: returns True if the inbox has a job with a key.
    """

    def __init__(self, db: sqlite3.Connection, has_row: Callable[[str], bool]) -> None:
        self._db, self._has_row = db, has_row

    def take(self, notes: Sequence[ReceivedIntent]) -> None:
        """Apply messages."""
        closed, others = split_messages(notes)
        for number in closed:
            self._db.execute("DELETE FROM intent WHERE id = ? AND NOT left_open", (number,))
        book = OpenIntents(self)
        for note, now in others:
            book.apply(note, now)
        self._write(book.changes())

    def ask(self, now: datetime) -> tuple[list[Notification], datetime | None]:
        """Move due intents to their next check; return their notifications, and when the next intent is due."""
        span = self._span()
        if not span.is_any_due(now):
            return [], span.earliest
        found = self._db.execute(
            _DUE, (to_micros(now), to_micros(latest_check_at(now)), MAX_CHECKS_PER_CLAIM)
        ).fetchall()
        due = [_row(one) for one in found]
        self._write([IntentChange(row, after_check(row, now)) for row in due])
        span = self._span()
        # More intents may have been due than one claim checks.
        return notifications_for_due(due), now if span.is_any_due(now) else span.earliest

    def counts(self) -> dict[str, OpenIntentStats]:
        """Return the statistics of open intents, by catalog; reads every intent."""
        query = "SELECT catalog, count(DISTINCT id), min(opened_at), min(due_at) FROM intent GROUP BY catalog"
        return {
            catalog: OpenIntentStats(count, from_micros(at), from_micros(due))
            for catalog, count, at, due in self._db.execute(query)
        }

    def opened(self, subject: JobKey) -> OpenIntentStats | None:
        """Return the statistics of the open intents of a subject; None without any."""
        query = "SELECT count(*), min(opened_at), min(due_at) FROM intent WHERE key = ?"
        count, at, due = self._db.execute(query, (encode_key(subject),)).fetchone()
        return OpenIntentStats(count, from_micros(at), from_micros(due)) if count else None

    def with_id(self, intent_id: str) -> Iterable[OpenIntent]:
        return [_row(one) for one in self._db.execute(f"SELECT {_ROW} FROM intent WHERE id = ?", (intent_id,))]

    def unresolved_since(self, subject: JobKey) -> datetime | None:
        query = "SELECT max(opened_at) FROM intent WHERE key = ? AND left_open"
        (at,) = self._db.execute(query, (encode_key(subject),)).fetchone()
        return from_micros_or_none(at)

    def count_unknown_tables(self, peer: str) -> int:
        (count,) = self._db.execute("SELECT count(*) FROM intent WHERE peer = ? AND unseen", (peer,)).fetchone()
        return int(count)

    def has_job(self, table: TableIdentifier) -> bool:
        return self._has_row(encode_key(table))

    def _span(self) -> DueRange:
        # Each query alone reads the end of an index; one query for both would not.
        query = "SELECT (SELECT min(due_at) FROM intent), (SELECT max(due_at) FROM intent)"
        earliest, latest = self._db.execute(query).fetchone()
        return DueRange(from_micros_or_none(earliest), from_micros_or_none(latest))

    def _write(self, changes: Sequence[IntentChange]) -> None:
        for some in batches([after for _, after in changes if after is not None]):
            places = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(some))
            values = [value for row in some for value in (row.subject.catalog, *_columns(row))]
            self._db.execute(f"INSERT OR REPLACE INTO intent(catalog, {_ROW}) VALUES {places}", values)
        gone = [(row.id, encode_key(row.subject)) for row, after in changes if row is not None and after is None]
        if gone:
            self._db.executemany("DELETE FROM intent WHERE id = ? AND key = ?", gone)


def _columns(row: OpenIntent) -> tuple[Any, ...]:
    moments = to_micros(row.opened_at), to_micros(row.due_at)
    return row.id, encode_key(row.subject), row.sender, row.peer, *moments, row.is_for_unknown_table, row.is_unresolved


def _row(found: Sequence[Any]) -> OpenIntent:
    number, key, sender, peer, opened_at, due_at, unseen, left = found
    subject, moments = decode_key(key), (from_micros(opened_at), from_micros(due_at))
    return OpenIntent(
        number, subject, sender, peer, *moments, is_for_unknown_table=bool(unseen), is_unresolved=bool(left)
    )
