"""Puts: the log of events, and the jobs that new events change. The caller owns the transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sfn.domain.events import InboxMessage, Intent, IntentOutcome, Notification, PutResult, UndecodableRequest
from sfn.domain.identifiers import JobKey
from sfn.inbox.codec import encode_key, to_micros
from sfn.inbox.intents import ReceivedIntent
from sfn.inbox.model import InboxConfig, Job, has_unprocessed
from sfn.inbox.scheduling import makes_due
from sfn.inbox.sqlite.dead_letters import SqliteDeadLetters
from sfn.inbox.sqlite.intents import SqliteIntents
from sfn.inbox.sqlite.jobs import SqliteJobs, batches
from sfn.inbox.transitions import jobs_after_notification


class EventRow(NamedTuple):
    """A logged event.

    Attributes:
        seq: number of the event, greater than all earlier numbers.
        key: key of the subject's job.
        note: the notification.
        received: time of the put.
    """

    seq: int
    key: str
    note: Notification
    received: datetime


class EventLog:
    """The log of events on one connection; the caller owns the transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def last(self) -> int:
        """Return the greatest number of an event; 0 if there is none."""
        (seq,) = self._db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()
        return int(seq)

    def write(self, entries: Sequence[EventRow]) -> set[int]:
        """Log events in order of their numbers; return the numbers of new ones, by sender and event id."""
        return {seq for some in batches(entries) for seq in self._write_at_once(some)}

    def prune(self, before: datetime, most: int) -> int:
        """Delete at most `most` of the oldest events from before a time; return their number.

        Events are deleted in the order of their numbers, because the wall clock may have been set back in between.
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


class SqliteWriter:
    """The operations of receivers.

    Args:
        rows, events, dead, intents: the stores of `SqliteOperations`.
        config: the configuration of the inbox.
        draw: returns a number greater than all earlier ones.
    """

    def __init__(
        self,
        rows: SqliteJobs,
        events: EventLog,
        dead: SqliteDeadLetters,
        intents: SqliteIntents,
        config: InboxConfig,
        draw: Callable[[], int],
    ) -> None:
        self._rows, self._events, self._dead, self._intents = rows, events, dead, intents
        self._config, self._draw = config, draw

    def put_all(self, puts: Sequence[tuple[Sequence[InboxMessage], datetime]]) -> list[tuple[PutResult, bool]]:
        entries: list[list[EventRow]] = []
        for notes, now in puts:
            notifications = [note for note in notes if isinstance(note, Notification)]
            entries.append([self._entry(notification, now) for notification in notifications])
            # Most puts have notifications only.
            if len(notifications) < len(notes):
                self._take_others(notes, now)
        new = self._events.write([entry for each in entries for entry in each])
        return [self._taken(each, new) for each in entries]

    def ask(self, now: datetime) -> datetime | None:
        """Put the notifications of due intents; return when the next intent is due."""
        notifications, next_ask = self._intents.ask(now)
        entries = [self._entry(notification, now) for notification in notifications]
        if entries:
            self._taken(entries, self._events.write(entries))
        return next_ask

    def _entry(self, notification: Notification, now: datetime) -> EventRow:
        return EventRow(self._draw(), encode_key(notification.subject), notification, now)

    def _take_others(self, notes: Sequence[InboxMessage], now: datetime) -> None:
        """Apply the messages that are not notifications."""
        for note in notes:
            if isinstance(note, UndecodableRequest):
                self._dead.keep(note, now)
        intents: list[ReceivedIntent] = [(note, now) for note in notes if isinstance(note, Intent | IntentOutcome)]
        if intents:
            self._intents.take(intents)

    def _taken(self, entries: Sequence[EventRow], new: Collection[int]) -> tuple[PutResult, bool]:
        fresh = superseded = 0
        may_make_due = False
        for entry in entries:
            if entry.seq not in new:
                continue
            fresh += 1
            superseded += has_unprocessed(self._rows.load(entry.key))
            for subject, row in jobs_after_notification(
                entry.note, entry.seq, entry.received, self._config, self._load
            ).items():
                key = encode_key(subject)
                may_make_due = may_make_due or makes_due(self._rows.load(key), row)
                self._rows.save(key, row)
        return PutResult(fresh, len(entries) - fresh, superseded), may_make_due

    def _load(self, subject: JobKey) -> Job | None:
        return self._rows.load(encode_key(subject))
