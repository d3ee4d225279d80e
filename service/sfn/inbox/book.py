"""What the notes of a transaction make of the open intents: pure, over whatever keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias, assert_never

from sfn.inbox.intents import MERGED_WITHIN, MOST_UNSEEN, WHOLE, OpenIntent, first_ask, left_open, whole
from sfn.words import Answered, CatalogName, Intent, Subject, TableName

Dated: TypeAlias = tuple[Intent | Answered, datetime]
"""A note, and when it came."""


class Shelf(Protocol):
    """What is open, as far as notes ask for it."""

    def of(self, number: str) -> Iterable[OpenIntent]:
        """All of an id."""
        ...

    def left_at(self, subject: Subject) -> datetime | None:
        """When the last one of a subject was left open that is there still; None without any."""
        ...

    def unseen(self, peer: str) -> int:
        """How many of a peer count against it."""
        ...

    def has_row(self, table: TableName) -> bool:
        """Whether the inbox has a row for a table."""
        ...


class Change(NamedTuple):
    """What becomes of an open intent.

    Attributes:
        before: as it was; None for one that was not there.
        after: as it is to be; None: it goes.
    """

    before: OpenIntent | None
    after: OpenIntent | None


class Parted(NamedTuple):
    """Notes by what they cost.

    Attributes:
        closed: ids that are closed, whatever there is of them but what was left open; before anything else.
        others: what has to be looked at, in order.
    """

    closed: list[str]
    others: list[Dated]


def parted(notes: Sequence[Dated]) -> Parted:
    """Most answers close an intent that nothing else is said of: these need no look at it."""
    named = Counter(_id_of(note) for note, _ in notes)
    closed: list[str] = []
    others: list[Dated] = []
    for note, now in notes:
        if isinstance(note, Answered) and note.known and named[note.intent] == 1:
            closed.append(note.intent)
        else:
            others.append((note, now))
    return Parted(closed, others)


class Book:
    """Takes notes, one after the other, and remembers what is to be written."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._before: dict[str, dict[Subject, OpenIntent]] = {}
        self._after: dict[str, dict[Subject, OpenIntent | None]] = {}
        self._more: Counter[str] = Counter()
        self._left: dict[Subject, datetime] = {}

    def take(self, note: Intent | Answered, now: datetime) -> None:
        """Take a note."""
        if isinstance(note, Intent):
            self._open(note, now)
        elif isinstance(note, Answered):
            # What stands for many is nobody's to close.
            if note.intent != WHOLE:
                self._answer(note, now)
        else:
            assert_never(note)

    def changes(self) -> list[Change]:
        """What is to be written."""
        pairs = [
            Change(self._before.get(number, {}).get(subject), after)
            for number, rows in self._after.items()
            for subject, after in rows.items()
        ]
        return [pair for pair in pairs if pair.before is not pair.after]

    def _open(self, intent: Intent, now: datetime) -> None:
        for subject in dict.fromkeys(intent.subjects):
            if subject in self._of(intent.id):
                continue
            is_unseen = isinstance(subject, TableName) and not self._shelf.has_row(subject)
            row = OpenIntent(intent.id, subject, intent.sender, intent.peer, now, first_ask(now), is_unseen)
            if is_unseen and self._shelf.unseen(intent.peer) + self._more[intent.peer] >= MOST_UNSEEN:
                self._save(whole(row, self._of(WHOLE).get(CatalogName(subject.catalog))))
            else:
                self._more[intent.peer] += is_unseen
                self._save(row)

    def _answer(self, answered: Answered, now: datetime) -> None:
        for row in self._of(answered.intent).values():
            if not answered.known and (row.is_left or not self._merges(row.subject, now)):
                self._save(left_open(row, now))
                self._left[row.subject] = now
            elif not row.is_left:
                self._more[row.peer] -= row.is_unseen
                self._after.setdefault(row.id, {})[row.subject] = None

    def _merges(self, subject: Subject, now: datetime) -> bool:
        """Whether another intent that nothing closes any more is asked for at about the same times."""
        moments = (self._shelf.left_at(subject), self._left.get(subject))
        return any(at is not None and at >= now - MERGED_WITHIN for at in moments)

    def _of(self, number: str) -> dict[Subject, OpenIntent]:
        """The open ones of an id, as they are by now."""
        if number not in self._before:
            self._before[number] = {row.subject: row for row in self._shelf.of(number)}
        now = self._before[number] | self._after.get(number, {})
        return {subject: row for subject, row in now.items() if row is not None}

    def _save(self, row: OpenIntent) -> None:
        self._after.setdefault(row.id, {})[row.subject] = row


def _id_of(note: Intent | Answered) -> str:
    return note.id if isinstance(note, Intent) else note.intent
