"""The inboxes that the promises are tried on, a worker's hands, and the commits that a gateway notes in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import anyio
import asyncpg

from sfn.domain.events import Intent, Notification
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.domain.jobs import (
    Capacity,
    Done,
    IndexedTable,
    LeasedJob,
    Outcome,
    PublishedPointer,
    PublishResult,
    SweepCompleted,
    TableState,
)
from sfn.inbox.inbox import Inbox
from sfn.inbox.intents import CHECK_DELAYS
from sfn.inbox.model import AdminCommand, DeadLetter, DeadLetterFilter, InboxConfig
from sfn.inbox.postgres import PostgresInbox
from sfn.inbox.postgres_server import PostgresServer
from sfn.inbox.schema import (
    AUDIT,
    CACHE,
    CATALOG,
    COUNTER,
    GROUP,
    INTENT,
    JOB,
    LETTER,
    OUTCOME,
    PERMIT,
    PLACE,
    UNDECODABLE,
)
from sfn.inbox.sqlite import SqliteInbox
from tests.servers.postgres import Postgres
from tests.support.clock import HandClock

PLENTY = Capacity(total=100, live=90, sweeps=10)
EVENT_ONLY = "outside"
"""An event-only catalog."""
TERMS = InboxConfig(
    lease=timedelta(seconds=30),
    retry_cap=timedelta(minutes=5),
    max_crashes=5,
    max_drops={"few": 2},
    event_only_catalogs=frozenset({EVENT_ONLY}),
)
AT = "s3://lake/orders"
FIRST, SECOND, THIRD, LAST = (pause.total_seconds() for pause in CHECK_DELAYS)
DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class Site:
    """Where inboxes may be kept.

    Attributes:
        folder: for files.
        server: starts PostgreSQL where it does not run yet.
    """

    folder: Path
    server: Callable[[], Postgres]


Opened = AbstractAsyncContextManager[Inbox]


@asynccontextmanager
async def sqlite(site: Site, clock: HandClock) -> AsyncIterator[Inbox]:
    async with SqliteInbox.opened(site.folder / "inbox.db", TERMS, clock) as inbox:
        yield inbox


@asynccontextmanager
async def postgres(site: Site, clock: HandClock) -> AsyncIterator[Inbox]:
    """One that begins anew each time in the same database: to make another one takes as long as a test."""
    server = PostgresServer(site.server().dsn())
    async with PostgresInbox.opened(server, TERMS, clock, stats_max_age=0) as inbox:
        await emptied(server.url)
        yield inbox


async def emptied(dsn: str) -> None:
    """Leave nothing in an inbox of PostgreSQL, and have all that is numbered begin anew."""
    connection = await asyncpg.connect(dsn)
    try:
        # TRUNCATE makes every table and index anew.
        tables = [table.name for table in (JOB, CACHE, PLACE, OUTCOME, GROUP, INTENT, LETTER, UNDECODABLE)]
        tables += [table.name for table in (CATALOG, PERMIT, AUDIT, COUNTER)]
        tables += ["event", "pending"]
        emptying = [f"DELETE FROM sfn.{table}" for table in tables]  # noqa: S608 - our own names
        restarting = [f"SELECT setval('sfn.{sequence}', 1, false)" for sequence in ("number", "token")]
        await connection.execute(";".join([*emptying, *restarting]))
    finally:
        await connection.close()


ADAPTERS: Mapping[str, Callable[[Site, HandClock], Opened]] = {"SQLite": sqlite, "PostgreSQL": postgres}


@dataclass(frozen=True, slots=True)
class Ground:
    """An inbox, its clock, and what a receiver and a worker do with it."""

    inbox: Inbox
    clock: HandClock

    @property
    def now(self) -> datetime:
        """The present."""
        return self.clock.now()

    def after(self, seconds: float) -> datetime:
        """A moment ahead."""
        return self.clock.now() + timedelta(seconds=seconds)

    async def hint(self, *tables: TableIdentifier) -> None:
        """A hint for each table, that says no more than to look."""
        await self.inbox.put([Notification(table) for table in tables])

    async def claims(self, slots: Capacity = PLENTY) -> list[LeasedJob]:
        """What can be claimed now."""
        return list((await self.inbox.claim(slots)).jobs)

    async def claim(self) -> LeasedJob:
        """The one row that can be claimed now."""
        (claim,) = await self.claims()
        return claim

    async def waiting_claim(self, seconds: float = DAY) -> list[str]:
        """Whose the jobs are that a worker gets that waits so long; those that it is given at once, too."""
        return subjects((await self.inbox.claim(PLENTY, (), self.after(seconds))).jobs)

    async def claimed_after(self, cause: Awaitable[object]) -> list[str]:
        """Whose the jobs are that a worker gets that waited before something happened."""
        found: list[str] = []

        async def claim() -> None:
            found.extend(await self.waiting_claim())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(claim)
            await anyio.sleep(0.05)
            await cause
        return found

    async def settle(self, claim: LeasedJob, outcome: Outcome) -> None:
        """End a claim that still has its row."""
        assert await self.inbox.settle(claim, outcome, self.now)

    async def settled(self, table: TableIdentifier, outcome: Outcome) -> None:
        """Hint a table, claim it alone, and end the claim."""
        await self.hint(table)
        await self.settle(await self.claim(), outcome)

    async def published(
        self,
        table: TableIdentifier,
        location: str = AT,
        uuid: str | None = "u1",
        due: float = 3600,
        *,
        short_lived: bool = False,
    ) -> None:
        """A table with a live file at a location; whoever was asked to look because of it has looked."""
        await self.hint(table)
        claim = await self.claim()
        assert await self.inbox.record_location(claim, location, uuid) is not None
        for other in await self.claims():
            await self.settle(other, Done(self.after(3600), PublishResult(other.table_state, other.cache)))
        await self.settle(claim, self.done(location, uuid, due=due, short_lived=short_lived))

    def done(
        self, location: str = AT, uuid: str | None = "u1", due: float = 3600, *, short_lived: bool = False
    ) -> Done:
        """A publish that left a live file."""
        pointer = f"{location}/metadata/00001-{uuid}.metadata.json"
        live = PublishedPointer(pointer, uuid, location, self.now)
        return Done(self.after(due), PublishResult(TableState(live=live, has_settled=True, is_short_lived=short_lived)))

    async def known(self, catalog: str = "prod") -> list[IndexedTable]:
        """The roster of a catalog, by name."""
        return sorted([row async for row in self.inbox.tables(catalog)], key=lambda row: row.table)

    async def row(self, table: TableIdentifier) -> IndexedTable | None:
        """A table's row in the roster."""
        return next((row for row in await self.known(table.catalog) if row.table == table), None)

    async def open_letters(self, catalog: str = "prod") -> list[tuple[str, str]]:
        """Subjects and reasons of the open dead letters."""
        letters = await self.inbox.list_after(DeadLetterFilter(catalog=catalog), 0, 1000)
        return sorted((str(one.subject), one.reason.value) for one in letters)

    async def letters(self, catalog: str = "prod") -> list[DeadLetter]:
        """Every dead letter of a catalog, oldest first."""
        return await self.inbox.list_after(DeadLetterFilter(status=None, catalog=catalog), 0, 1000)

    def order(self, about: str = "") -> AdminCommand:
        """What an operator says now."""
        return AdminCommand("ann", about, self.now)


def table(name: str, catalog: str = "prod") -> TableIdentifier:
    """A table of a catalog."""
    return TableIdentifier(catalog, ("sales",), name)


def subjects(claims: Sequence[LeasedJob]) -> list[str]:
    """Whose the claims are, in their order."""
    return [str(claim.subject) for claim in claims]


def pointer(number: int) -> str:
    """A metadata location with a number."""
    return f"{AT}/metadata/{number:05d}-0407e6d5-2565-f5ee-3b29-be3dd5fefd16.metadata.json"


ORDERS, RETURNS, STOCK = table("orders"), table("returns"), table("stock")


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
