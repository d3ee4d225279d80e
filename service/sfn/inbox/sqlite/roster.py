"""What the rows say of all tables together: read only."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sfn.inbox.sqlite.codec import keys_of_tables, micros, parse_etag, parse_story, parse_wish, subject_of
from sfn.inbox.sqlite.rows import Rows
from sfn.words import Known, Reason, TableName


class RosterQueries:
    """Queries on one connection, see `sfn.inbox.Roster`."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def known(self, catalog: str, after: str, limit: int) -> list[tuple[str, Known]]:
        """A page of a catalog's table rows with keys greater than `after`, in order, each with its key."""
        query = (
            "SELECT key, reason, wish, story, (SELECT memo FROM memo WHERE memo.key = subject.key) FROM subject "
            "WHERE key > ? AND key < ? ORDER BY key LIMIT ?"
        )
        start, end = keys_of_tables(catalog)
        page = []
        for key, reason, wish, story, memo in self._rows.select(query, (max(start, after), end, limit)):
            subject = subject_of(key)
            if isinstance(subject, TableName):
                why = Reason(reason) if reason is not None else None
                live, told = parse_story(story).live, parse_wish(wish).floor
                page.append((key, Known(subject, live, parse_etag(memo), why, told)))
        return page

    def named(self, catalog: str, uuid: str) -> list[TableName]:
        """Rows whose live file carries the uuid."""
        query = "SELECT key FROM subject WHERE catalog = ? AND live_uuid = ? ORDER BY key"
        return _names(self._rows.select(query, (catalog, uuid)))

    def older(self, catalog: str, uuid: str, before: datetime) -> list[TableName]:
        """Those of them that are not dead and whose document was written before a moment."""
        query = (
            "SELECT key FROM subject WHERE catalog = ? AND live_uuid = ? AND live_written_at < ? AND state <> 'dead' "
            "ORDER BY key"
        )
        return _names(self._rows.select(query, (catalog, uuid, micros(before))))

    def live_at(self, catalog: str, location: str) -> list[tuple[TableName, str | None]]:
        """Rows with a live file at a location, each with its table uuid."""
        query = "SELECT key, live_uuid FROM subject WHERE catalog = ? AND live_location = ? ORDER BY key"
        return [
            (subject, uuid)
            for key, uuid in self._rows.select(query, (catalog, location))
            if isinstance(subject := subject_of(key), TableName)
        ]

    def visitors(self, catalog: str, location: str) -> list[TableName]:
        """Rows that may have a file at a location, live or not."""
        query = "SELECT l.key FROM location l JOIN subject s ON s.key = l.key WHERE l.location = ? AND s.catalog = ?"
        return sorted(_names(self._rows.select(query, (location, catalog))))

    def live_count(self, catalog: str) -> int:
        """How many rows have a live file."""
        query = "SELECT count(*) FROM subject WHERE catalog = ? AND live_location IS NOT NULL"
        ((count,),) = self._rows.select(query, (catalog,))
        return int(count)


def _names(keys: Iterable[tuple[Any, ...]]) -> list[TableName]:
    return [subject for (key,) in keys if isinstance(subject := subject_of(key), TableName)]
