"""How the subjects of intents that are due are hinted: over the port to the database, at the beginning of a claim."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sfn.inbox.intents import MAX_CHECKS_PER_CLAIM, IntentChange, after_check, notifications_for_due
from sfn.inbox.postgres.intake import PostgresWriter
from sfn.inbox.postgres.sheet import JobBatch
from sfn.inbox.postgres.unit import InboxTransaction

SOON: Final = timedelta(milliseconds=50)
"""Pause until jobs that another transaction had locked are read again: that transaction may only notify them."""


async def ask(unit: InboxTransaction, intake: PostgresWriter, now: datetime) -> datetime | None:
    """Hint the subjects of intents that are due, but not those that another transaction has; when the next one is due.

    What is left to another transaction stays due until one has asked for it.
    """
    span = await unit.intents.span()
    if not span.is_any_due(now):
        return span.earliest
    due = await unit.intents.due(now, MAX_CHECKS_PER_CLAIM)
    wanted = notifications_for_due(due)
    sheet = JobBatch(unit.rows)
    busy, numbers = await sheet.lock_free({hint.subject for hint in wanted}, len(wanted))
    free = [intent for intent in due if intent.subject not in busy]
    await intake.take(unit, sheet, [(hint, now) for hint in notifications_for_due(free)], numbers)
    await sheet.write()
    if free:
        await unit.intents.save([IntentChange(intent, after_check(intent, now)) for intent in free])
    span = await unit.intents.span()
    if not span.is_any_due(now):
        return span.earliest
    return now if len(free) == MAX_CHECKS_PER_CLAIM else now + SOON
