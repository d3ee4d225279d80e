"""What a gateway notes of commits, and a worker that asks the catalog for them and finds nothing amiss."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sfn.domain.events import Intent
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.domain.jobs import Done, LeasedJob, SweepCompleted
from sfn.inbox.intents import CHECK_DELAYS
from tests.promises.inboxes import PLENTY, Ground, subjects, table

ORDERS, RETURNS, STOCK = table("orders"), table("returns"), table("stock")
FIRST, SECOND, THIRD, LAST = (pause.total_seconds() for pause in CHECK_DELAYS)
DAY: Final = 86_400


def intent(number: str, *named: JobKey, peer: str = "10.0.0.1") -> Intent:
    """What a gateway notes before it forwards a commit."""
    return Intent(number, named or (ORDERS,), "gateway", peer)


def flood(most: int, peer: str = "10.0.0.1") -> list[Intent]:
    """Intents of one peer for tables that nobody knows."""
    return [intent(f"{peer} {number}", table(f"made up {number}"), peer=peer) for number in range(most)]


async def seen(ground: Ground, *names: TableIdentifier) -> None:
    """Tables that have a row, and are not looked at of our own accord for long."""
    await ground.hint(*names)
    await looks(ground)


async def looks(ground: Ground) -> list[str]:
    """Whom the catalog is asked for now: each look ends well, and only news bring another one."""
    claims = await ground.claims()
    for claim in claims:
        await ground.settle(claim, _well(claim, ground.after(10 * DAY), ground.now))
    return subjects(claims)


def _well(claim: LeasedJob, at: datetime, now: datetime) -> Done | SweepCompleted:
    return SweepCompleted(at, now, within_limit=True) if isinstance(claim.subject, CatalogName) else Done(at)


async def asks(ground: Ground, until: float = 3 * LAST) -> list[tuple[float, list[str]]]:
    """When the catalog is asked from now on, in seconds, and for whom: by a worker that sleeps until the next time."""
    began, found = ground.now, list[tuple[float, list[str]]]()
    while True:
        asked = await looks(ground)
        if asked:
            found.append(((ground.now - began).total_seconds(), asked))
        due = (await ground.inbox.claim(PLENTY)).next_due
        if due is None or (due - began).total_seconds() > until:
            return found
        ground.clock.turn((due - ground.now).total_seconds())
