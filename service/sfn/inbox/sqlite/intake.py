"""How notes come in, and what open intents have put: within a transaction, which is the caller's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from sfn.inbox.bell import stirs
from sfn.inbox.book import Dated
from sfn.inbox.codec import key_of
from sfn.inbox.row import Row, has_news
from sfn.inbox.sqlite.dead import DeadLetters
from sfn.inbox.sqlite.events import Entry, EventLog
from sfn.inbox.sqlite.intents import IntentTable
from sfn.inbox.sqlite.rows import Rows
from sfn.inbox.tellings import taken
from sfn.inbox.terms import Terms
from sfn.words import Accepted, Answered, Hint, Intent, Note, Subject, Undecodable


class Intake:
    """Takes notes in.

    Args:
        rows, events, dead, intents: the ledger's.
        terms: settings.
        draw: gives a number greater than all before.
    """

    def __init__(
        self,
        rows: Rows,
        events: EventLog,
        dead: DeadLetters,
        intents: IntentTable,
        terms: Terms,
        draw: Callable[[], int],
    ) -> None:
        self._rows, self._events, self._dead, self._intents = rows, events, dead, intents
        self._terms, self._draw = terms, draw

    def put_all(self, puts: Sequence[tuple[Sequence[Note], datetime]]) -> list[tuple[Accepted, bool]]:
        """See `Ledger.put_all`."""
        entries: list[list[Entry]] = []
        for notes, now in puts:
            hints = [note for note in notes if isinstance(note, Hint)]
            entries.append([self._entry(hint, now) for hint in hints])
            # Most that is put is hints alone.
            if len(hints) < len(notes):
                self._take_others(notes, now)
        new = self._events.write([entry for each in entries for entry in each])
        return [self._taken(each, new) for each in entries]

    def ask(self, now: datetime) -> datetime | None:
        """Put the hints of intents that are due; when the next intent is."""
        hints, next_ask = self._intents.ask(now)
        entries = [self._entry(hint, now) for hint in hints]
        if entries:
            self._taken(entries, self._events.write(entries))
        return next_ask

    def _entry(self, hint: Hint, now: datetime) -> Entry:
        return Entry(self._draw(), key_of(hint.subject), hint, now)

    def _take_others(self, notes: Sequence[Note], now: datetime) -> None:
        """What is no hint."""
        for note in notes:
            if isinstance(note, Undecodable):
                self._dead.keep(note, now)
        intents: list[Dated] = [(note, now) for note in notes if isinstance(note, Intent | Answered)]
        if intents:
            self._intents.take(intents)

    def _taken(self, entries: Sequence[Entry], new: Collection[int]) -> tuple[Accepted, bool]:
        fresh = superseded = 0
        stirring = False
        for entry in entries:
            if entry.seq not in new:
                continue
            fresh += 1
            superseded += has_news(self._rows.load(entry.key))
            for subject, row in taken(entry.note, entry.seq, entry.received, self._terms, self._load).items():
                key = key_of(subject)
                stirring = stirring or stirs(self._rows.load(key), row)
                self._rows.save(key, row)
        return Accepted(fresh, len(entries) - fresh, superseded), stirring

    def _load(self, subject: Subject) -> Row | None:
        return self._rows.load(key_of(subject))
