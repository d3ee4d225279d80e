"""Dead letters: what could not be published, kept until something supersedes it or an operator acts."""

from __future__ import annotations

import sqlite3
from datetime import datetime

from sfn.inbox.sqlite.rows import micros


class DeadLetters:
    """The dead letters of one connection; the caller owns the transaction. One open letter a row."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def open(self, key: str, catalog: str, reason: str, detail: str, attempts: int, now: datetime) -> None:
        """Open a letter, or bring the open one up to date."""
        self._db.execute(
            "INSERT INTO dead_letter(key, catalog, reason, detail, status, opened_at, changed_at, attempts) "
            "VALUES(?, ?, ?, ?, 'open', ?, ?, ?) ON CONFLICT(key) WHERE status = 'open' DO UPDATE SET "
            "reason = excluded.reason, detail = excluded.detail, changed_at = excluded.changed_at, "
            "attempts = excluded.attempts",
            (key, catalog, reason, detail, micros(now), micros(now), attempts),
        )

    def close(self, key: str, status: str, now: datetime) -> None:
        """Close a row's open letter, if it has one, as `superseded`, `replayed` or `discarded`."""
        self._db.execute(
            "UPDATE dead_letter SET status = ?, changed_at = ? WHERE key = ? AND status = 'open'",
            (status, micros(now), key),
        )
