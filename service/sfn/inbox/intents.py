"""Intents that are open: when the catalog is asked for a commit whose outcome is not known. Pure, the same everywhere.

An open intent is a schedule of hints, no more. Only the answer to its own commit ends it early: what a publish finds in
the catalog says nothing of a commit that is still on its way there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol, TypeAlias, assert_never

from sfn.domain.events import Intent, IntentOutcome, Notification
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier

# ── intents: Intents that are open

CHECK_DELAYS: Final = (timedelta(seconds=30), timedelta(minutes=2), timedelta(minutes=10), timedelta(minutes=35))
"""After an intent was opened, or left open. Iceberg's own REST server tries a commit again for up to 30 minutes."""
MAX_CHECKS_PER_CLAIM: Final = 500
"""Intents that one claim asks for at most; the next one asks for the rest."""
MERGE_WINDOW: Final = timedelta(seconds=10)
"""Of two intents that were left open so soon one after the other, one is asked for both: its last ask has minutes of
margin."""
MAX_UNKNOWN_TABLES: Final = 1000
"""Open intents of one peer for tables that had no row."""
WHOLE_CATALOG_ID: Final = ""
"""The id of the intent that stands for those of a catalog's tables that its peers had too many of: no request's."""

IntentKey: TypeAlias = tuple[str, JobKey]
"""What an open intent is known by: the id, and one of the subjects."""


@dataclass(frozen=True, slots=True)
class OpenIntent:
    """One subject of an intent that is open: a row of its own.

    Attributes:
        id: the intent's; `WHOLE_CATALOG_ID` for the one that nobody closes.
        subject: for which the catalog is asked.
        sender, peer: see `sfn.domain.Intent`.
        opened_at: from when its asks are counted.
        due_at: when the catalog is asked next.
        is_for_unknown_table: its subject is a table that had no row when it was opened: it counts against its peer.
        is_unresolved: the commit was answered, and its outcome is not known: nothing closes it any more.
    """

    id: str
    subject: JobKey
    sender: str
    peer: str
    opened_at: datetime
    due_at: datetime
    is_for_unknown_table: bool = False
    is_unresolved: bool = False

    @property
    def key(self) -> IntentKey:
        """What it is known by."""
        return self.id, self.subject

    @property
    def is_for_whole_catalog(self) -> bool:
        """Whether it is a catalog's own, which stands for others."""
        return self.id == WHOLE_CATALOG_ID


@dataclass(frozen=True, slots=True)
class OpenIntentStats:
    """What is open of a catalog, or of a table.

    Attributes:
        count: how many intents.
        since: from when the asks of the oldest are counted.
        due_at: when the catalog is asked next.
    """

    count: int
    since: datetime
    due_at: datetime


def open_intent_stats(intents: Collection[OpenIntent]) -> OpenIntentStats | None:
    """What is open, of some rows; None for nothing."""
    if not intents:
        return None
    return OpenIntentStats(
        len({row.id for row in intents}), min(row.opened_at for row in intents), min(row.due_at for row in intents)
    )


def intent_stats_by_catalog(catalogs: Mapping[str, OpenIntentStats]) -> tuple[dict[str, int], dict[str, datetime]]:
    """`Figures.intents` and `Figures.oldest_intent` of what is open by catalog."""
    counts = {catalog: one.count for catalog, one in catalogs.items()}
    return counts, {catalog: one.since for catalog, one in catalogs.items()}


class DueRange(NamedTuple):
    """When open intents are due.

    Attributes:
        earliest: the first; None without any.
        latest: the last.
    """

    earliest: datetime | None
    latest: datetime | None

    def is_any_due(self, now: datetime) -> bool:
        """Whether it is time to ask for one; the last may be due because it was set by a clock that was ahead."""
        return any(at is not None and is_due(at, now) for at in self)


def next_check_at(opened_at: datetime, now: datetime) -> datetime | None:
    """The first ask that is still to come; None after the last one."""
    return next((at for at in (opened_at + pause for pause in CHECK_DELAYS) if at > now), None)


def first_check_at(opened_at: datetime) -> datetime:
    """When the catalog is asked first."""
    return opened_at + CHECK_DELAYS[0]


def latest_check_at(now: datetime) -> datetime:
    """No ask can be later: a moment further away was set by a clock that was ahead, and does not count."""
    return now + CHECK_DELAYS[-1]


def is_due(due_at: datetime, now: datetime) -> bool:
    """Whether it is time to ask."""
    return due_at <= now or due_at > latest_check_at(now)


def after_check(intent: OpenIntent, now: datetime) -> OpenIntent | None:
    """An intent that was due once it was asked for, however many asks it missed; None: that was the last one."""
    opened_at = min(intent.opened_at, now)
    due_at = next_check_at(opened_at, now)
    return replace(intent, opened_at=opened_at, due_at=due_at) if due_at is not None else None


def mark_unresolved(intent: OpenIntent, now: datetime) -> OpenIntent:
    """An intent whose commit was answered without telling what became of it: its asks are counted anew."""
    return replace(intent, opened_at=now, due_at=first_check_at(now), is_unresolved=True)


def whole_catalog_intent(intent: OpenIntent, before: OpenIntent | None) -> OpenIntent:
    """The intent of the whole catalog, in place of one that its peer has too many of; its next ask is not put off.

    Args:
        before: as it is, None where it is not open.
    """
    due_at = min(intent.due_at, before.due_at) if before is not None else intent.due_at
    subject = CatalogName(intent.subject.catalog)
    return OpenIntent(WHOLE_CATALOG_ID, subject, intent.sender, "", intent.opened_at, due_at, is_unresolved=True)


def notifications_for_due(due: Iterable[OpenIntent]) -> list[Notification]:
    """What is put for intents that are due: one hint for all of a subject, in their order."""
    senders: dict[JobKey, str] = {}
    for intent in due:
        senders.setdefault(intent.subject, intent.sender)
    return [Notification(subject, sender) for subject, sender in senders.items()]


# ── book: What the notes of a transaction make of the open intents

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
