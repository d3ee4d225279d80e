"""The dead letters in SQLite."""

from __future__ import annotations

import sqlite3
from datetime import datetime

from sfn.inbox.letters import Letter, Status
from sfn.inbox.sqlite.codec import key_of, micros, subject_of
from sfn.words import Reason


class DeadLetters:
    """The dead letters of one connection; the caller owns the transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def open(self, letter: Letter, now: datetime) -> None:
        """Open a letter, or bring the subject's open one up to date."""
        self._db.execute(
            "INSERT INTO dead_letter(key, catalog, reason, detail, status, opened_at, changed_at, attempts) "
            "VALUES(?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(key) WHERE status = 'open' DO UPDATE SET "
            "reason = excluded.reason, detail = excluded.detail, changed_at = excluded.changed_at, "
            "attempts = excluded.attempts",
            (
                key_of(letter.subject),
                letter.subject.catalog,
                letter.reason.value,
                letter.detail,
                letter.status.value,
                micros(now),
                micros(now),
                letter.attempts,
            ),
        )

    def close(self, key: str, status: Status, now: datetime) -> None:
        """Close a row's open letter, if it has one."""
        self._db.execute(
            "UPDATE dead_letter SET status = ?, changed_at = ? WHERE key = ? AND status = 'open'",
            (status.value, micros(now), key),
        )

    def of(self, catalog: str) -> list[Letter]:
        """Every letter of a catalog, oldest first."""
        query = "SELECT key, reason, detail, attempts, status FROM dead_letter WHERE catalog = ? ORDER BY id"
        return [
            Letter(subject_of(key), Reason(reason), detail, attempts, Status(status))
            for key, reason, detail, attempts, status in self._db.execute(query, (catalog,)).fetchall()
        ]
