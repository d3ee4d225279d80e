"""What the notes of a transaction make of the open intents: pure, over whatever keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias, assert_never

from sfn.domain.events import Intent, IntentOutcome
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.inbox.intents import (
    MAX_UNKNOWN_TABLES,
    MERGE_WINDOW,
    WHOLE_CATALOG_ID,
    OpenIntent,
    first_check_at,
    mark_unresolved,
    whole_catalog_intent,
)

ReceivedIntent: TypeAlias = tuple[Intent | IntentOutcome, datetime]
"""A note, and when it came."""


class IntentStore(Protocol):
    """What is open, as far as notes ask for it."""

    def with_id(self, number: str) -> Iterable[OpenIntent]:
        """All of an id."""
        ...

    def unresolved_since(self, subject: JobKey) -> datetime | None:
        """When the last one of a subject was left open that is there still; None without any."""
        ...

    def count_unknown_tables(self, peer: str) -> int:
        """How many of a peer count against it."""
        ...

    def has_job(self, table: TableIdentifier) -> bool:
        """Whether the inbox has a row for a table."""
        ...


class IntentChange(NamedTuple):
    """What becomes of an open intent.

    Attributes:
        before: as it was; None for one that was not there.
        after: as it is to be; None: it goes.
    """

    before: OpenIntent | None
    after: OpenIntent | None


class SplitMessages(NamedTuple):
    """Notes by what they cost.

    Attributes:
        closed_ids: ids that are closed, whatever there is of them but what was left open; before anything else.
        others: what has to be looked at, in order.
    """

    closed_ids: list[str]
    others: list[ReceivedIntent]


def split_messages(messages: Sequence[ReceivedIntent]) -> SplitMessages:
    """Most answers close an intent that nothing else is said of: these need no look at it."""
    named = Counter(_intent_id(message) for message, _ in messages)
    closed_ids: list[str] = []
    others: list[ReceivedIntent] = []
    for message, now in messages:
        if isinstance(message, IntentOutcome) and message.is_known and named[message.intent_id] == 1:
            closed_ids.append(message.intent_id)
        else:
            others.append((message, now))
    return SplitMessages(closed_ids, others)


class OpenIntents:
    """Takes notes, one after the other, and remembers what is to be written."""

    def __init__(self, store: IntentStore) -> None:
        self._store = store
        self._before: dict[str, dict[JobKey, OpenIntent]] = {}
        self._after: dict[str, dict[JobKey, OpenIntent | None]] = {}
        self._added: Counter[str] = Counter()
        self._unresolved: dict[JobKey, datetime] = {}

    def apply(self, message: Intent | IntentOutcome, now: datetime) -> None:
        """Take a note."""
        if isinstance(message, Intent):
            self._open_intent(message, now)
        elif isinstance(message, IntentOutcome):
            # What stands for many is nobody's to close.
            if message.intent_id != WHOLE_CATALOG_ID:
                self._close_intent(message, now)
        else:
            assert_never(message)

    def changes(self) -> list[IntentChange]:
        """What is to be written."""
        pairs = [
            IntentChange(self._before.get(number, {}).get(subject), after)
            for number, rows in self._after.items()
            for subject, after in rows.items()
        ]
        return [pair for pair in pairs if pair.before is not pair.after]

    def _open_intent(self, intent: Intent, now: datetime) -> None:
        for subject in dict.fromkeys(intent.subjects):
            if subject in self._with_id(intent.id):
                continue
            is_unseen = isinstance(subject, TableIdentifier) and not self._store.has_job(subject)
            row = OpenIntent(intent.id, subject, intent.sender, intent.peer, now, first_check_at(now), is_unseen)
            if (
                is_unseen
                and self._store.count_unknown_tables(intent.peer) + self._added[intent.peer] >= MAX_UNKNOWN_TABLES
            ):
                self._save(whole_catalog_intent(row, self._with_id(WHOLE_CATALOG_ID).get(CatalogName(subject.catalog))))
            else:
                self._added[intent.peer] += is_unseen
                self._save(row)

    def _close_intent(self, answered: IntentOutcome, now: datetime) -> None:
        for row in self._with_id(answered.intent_id).values():
            if not answered.is_known and (row.is_unresolved or not self._is_merged(row.subject, now)):
                self._save(mark_unresolved(row, now))
                self._unresolved[row.subject] = now
            elif not row.is_unresolved:
                self._added[row.peer] -= row.is_for_unknown_table
                self._after.setdefault(row.id, {})[row.subject] = None

    def _is_merged(self, subject: JobKey, now: datetime) -> bool:
        """Whether another intent that nothing closes any more is asked for at about the same times."""
        moments = (self._store.unresolved_since(subject), self._unresolved.get(subject))
        return any(at is not None and at >= now - MERGE_WINDOW for at in moments)

    def _with_id(self, number: str) -> dict[JobKey, OpenIntent]:
        """The open ones of an id, as they are by now."""
        if number not in self._before:
            self._before[number] = {row.subject: row for row in self._store.with_id(number)}
        now = self._before[number] | self._after.get(number, {})
        return {subject: row for subject, row in now.items() if row is not None}

    def _save(self, row: OpenIntent) -> None:
        self._after.setdefault(row.id, {})[row.subject] = row


def _intent_id(message: Intent | IntentOutcome) -> str:
    return message.id if isinstance(message, Intent) else message.intent_id
