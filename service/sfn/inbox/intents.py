"""Open intents: gateway commits with an unknown outcome. Pure, and shared by all adapters.

An open intent is a schedule of notifications, no more. Only the answer to its own commit closes it early. A publish
cannot close it, because the commit may still be on its way to the catalog.

Start with `OpenIntent` and `OpenIntents`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol, TypeAlias, assert_never

from sfn.domain.events import Intent, IntentOutcome, Notification
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier

CHECK_DELAYS: Final = (timedelta(seconds=30), timedelta(minutes=2), timedelta(minutes=10), timedelta(minutes=35))
"""Times of the checks after an intent was opened or became unresolved. Iceberg's REST server retries a commit for up to
30 minutes."""
MAX_CHECKS_PER_CLAIM: Final = 500
"""Most intents that one claim checks; the next claim checks the rest."""
MERGE_WINDOW: Final = timedelta(seconds=10)
"""Two intents of one subject that become unresolved within this time share one schedule: the last check has minutes of
margin."""
MAX_UNKNOWN_TABLES: Final = 1000
"""Most open intents of one peer for tables without a job."""
WHOLE_CATALOG_ID: Final = ""
"""Id of the intent that replaces the intents above `MAX_UNKNOWN_TABLES`; no request has this id."""

IntentKey: TypeAlias = tuple[str, JobKey]
"""Key of an open intent: its id and one of its subjects."""


@dataclass(frozen=True, slots=True)
class OpenIntent:
    """An open intent for one of its subjects.

    Attributes:
        id: id of the intent; `WHOLE_CATALOG_ID` for one that no answer closes.
        subject: the table or catalog to check.
        sender, peer: see `sfn.domain.events.Intent`.
        opened_at: start of the schedule of checks.
        due_at: time of the next check.
        is_for_unknown_table: True if the table had no job when the intent was opened; counts against the peer.
        is_unresolved: True if the commit was answered with an unknown outcome; no answer closes the intent any more.
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
        return self.id, self.subject

    @property
    def is_for_whole_catalog(self) -> bool:
        """True for the intent that replaces those of single tables."""
        return self.id == WHOLE_CATALOG_ID


@dataclass(frozen=True, slots=True)
class OpenIntentStats:
    """Open intents of a catalog or a table.

    Attributes:
        count: number of intents.
        since: start of the oldest intent's schedule.
        due_at: time of the next check.
    """

    count: int
    since: datetime
    due_at: datetime


def open_intent_stats(intents: Collection[OpenIntent]) -> OpenIntentStats | None:
    """Return statistics of open intents; None without any."""
    if not intents:
        return None
    return OpenIntentStats(
        len({row.id for row in intents}), min(row.opened_at for row in intents), min(row.due_at for row in intents)
    )


def intent_stats_by_catalog(catalogs: Mapping[str, OpenIntentStats]) -> tuple[dict[str, int], dict[str, datetime]]:
    """Return `QueueStats.open_intents` and `QueueStats.oldest_intent`."""
    counts = {catalog: one.count for catalog, one in catalogs.items()}
    return counts, {catalog: one.since for catalog, one in catalogs.items()}


class DueRange(NamedTuple):
    """Times of the next checks of all open intents.

    Attributes:
        earliest: the first time; None without any intent.
        latest: the last time; None without any intent.
    """

    earliest: datetime | None
    latest: datetime | None

    def is_any_due(self, now: datetime) -> bool:
        """Return True if an intent is due; the latest one may be, if a clock that was ahead set its time."""
        return any(at is not None and is_due(at, now) for at in self)


def next_check_at(opened_at: datetime, now: datetime) -> datetime | None:
    """Return the time of the next check; None after the last one."""
    return next((at for at in (opened_at + pause for pause in CHECK_DELAYS) if at > now), None)


def first_check_at(opened_at: datetime) -> datetime:
    """Return the time of the first check."""
    return opened_at + CHECK_DELAYS[0]


def latest_check_at(now: datetime) -> datetime:
    """Return the latest possible time of a check; a later time was set by a clock that was ahead."""
    return now + CHECK_DELAYS[-1]


def is_due(due_at: datetime, now: datetime) -> bool:
    """Return True if a check is due."""
    return due_at <= now or due_at > latest_check_at(now)


def after_check(intent: OpenIntent, now: datetime) -> OpenIntent | None:
    """Return a due intent after its check; missed checks are skipped. None after the last check."""
    opened_at = min(intent.opened_at, now)
    due_at = next_check_at(opened_at, now)
    return replace(intent, opened_at=opened_at, due_at=due_at) if due_at is not None else None


def mark_unresolved(intent: OpenIntent, now: datetime) -> OpenIntent:
    """Return an intent after an answer with an unknown outcome; its schedule starts again."""
    return replace(intent, opened_at=now, due_at=first_check_at(now), is_unresolved=True)


