"""The worker never waits for a bell that nobody will ring."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import anyio

from sfn.errors import Scope, Transient
from sfn.inbox import Claimed
from sfn.store import PointerStore
from sfn.words import Accepted, Claim, Hint, Known, Lane, Outcome, Released, Slots, Step, TableName, Urgency
from sfn.work.lanes import FIRST
from sfn.work.worker import Inbox, Source, Terms, Worker

ORDERS = TableName("prod", (), "orders")
LANE = Lane("prod", "", Urgency.LIVE)


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
    """Catalogs of which none can be reached."""

    asked: int = 0

    async def named(self, catalog: str) -> Source | None:
        self.asked += 1
        raise Transient(catalog, scope=Scope.CATALOG, expected="an answer", found="none")


class Unused:
    """The faces of an inbox that an outage never asks."""

    async def known(self, catalog: str) -> AsyncIterator[Known]:
        raise NotImplementedError
        yield

    async def named(self, catalog: str, uuid: str) -> list[TableName]:
        raise NotImplementedError

    async def older(self, catalog: str, uuid: str, before: datetime) -> list[TableName]:
        raise NotImplementedError

    async def neighbours(self, table: TableName, location: str) -> frozenset[TableName]:
        raise NotImplementedError

    async def limit(self, catalog: str) -> int:
        raise NotImplementedError

    async def release(self, catalog: str, now: datetime) -> int:
        raise NotImplementedError


class NoStores:
    def at(self, location: str) -> PointerStore:
        raise NotImplementedError


class Silence:
    """A journal that nobody reads."""

    def settled(self, claim: Claim, outcome: Outcome, seconds: float) -> None: ...

    def fenced(self, claim: Claim) -> None: ...

    def surprised(self, claim: Claim, error: Exception) -> None: ...


@dataclass(slots=True)
class OneRow:
    """An inbox with one row, whose calls take time.

    Attributes:
        claims_take: how much.
        waited: until when the worker wanted to sleep.
        offered: the slots of each claim.
        rang: something was settled.
    """

    clock: HandClock
    claims_take: timedelta = timedelta()
    waited: list[datetime | None] = field(default_factory=list)
    offered: list[Slots] = field(default_factory=list)
    rang: anyio.Event = field(default_factory=anyio.Event)

    async def claim(self, slots: Slots, now: datetime) -> Claimed:
        self.offered.append(slots)
        is_first = len(self.offered) == 1
        if not is_first:
            self.clock.at += self.claims_take
        claim = Claim(ORDERS, LANE, token=1, seq=1, attempt=1, since=now)
        return Claimed((claim,) if is_first else (), None)

    async def wait(self, until: datetime | None) -> None:
        self.waited.append(until)
        await self.rang.wait()
        self.rang = anyio.Event()

    async def settle(self, claim: Claim, outcome: Outcome, now: datetime) -> bool:
        assert isinstance(outcome, Released)
        self.rang.set()
        # Whoever waits for the bell gets a turn before this one is back.
        await anyio.wait_all_tasks_blocked()
        return True

    async def renew(self, claims: Sequence[Claim], now: datetime) -> list[Claim]:
        return list(claims)

    async def remember(self, claim: Claim, location: str, uuid: str | None) -> frozenset[TableName] | None:
        raise NotImplementedError

    async def permit(self, claim: Claim, step: Step, now: datetime) -> bool:
        raise NotImplementedError

    async def put(self, notes: Sequence[Hint]) -> Accepted:
        raise NotImplementedError


async def waits(claims_take: timedelta) -> OneRow:
    """What the inbox saw when the only row met an outage."""
    clock = HandClock()
    row = OneRow(clock, claims_take)
    unused = Unused()
    worker = Worker(
        Inbox(row, row, unused, unused),
        Outage(),
        NoStores(),
        clock=clock,
        chance=clock,
        journal=Silence(),
        terms=Terms(concurrency=1),
    )
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run, stop)
        with anyio.fail_after(10):
            while len(row.waited) < 2:  # noqa: ASYNC110 - the twin has no event of its own for it
                await anyio.sleep(0.001)
        stop.set()
    return row


async def test_a_breaker_that_reopens_while_the_inbox_is_asked_is_not_waited_for_in_vain() -> None:
    row = await waits(claims_take=2 * FIRST)
    assert row.waited[-1] is not None
    assert row.waited[-1] <= row.clock.at


async def test_who_is_woken_by_a_settled_claim_finds_its_slot_free() -> None:
    row = await waits(claims_take=timedelta())
    assert row.offered[0].total == row.offered[2].total == 1
