"""What the rows say of all tables together: read only."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from datetime import datetime

from sfn.inbox.sqlite.rows import COLUMNS, Rows, micros, subject_of
from sfn.words import Known, TableName


class RosterQueries:
    """Queries on one connection, see `sfn.inbox.Roster`."""

    def __init__(self, db: sqlite3.Connection, rows: Rows) -> None:
        self._db, self._rows = db, rows

    def known(self, catalog: str, after: str, limit: int) -> list[tuple[str, Known]]:
        """A page of a catalog's table rows with keys greater than `after`, in order, each with its key."""
        query = f"SELECT {COLUMNS} FROM subject WHERE catalog = ? AND key > ? ORDER BY key LIMIT ?"
        page = []
        for columns in self._db.execute(query, (catalog, after, limit)).fetchall():
            row = self._rows.parse(columns)
            if isinstance(row.subject, TableName):
                dead = row.reason is not None
                page.append((columns[0], Known(row.subject, row.story.live, row.memo.etag, dead, row.wish.floor)))
        return page

    def named(self, catalog: str, uuid: str) -> list[TableName]:
        """Rows whose live file carries the uuid."""
        query = "SELECT key FROM subject WHERE catalog = ? AND live_uuid = ? ORDER BY key"
        return _names(self._db.execute(query, (catalog, uuid)))

    def older(self, catalog: str, uuid: str, before: datetime) -> list[TableName]:
        """Those of them that are not dead and whose document was written before a moment."""
        query = (
            "SELECT key FROM subject WHERE catalog = ? AND live_uuid = ? AND live_written_at < ? AND state <> 'dead' "
            "ORDER BY key"
        )
        return _names(self._db.execute(query, (catalog, uuid, micros(before))))

    def live_at(self, catalog: str, location: str) -> list[tuple[TableName, str | None]]:
        """Rows with a live file at a location, each with its table uuid."""
        query = "SELECT key, live_uuid FROM subject WHERE catalog = ? AND live_location = ? ORDER BY key"
        return [
            (subject, uuid)
            for key, uuid in self._db.execute(query, (catalog, location)).fetchall()
            if isinstance(subject := subject_of(key), TableName)
        ]

    def visitors(self, catalog: str, location: str) -> list[TableName]:
        """Rows that may have a file at a location, live or not."""
        query = "SELECT l.key FROM location l JOIN subject s ON s.key = l.key WHERE l.location = ? AND s.catalog = ?"
        return sorted(_names(self._db.execute(query, (location, catalog))))

    def live_count(self, catalog: str) -> int:
        """How many rows have a live file."""
        query = "SELECT count(*) FROM subject WHERE catalog = ? AND live_location IS NOT NULL"
        (count,) = self._db.execute(query, (catalog,)).fetchone()
        return int(count)


def _names(keys: Iterable[tuple[str]]) -> list[TableName]:
    return [subject for (key,) in keys if isinstance(subject := subject_of(key), TableName)]
