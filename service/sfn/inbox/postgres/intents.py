"""Intents of many puts, applied at once over the port to the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sfn.domain.events import Intent, IntentOutcome
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.inbox.intents import WHOLE_CATALOG_ID, OpenIntent, OpenIntents, ReceivedIntent, split_messages
from sfn.inbox.postgres.transaction import FoundIntents, InboxTransaction, IntentQuery


class _LoadedIntents:
    """Loaded intents; implements `IntentStore`."""

    def __init__(self, rows: Iterable[OpenIntent], found: FoundIntents) -> None:
        self._found = found
        self._rows: dict[str, list[OpenIntent]] = {}
        for row in rows:
            self._rows.setdefault(row.id, []).append(row)

    def with_id(self, intent_id: str) -> Iterable[OpenIntent]:
        return self._rows.get(intent_id, ())

    def unresolved_since(self, subject: JobKey) -> datetime | None:
        return self._found.unresolved_since.get(subject)

    def count_unknown_tables(self, peer: str) -> int:
        return self._found.unknown_tables.get(peer, 0)

    def has_job(self, table: TableIdentifier) -> bool:
        return table in self._found.known


async def take(unit: InboxTransaction, notes: Sequence[ReceivedIntent]) -> None:
    """Apply messages about intents, before any job is locked.

    Other transactions may open intents of the same peer at the same time, so a peer may exceed its limit by a few. Two
    transactions may each leave an unresolved intent of the same table.
    """
    closed, others = split_messages(notes)
    if closed:
        await unit.intents.close(closed)
    if not others:
        return
    answered = {note.intent_id for note, _ in others if isinstance(note, IntentOutcome)}
    locked = await unit.intents.get(answered) if answered else []
    found = await unit.intents.find(_sought([note for note, _ in others if isinstance(note, Intent)], locked))
    # The locked rows come last: no other transaction has changed them since they were read.
    book = OpenIntents(_LoadedIntents({row.key: row for row in (*found.rows, *locked)}.values(), found))
    for note, now in others:
        book.apply(note, now)
    changes = book.changes()
    made = [after for before, after in changes if after is not None and (before is None or after.is_for_whole_catalog)]
    changed = [change for change in changes if change.before is not None and not change.before.is_for_whole_catalog]
    if changed:
        await unit.intents.save(changed)
    if made:
        await unit.intents.open(made)


def _sought(opened: Sequence[Intent], answered: Sequence[OpenIntent]) -> IntentQuery:
    return IntentQuery(
        ids={WHOLE_CATALOG_ID, *(intent.id for intent in opened)},
        known={subject for intent in opened for subject in intent.subjects},
        unresolved={row.subject for row in answered},
        peers={intent.peer for intent in opened},
    )