def whole_catalog_intent(intent: OpenIntent, before: OpenIntent | None) -> OpenIntent:
    """Return the intent of the whole catalog that replaces an intent above the limit of its peer.

    Args:
        intent: the intent to replace.
        before: the open intent of the whole catalog, if any. Its next check does not move to a later time.
    """
    due_at = min(intent.due_at, before.due_at) if before is not None else intent.due_at
    subject = CatalogName(intent.subject.catalog)
    return OpenIntent(WHOLE_CATALOG_ID, subject, intent.sender, "", intent.opened_at, due_at, is_unresolved=True)


def notifications_for_due(due: Iterable[OpenIntent]) -> list[Notification]:
    """Return one notification per subject of the due intents, in their order."""
    senders: dict[JobKey, str] = {}
    for intent in due:
        senders.setdefault(intent.subject, intent.sender)
    return [Notification(subject, sender) for subject, sender in senders.items()]


ReceivedIntent: TypeAlias = tuple[Intent | IntentOutcome, datetime]
"""A message, and when it was received."""


class IntentStore(Protocol):
    """The open intents in the database."""

    def with_id(self, intent_id: str) -> Iterable[OpenIntent]:
        """Return the open intents with an id, one per subject."""
        ...

    def unresolved_since(self, subject: JobKey) -> datetime | None:
        """Return when the newest unresolved intent of a subject became unresolved; None without any."""
        ...

    def count_unknown_tables(self, peer: str) -> int:
        """Return how many intents of a peer are for unknown tables."""
        ...

    def has_job(self, table: TableIdentifier) -> bool:
        """Return True if the inbox has a job for a table."""
        ...


class IntentChange(NamedTuple):
    """A change of an open intent.

    Attributes:
        before: the intent before; None for a new one.
        after: the intent after; None if it is deleted.
    """

    before: OpenIntent | None
    after: OpenIntent | None


class SplitMessages(NamedTuple):
    """Messages, split by their cost.

    Attributes:
        closed_ids: ids to close first: delete their intents, except unresolved ones.
        others: messages to apply one by one, in order.
    """

    closed_ids: list[str]
    others: list[ReceivedIntent]


def split_messages(messages: Sequence[ReceivedIntent]) -> SplitMessages:
    """Split messages: a known outcome needs no read of its intent if no other message names that intent."""
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
    """The open intents within one transaction: applies messages and collects the changes to write."""

    def __init__(self, store: IntentStore) -> None:
        self._store = store
        self._before: dict[str, dict[JobKey, OpenIntent]] = {}
        self._after: dict[str, dict[JobKey, OpenIntent | None]] = {}
        self._added: Counter[str] = Counter()
        self._unresolved: dict[JobKey, datetime] = {}

    def apply(self, message: Intent | IntentOutcome, now: datetime) -> None:
        if isinstance(message, Intent):
            self._open_intent(message, now)
        elif isinstance(message, IntentOutcome):
            # The intent of the whole catalog stands for many commits, so no answer closes it.
            if message.intent_id != WHOLE_CATALOG_ID:
                self._close_intent(message, now)
        else:
            assert_never(message)

    def changes(self) -> list[IntentChange]:
        """Return the changes to write."""
        pairs = [
            IntentChange(self._before.get(intent_id, {}).get(subject), after)
            for intent_id, rows in self._after.items()
            for subject, after in rows.items()
        ]
        return [pair for pair in pairs if pair.before is not pair.after]

    def _open_intent(self, intent: Intent, now: datetime) -> None:
        for subject in dict.fromkeys(intent.subjects):
            if subject in self._with_id(intent.id):
                continue
            is_unknown = isinstance(subject, TableIdentifier) and not self._store.has_job(subject)
            row = OpenIntent(intent.id, subject, intent.sender, intent.peer, now, first_check_at(now), is_unknown)
            if (
                is_unknown
                and self._store.count_unknown_tables(intent.peer) + self._added[intent.peer] >= MAX_UNKNOWN_TABLES
            ):
                self._save(whole_catalog_intent(row, self._with_id(WHOLE_CATALOG_ID).get(CatalogName(subject.catalog))))
            else:
                self._added[intent.peer] += is_unknown
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
        """Return True if another unresolved intent of the subject has about the same schedule."""
        moments = (self._store.unresolved_since(subject), self._unresolved.get(subject))
        return any(at is not None and at >= now - MERGE_WINDOW for at in moments)

    def _with_id(self, intent_id: str) -> dict[JobKey, OpenIntent]:
        """Return the open intents with an id, by subject, with the changes so far."""
        if intent_id not in self._before:
            self._before[intent_id] = {row.subject: row for row in self._store.with_id(intent_id)}
        now = self._before[intent_id] | self._after.get(intent_id, {})
        return {subject: row for subject, row in now.items() if row is not None}

    def _save(self, row: OpenIntent) -> None:
        self._after.setdefault(row.id, {})[row.subject] = row


def _intent_id(message: Intent | IntentOutcome) -> str:
    return message.id if isinstance(message, Intent) else message.intent_id
