"""Open intents: gateway commits with an unknown outcome.

An open intent is a schedule of notifications, no more. Only the answer to its own commit closes it early. A publish
cannot close it, because the commit may still be on its way to the catalog.

The messages of a gateway are records of the log. A fold applies them in their order; an intent and its answer that
meet in one fold cancel, and no row is ever written. Start with `OpenIntent` and `IntentFold`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from sfn.domain.events import Intent, IntentOutcome, Notification
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.inbox.model import OpenIntentStats
from sfn.inbox.schema import INTENT, decode_subject, encode_key, encode_subject, from_micros, to_micros
from sfn.inbox.transaction import Change, Query, Row, Run, Transaction, Upsert

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


class IntentFold:
    """The messages about intents of one fold: what must be read for them, and what they change.

    Args:
        messages: the messages, in their order.
    """

    def __init__(self, messages: Sequence[ReceivedIntent]) -> None:
        by_id: defaultdict[str, list[ReceivedIntent]] = defaultdict(list)
        for message, at in messages:
            by_id[_intent_id(message)].append((message, at))
        # The intent of the whole catalog stands for many commits, so no answer closes it.
        self._closed = {number for number, one in by_id.items() if number != WHOLE_CATALOG_ID and _is_answered(one)}
        if any(isinstance(message, Intent) and message.id not in self._closed for message, _ in messages):
            # An intent that was stored before makes room for others of its peer, so it must be read.
            self._closed = {number for number in self._closed if len(by_id[number]) > 1}
        self._others = [(message, at) for message, at in messages if _intent_id(message) not in self._closed]
        self._before: dict[IntentKey, OpenIntent] = {}
        self._after: dict[IntentKey, OpenIntent | None] = {}
        self._subjects: defaultdict[str, dict[JobKey, None]] = defaultdict(dict)
        self._unresolved: dict[JobKey, datetime] = {}
        self._unknown: Counter[str] = Counter()

    def subjects(self) -> set[JobKey]:
        """Return the subjects to check for a job."""
        return {one for message, _ in self._others if isinstance(message, Intent) for one in message.subjects}

    def queries(self) -> list[Query]:
        """Return the queries for what the messages depend on; `apply` takes their results."""
        if not self._others:
            return []
        ids = {_intent_id(message) for message, _ in self._others}
        keys = sorted(map(encode_key, self.subjects()))
        peers = sorted({message.peer for message, _ in self._others if isinstance(message, Intent)})
        named = sorted({WHOLE_CATALOG_ID, *ids})
        return [
            Query(f"SELECT {_COLUMNS} FROM sfn.intent WHERE id = ANY($1::text[])", (named,)),
            Query(
                # Two searches: one for either condition would read every intent.
                "SELECT subject, max(opened_at) FROM ("
                "SELECT subject, opened_at FROM sfn.intent WHERE is_unresolved AND key = ANY($2::text[]) "
                "UNION ALL SELECT subject, opened_at FROM sfn.intent WHERE is_unresolved AND key IN "
                "(SELECT key FROM sfn.intent WHERE id = ANY($1::text[]))) AS unresolved GROUP BY subject",
                (named, keys),
            ),
            Query(
                "SELECT peer, count(*) FROM sfn.intent WHERE is_for_unknown_table AND peer = ANY($1::text[]) "
                "GROUP BY peer",
                (peers,),
            ),
        ]

    def apply(self, found: Sequence[Sequence[Row]], has_job: Callable[[JobKey], bool]) -> None:
        """Apply the messages.

        Args:
            found: the results of `queries`.
            has_job: returns True if the inbox has a job for a subject.
        """
        if not self._others:
            return
        rows, unresolved, unknown = found
        self._before = {intent.key: intent for intent in map(parse_intent, rows)}
        for number, subject in self._before:
            self._subjects[number][subject] = None
        self._unresolved = {decode_subject(subject): from_micros(at) for subject, at in unresolved}
        self._unknown = Counter({str(peer): int(count) for peer, count in unknown})
        for message, now in self._others:
            if isinstance(message, Intent):
                self._open(message, now, has_job)
            elif message.intent_id != WHOLE_CATALOG_ID:
                self._close(message, now)

    def changes(self) -> list[Change]:
        """Return what to write."""
        pairs = [(self._before.get(key), after) for key, after in self._after.items()]
        changed = [after for before, after in pairs if after is not None and after is not before]
        gone = [before for before, after in pairs if before is not None and after is None]
        changes: list[Change] = []
        if changed:
            changes.append(save_intents(changed))
        if gone:
            changes += delete_intents(gone)
        if self._closed:
            changes.append(
                Run("DELETE FROM sfn.intent WHERE id = ANY($1::text[]) AND NOT is_unresolved", (sorted(self._closed),))
            )
        return changes

    def check(self, due: Iterable[OpenIntent], now: datetime, most: int) -> list[OpenIntent]:
        """Move at most `most` intents that are due to their next check; return them as they were.

        Args:
            due: stored intents that are due; the messages may have changed or closed some of them.
            now: the present.
            most: greatest number.
        """
        for row in due:
            if row.is_unresolved or row.id not in self._closed:
                self._after.setdefault(row.key, self._before.setdefault(row.key, row))
        found = [row for row in self._after.values() if row is not None and is_due(row.due_at, now)]
        checked = sorted(found, key=lambda row: row.due_at)[:most]
        for row in checked:
            self._after[row.key] = after_check(row, now)
        return checked

    def next_check_at(self) -> datetime | None:
        """Return when the first of the changed and due intents is due; None without any."""
        return min((row.due_at for row in self._after.values() if row is not None), default=None)

    def _open(self, intent: Intent, now: datetime, has_job: Callable[[JobKey], bool]) -> None:
        for subject in dict.fromkeys(intent.subjects):
            if self._get((intent.id, subject)) is not None:
                continue
            is_unknown = isinstance(subject, TableIdentifier) and not has_job(subject)
            row = OpenIntent(intent.id, subject, intent.sender, intent.peer, now, first_check_at(now), is_unknown)
            if is_unknown and self._unknown[intent.peer] >= MAX_UNKNOWN_TABLES:
                before = self._get((WHOLE_CATALOG_ID, CatalogName(subject.catalog)))
                self._save(whole_catalog_intent(row, before))
            else:
                self._unknown[intent.peer] += is_unknown
                self._save(row)

    def _close(self, answered: IntentOutcome, now: datetime) -> None:
        rows = [self._get((answered.intent_id, subject)) for subject in self._subjects[answered.intent_id]]
        for row in [one for one in rows if one is not None]:
            if not answered.is_known and (row.is_unresolved or not self._is_merged(row.subject, now)):
                self._save(mark_unresolved(row, now))
                self._unresolved[row.subject] = now
            elif not row.is_unresolved:
                self._unknown[row.peer] -= row.is_for_unknown_table
                self._after[row.key] = None

    def _is_merged(self, subject: JobKey, now: datetime) -> bool:
        """Return True if another unresolved intent of the subject has about the same schedule."""
        at = self._unresolved.get(subject)
        return at is not None and at >= now - MERGE_WINDOW

    def _get(self, key: IntentKey) -> OpenIntent | None:
        return self._after[key] if key in self._after else self._before.get(key)

    def _save(self, row: OpenIntent) -> None:
        self._after[row.key] = row
        self._subjects[row.id][row.subject] = None


def _intent_id(message: Intent | IntentOutcome) -> str:
    return message.id if isinstance(message, Intent) else message.intent_id


def _is_answered(messages: Sequence[ReceivedIntent]) -> bool:
    """Return True if messages about one intent are only its known outcome, or the intent and its known outcome."""
    *before, (last, _) = messages
    is_closed = isinstance(last, IntentOutcome) and last.is_known
    return is_closed and len(before) <= 1 and all(isinstance(message, Intent) for message, _ in before)


# ── Stored intents

_COLUMNS: Final = "id, subject, sender, peer, opened_at, due_at, is_for_unknown_table, is_unresolved"


def parse_intent(row: Row) -> OpenIntent:
    """Return the intent of a row."""
    number, subject, sender, peer, opened_at, due_at, is_for_unknown_table, is_unresolved = row
    times = from_micros(opened_at), from_micros(due_at)
    return OpenIntent(
        number, decode_subject(subject), sender, peer, *times, bool(is_for_unknown_table), bool(is_unresolved)
    )


def save_intents(intents: Sequence[OpenIntent]) -> Change:
    """Return the change that writes intents."""
    return Upsert(
        INTENT,
        [
            (
                one.id,
                encode_key(one.subject),
                encode_subject(one.subject),
                one.subject.catalog,
                one.sender,
                one.peer,
                to_micros(one.opened_at),
                to_micros(one.due_at),
                one.is_for_unknown_table,
                one.is_unresolved,
            )
            for one in intents
        ],
    )


def delete_intents(intents: Sequence[OpenIntent]) -> list[Change]:
    """Return the changes that delete intents."""
    by_key: defaultdict[str, list[str]] = defaultdict(list)
    for one in intents:
        by_key[encode_key(one.subject)].append(one.id)
    return [
        Run("DELETE FROM sfn.intent WHERE key = $1 AND id = ANY($2::text[])", (key, ids)) for key, ids in by_key.items()
    ]


def due_intents_query(now: datetime) -> Query:
    """Return the query for the due intents, the earliest first: one more than a claim checks, to know of the rest."""
    return Query(
        f"SELECT {_COLUMNS} FROM sfn.intent WHERE due_at <= $1 "
        f"UNION ALL SELECT {_COLUMNS} FROM sfn.intent WHERE due_at > $2 ORDER BY due_at, id, subject LIMIT $3::int",
        (to_micros(now), to_micros(latest_check_at(now)), MAX_CHECKS_PER_CLAIM + 1),
    )


async def intents_of(transaction: Transaction, subject: JobKey) -> OpenIntentStats | None:
    """Return the statistics of the open intents of a subject; None without any."""
    ((count, at, due),) = await transaction.fetch(
        "SELECT count(*), min(opened_at), min(due_at) FROM sfn.intent WHERE key = $1", encode_key(subject)
    )
    return OpenIntentStats(count, from_micros(at), from_micros(due)) if count else None
