"""The dead letters and the audit log in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from sfn.domain.events import UndecodableRequest
from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import DeadLetterReason
from sfn.inbox.model import (
    MAX_UNDECODABLE_PER_SENDER,
    AdminCommand,
    AuditEntry,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterStatus,
    NewDeadLetter,
)

OPEN: Final = DeadLetterStatus.OPEN


class MemoryDeadLetters:
    """Dead letters by id, in the order in which they were opened.

    Attributes:
        audited: the executed commands, in order.
    """

    def __init__(self) -> None:
        self.audited: list[AuditEntry] = []
        self._letters: dict[int, DeadLetter] = {}
        self._events: dict[int, UndecodableRequest] = {}
        self._last = 0

    def open(self, letter: NewDeadLetter, now: datetime) -> None:
        """Open a letter, or update the open letter of the subject."""
        before = self._open_of(letter.subject)
        if before is None:
            self._add(
                DeadLetter(0, letter.subject, None, letter.reason, letter.detail, letter.attempts, OPEN, now, now)
            )
        else:
            self._letters[before.id] = replace(
                before, reason=letter.reason, detail=letter.detail, attempts=letter.attempts, changed_at=now
            )

    def keep(self, note: UndecodableRequest, now: datetime) -> None:
        """Open a letter for an undecodable request; delete the sender's oldest letter if it has too many."""
        number = self._add(
            DeadLetter(0, None, note.sender, DeadLetterReason.UNDECODABLE, note.detail, 0, OPEN, now, now)
        )
        self._events[number] = note
        of_sender = [letter.id for letter in self._letters.values() if letter.sender == note.sender]
        for old in of_sender[:-MAX_UNDECODABLE_PER_SENDER]:
            del self._letters[old], self._events[old]

    def close(self, subject: JobKey, status: DeadLetterStatus, now: datetime, actor: str | None = None) -> None:
        """Close a subject's open letter, if it has one."""
        before = self._open_of(subject)
        if before is not None:
            self.end(before.id, status, now, actor)

    def end(self, number: int, status: DeadLetterStatus, now: datetime, actor: str | None) -> bool:
        """Close an open letter; return False if there is none with that id."""
        letter = self._letters.get(number)
        if letter is None or letter.status is not OPEN:
            return False
        self._letters[number] = replace(letter, status=status, changed_at=now, actor=actor)
        return True

    def find(self, wanted: DeadLetterFilter) -> list[DeadLetter]:
        """Return the matching letters, by id."""
        return [letter for letter in self._letters.values() if wanted.matches(letter)]

    def numbered(self, numbers: Sequence[int]) -> list[DeadLetter]:
        """Return the letters with these ids, by id."""
        return [self._letters[number] for number in sorted(set(numbers)) if number in self._letters]

    def event(self, number: int) -> UndecodableRequest | None:
        """Return the undecodable request of a letter; None if there is none."""
        return self._events.get(number)

    def counts(self) -> Counter[tuple[str, str]]:
        """Return the number of open letters, by catalog and reason."""
        catalogs = [
            (letter.subject.catalog if letter.subject else "", letter) for letter in self.find(DeadLetterFilter())
        ]
        return Counter((catalog, letter.reason.value) for catalog, letter in catalogs)

    def oldest(self) -> dict[str, datetime]:
        """Return the opening time of the oldest open letter by catalog, without held drops, which wait on purpose."""
        open_ones = [one for one in self.find(DeadLetterFilter()) if one.reason is not DeadLetterReason.HELD_DROP]
        return {one.subject.catalog: one.opened_at for one in reversed(open_ones) if one.subject is not None}

    def note(self, action: str, order: AdminCommand, count: int) -> int:
        """Add a command to the audit log; return the id of the entry."""
        self.audited.append(AuditEntry(len(self.audited) + 1, order.at, order.actor, action, order.target, count))
        return len(self.audited)

    def recount(self, entry: int, count: int) -> None:
        """Update the count of an entry in the audit log."""
        self.audited[entry - 1] = replace(self.audited[entry - 1], count=count)

    def _add(self, letter: DeadLetter) -> int:
        self._last += 1
        self._letters[self._last] = replace(letter, id=self._last)
        return self._last

    def _open_of(self, subject: JobKey) -> DeadLetter | None:
        found = [one for one in self._letters.values() if one.subject == subject and one.status is OPEN]
        return found[0] if found else None
