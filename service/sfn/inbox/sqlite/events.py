"""The log of events: what was received, and by its ids what was received before."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sfn.domain.events import Notification
from sfn.inbox.codec import to_micros
from sfn.inbox.sqlite.batches import batches


class EventRow(NamedTuple):
    """One event.

    Attributes:
        seq: its number, greater than that of all before.
        key: its subject's.
        note: what it said.
        received: when.
    """

    seq: int
    key: str
    note: Notification
    received: datetime


class EventLog:
    """The events of one connection; the caller owns the transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def last(self) -> int:
        """The greatest number, 0 for none."""
        (seq,) = self._db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()
        return int(seq)

    def write(self, entries: Sequence[EventRow]) -> set[int]:
        """Log events in order of their numbers. The numbers of those that are new: (sender, event id) was not known."""
        return {seq for some in batches(entries) for seq in self._write_at_once(some)}

    def prune(self, before: datetime, most: int) -> int:
        """Delete at most `most` of the oldest events from before a time; return their number.

        Older is what has the lower number: the wall clock may have been set back in between.
        """
        query = (
            "DELETE FROM event WHERE seq <= (SELECT max(seq) FROM (SELECT seq, received_at FROM event ORDER BY seq "
            "LIMIT ?) WHERE received_at < ?)"
        )
        return self._db.execute(query, (most, to_micros(before))).rowcount

    def _write_at_once(self, entries: Sequence[EventRow]) -> Iterable[int]:
        rows = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(entries))
        values: list[Any] = []
        for entry in entries:
            note = entry.note
            values += (entry.seq, note.sender, note.event_id, entry.key, to_micros(entry.received), note.body)
        written = self._db.execute(
            f"INSERT INTO event(seq, sender, event_id, key, received_at, body) VALUES {rows} "
            "ON CONFLICT(sender, event_id) DO NOTHING",
            values,
        ).rowcount
        if written == len(entries):
            return [entry.seq for entry in entries]
        found = self._db.execute(
            "SELECT seq FROM event WHERE seq BETWEEN ? AND ?", (entries[0].seq, entries[-1].seq)
        ).fetchall()
        return [seq for (seq,) in found]
