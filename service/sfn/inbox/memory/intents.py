"""The open intents in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from sfn.domain.events import Notification
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.inbox.codec import encode_key
from sfn.inbox.intents import (
    MAX_CHECKS_PER_CLAIM,
    IntentKey,
    OpenIntent,
    OpenIntents,
    OpenIntentStats,
    ReceivedIntent,
    after_check,
    is_due,
    notifications_for_due,
    open_intent_stats,
    split_messages,
)


class MemoryIntents:
    """Open intents; also the `IntentStore` for new messages.

    Args:
        has_row: returns True if the inbox has a job for a table.
    """

    def __init__(self, has_row: Callable[[TableIdentifier], bool]) -> None:
        self._has_row = has_row
        self._rows: dict[IntentKey, OpenIntent] = {}

    def take(self, notes: Sequence[ReceivedIntent]) -> None:
        """Apply messages."""
        closed, others = split_messages(notes)
        for row in [row for row in self._rows.values() if row.id in closed and not row.is_unresolved]:
            del self._rows[row.key]
        book = OpenIntents(self)
        for note, now in others:
            book.apply(note, now)
        for before, after in book.changes():
            if after is not None:
                self._rows[after.key] = after
            elif before is not None:
                del self._rows[before.key]

    def ask(self, now: datetime) -> tuple[list[Notification], datetime | None]:
        """Move due intents to their next check; return their notifications, and when the next intent is due."""
        due = sorted((row for row in self._rows.values() if is_due(row.due_at, now)), key=_turn)[:MAX_CHECKS_PER_CLAIM]
        for row in due:
            after = after_check(row, now)
            if after is not None:
                self._rows[row.key] = after
            else:
                del self._rows[row.key]
        moments = [row.due_at for row in self._rows.values()]
        # More intents may have been due than one claim checks.
        is_any_due = any(is_due(at, now) for at in moments)
        return notifications_for_due(due), now if is_any_due else min(moments, default=None)

    def counts(self) -> dict[str, OpenIntentStats]:
        """Return the statistics of open intents, by catalog."""
        rows = defaultdict[str, list[OpenIntent]](list)
        for row in self._rows.values():
            rows[row.subject.catalog].append(row)
        return {catalog: one for catalog, of in rows.items() if (one := open_intent_stats(of)) is not None}

    def opened(self, subject: JobKey) -> OpenIntentStats | None:
        """Return the statistics of the open intents of a subject; None without any."""
        return open_intent_stats([row for row in self._rows.values() if row.subject == subject])

    def with_id(self, intent_id: str) -> Iterable[OpenIntent]:
        return [row for row in self._rows.values() if row.id == intent_id]

    def unresolved_since(self, subject: JobKey) -> datetime | None:
        left = [row.opened_at for row in self._rows.values() if row.subject == subject and row.is_unresolved]
        return max(left, default=None)

    def count_unknown_tables(self, peer: str) -> int:
        return sum(row.peer == peer and row.is_for_unknown_table for row in self._rows.values())

    def has_job(self, table: TableIdentifier) -> bool:
        return self._has_row(table)


def _turn(row: OpenIntent) -> tuple[datetime, str, str]:
    return row.due_at, row.id, encode_key(row.subject)
