"""Intents that are open: when the catalog is asked for a commit whose outcome is not known. Pure, the same everywhere.

An open intent is a schedule of hints, no more. Only the answer to its own commit ends it early: what a publish finds in
the catalog says nothing of a commit that is still on its way there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, JobKey

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
