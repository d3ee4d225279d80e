"""How the subjects of intents that are due are hinted: over the port to the database, at the beginning of a claim."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sfn.inbox.book import Change
from sfn.inbox.intents import ASKED_AT_ONCE, asked, hints
from sfn.inbox.postgres.intake import Intake
from sfn.inbox.postgres.sheet import Sheet
from sfn.inbox.postgres.unit import Unit

SOON: Final = timedelta(milliseconds=50)
"""Until what another transaction had is looked for again: it may only have been told something of it."""


async def ask(unit: Unit, intake: Intake, now: datetime) -> datetime | None:
    """Hint the subjects of intents that are due, but not those that another transaction has; when the next one is due.

    What is left to another transaction stays due until one has asked for it.
    """
    span = await unit.intents.span()
    if not span.is_any_due(now):
        return span.earliest
    due = await unit.intents.due(now, ASKED_AT_ONCE)
    wanted = hints(due)
    sheet = Sheet(unit.rows)
    busy, numbers = await sheet.lock_free({hint.subject for hint in wanted}, len(wanted))
    free = [intent for intent in due if intent.subject not in busy]
    await intake.take(unit, sheet, [(hint, now) for hint in hints(free)], numbers)
    await sheet.write()
    if free:
        await unit.intents.save([Change(intent, asked(intent, now)) for intent in free])
    span = await unit.intents.span()
    if not span.is_any_due(now):
        return span.earliest
    return now if len(free) == ASKED_AT_ONCE else now + SOON
