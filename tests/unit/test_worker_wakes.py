"""The worker never waits for a bell that nobody will ring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import Capacity, Done, LeasedJob, Outcome
from sfn.errors import ErrorScope, Transient
from sfn.inbox import ClaimResult
from sfn.inbox.memory import MemoryInbox
from sfn.inbox.model import InboxConfig as InboxTerms
from sfn.inbox.model import NewDeadLetter
from sfn.storage import PrefixRouter
from sfn.worker.capacity import FIRST_PAUSE
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.worker import Worker, WorkerInbox, WorkerOptions

TABLES = [TableIdentifier("prod", (), name) for name in "abc"]
OUTAGE = 12
"""Questions that a catalog leaves unanswered."""
_SLEEP = 0.003
"""Seconds that a sleep takes which nothing interrupts, however long it was meant to be."""


@dataclass(slots=True)
class HandClock:
    """Moves when it is told."""

    at: datetime = datetime(2026, 8, 21, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def random(self) -> float:
        return 0.5


@dataclass(slots=True)
class Outage:
    """A catalog that cannot be reached at first; then it turns out that it is not configured."""

    left: int = OUTAGE

    async def get(self, catalog: str) -> ConnectedCatalog | None:
        await anyio.lowlevel.checkpoint()
        if self.left:
            self.left -= 1
            raise Transient(catalog, scope=ErrorScope.CATALOG, expected="an answer", found="none")
        return None

    def is_retired(self, catalog: str) -> bool:
        return False


class Journal:
    """What came of the tables in the end."""

    def __init__(self) -> None:
        self.done: set[object] = set()

    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        if isinstance(outcome, Done):
            self.done.add(claim.subject)

    def on_lease_lost(self, claim: LeasedJob) -> None: ...

    def on_leases_expired(self, leases: int) -> None: ...

    def on_poisoned(self, letter: NewDeadLetter) -> None: ...

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        raise AssertionError from error


class SlowInbox(MemoryInbox):
    """Its claims take time, and nothing else does but sleep."""

    def __init__(self, clock: HandClock, claims_take: timedelta) -> None:
        super().__init__(InboxTerms(), clock)
        self._hands, self._claims_take = clock, claims_take

    @override
    async def claim(self, capacity: Capacity, running: Sequence[LeasedJob] = ()) -> ClaimResult:
        claimed = await super().claim(capacity, running)
        await anyio.lowlevel.checkpoint()
        self._hands.at += self._claims_take
        return claimed

    @override
    async def wait(self, until: datetime | None) -> None:
        with anyio.move_on_after(None if until is None else _SLEEP) as sleep:
            await super().wait(None)
        if sleep.cancelled_caught and until is not None:
            self._hands.at = max(self._hands.at, until)

    @override
    async def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        kept = await super().settle(claim, outcome, now)
        # Whoever waits for the bell gets its turns before this one is back.
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        return kept


@pytest.mark.parametrize("concurrency", [1, 2, 8])
@pytest.mark.parametrize("share", [0, 0.1, 0.3, 0.6, 1.1, 2.3])
async def test_after_an_outage_every_row_is_looked_at(share: float, concurrency: int) -> None:
    clock, journal = HandClock(), Journal()
    inbox = SlowInbox(clock, FIRST_PAUSE * share)
    worker = Worker(
        WorkerInbox(inbox, inbox, inbox, inbox),
        Outage(),
        PrefixRouter({}),
        clock=clock,
        chance=clock,
        sink=journal,
        options=WorkerOptions(concurrency=concurrency),
    )
    await inbox.put([Notification(table) for table in TABLES])
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run, stop)
        with anyio.move_on_after(30):
            while journal.done != set(TABLES):  # noqa: ASYNC110 - the journal has no event for it
                await anyio.sleep(0.001)
        stop.set()
    assert journal.done == set(TABLES)
