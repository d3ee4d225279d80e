"""Processes that share an inbox, in PostgreSQL or in an SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import asyncpg

from sfn.clock import Clock, SystemClock
from sfn.domain.events import Notification
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import Capacity, Done, LeasedJob
from sfn.errors import SfnError
from sfn.inbox.model import InboxConfig, Job
from sfn.inbox.postgres import FOLD_LOCK, PostgresInbox
from sfn.inbox.postgres_server import PostgresServer
from sfn.inbox.schema import decode_job
from sfn.inbox.sqlite import SqliteInbox
from tests.promises.inboxes import PLENTY

ANY = InboxConfig()
ONE_BY_ONE = Capacity(total=3, live=3, sweeps=1)


@asynccontextmanager
async def replicas(
    dsn: str, clock: Clock, number: int = 2, terms: InboxConfig = ANY
) -> AsyncIterator[list[PostgresInbox]]:
    """Yield inboxes on one database, as of several processes."""
    async with AsyncExitStack() as stack:
        opened = [PostgresInbox.opened(PostgresServer(dsn), terms, clock, stats_max_age=0) for _ in range(number)]
        yield [await stack.enter_async_context(inbox) for inbox in opened]


@asynccontextmanager
async def session(dsn: str) -> AsyncIterator[Any]:
    """Yield a connection that is not the service's, by asyncpg, which has no types."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def stored(dsn: str, query: str) -> list[Any]:
    """Return the first column of a query's result."""
    async with session(dsn) as connection:
        return [row[0] for row in await connection.fetch(query)]


async def stored_jobs(dsn: str) -> dict[JobKey, Job]:
    """Return all jobs by subject, without their caches."""
    jobs = [decode_job(record) for record in await stored(dsn, "SELECT record FROM sfn.job")]
    return {job.subject: job for job in jobs}


@asynccontextmanager
async def holding_fold_lock(dsn: str) -> AsyncIterator[None]:
    """Keep all transactions that change jobs waiting."""
    async with session(dsn) as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1::bigint)", FOLD_LOCK)
        yield


async def blocked(dsn: str, sessions: int) -> None:
    """Wait until this many sessions of the database wait for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with anyio.fail_after(10):
        while await stored(dsn, waiting) != [sessions]:  # noqa: ASYNC110 - only the server knows
            await anyio.sleep(0.02)


def named(number: int) -> TableIdentifier:
    """Return one of many tables."""
    return TableIdentifier("prod", ("sales",), f"t{number:05}")


async def fill(inbox: PostgresInbox, rows: int) -> None:
    """Notify many tables."""
    await inbox.put([Notification(named(number)) for number in range(rows)])


async def claims(inbox: PostgresInbox, held: Sequence[LeasedJob] = ()) -> list[LeasedJob]:
    """Return what can be claimed now."""
    return list((await inbox.claim(PLENTY, held)).jobs)


async def waiting_claim(inbox: PostgresInbox) -> list[LeasedJob]:
    """What a worker gets that waits for as long as it takes."""
    return list((await inbox.claim(PLENTY, (), SystemClock().now() + timedelta(days=1))).jobs)


def done(after: float = 3600) -> Done:
    """Return the outcome of a publish; the next check is far away."""
    return Done(SystemClock().now() + timedelta(seconds=after))


def work_off(dsn: str, answer: Connection) -> None:
    """Claim and settle until nothing is due; send the tables of the settled claims."""

    async def run() -> None:
        settled: list[str] = []
        clock = SystemClock()
        async with PostgresInbox.opened(PostgresServer(dsn), ANY, clock) as inbox:
            answer.send("open")
            answer.recv()
            with anyio.fail_after(60):
                while got := (await inbox.claim(ONE_BY_ONE)).jobs:
                    for claim in got:
                        assert await inbox.settle(claim, done(), clock.now())
                        settled.append(str(claim.subject))
        answer.send(settled)

    anyio.run(run)


def claim_and_stand_still(dsn: str, answer: Connection) -> None:
    """Claim everything, send the number of claims, and wait to be killed."""

    async def run() -> None:
        async with PostgresInbox.opened(
            PostgresServer(dsn), InboxConfig(lease=timedelta(seconds=1)), SystemClock()
        ) as inbox:
            answer.send(len((await inbox.claim(PLENTY)).jobs))
            await anyio.sleep_forever()

    anyio.run(run)


CLIENTS = 8


def hold(database: Path, answer: Connection) -> None:
    """Open an inbox, send that it is open, and wait to be killed."""

    async def run() -> None:
        async with SqliteInbox.opened(database, InboxConfig(), SystemClock()) as inbox:
            await inbox.put([Notification(TableIdentifier("prod", (), "held"))])
            answer.send("open")
            await anyio.sleep_forever()

    anyio.run(run)


def open_it(database: Path, answer: Connection) -> None:
    """Open an inbox and close it, and send the error."""

    async def run() -> None:
        try:
            async with SqliteInbox.opened(database, InboxConfig(), SystemClock()):
                answer.send(None)
        except SfnError as error:
            answer.send((type(error).__name__, str(error)))

    anyio.run(run)


def put_for_ever(database: Path, answer: Connection) -> None:
    """Put event after event, and send each that was accepted."""

    async def client(inbox: SqliteInbox, number: int) -> None:
        turn = 0
        while True:
            turn += 1
            event = f"{number}-{turn}"
            await inbox.put([Notification(TableIdentifier("prod", (), f"t{turn % 50}"), f"client{number}", event)])
            answer.send((f"client{number}", event))

    async def run() -> None:
        async with (
            SqliteInbox.opened(database, InboxConfig(), SystemClock()) as inbox,
            anyio.create_task_group() as tasks,
        ):
            for number in range(CLIENTS):
                tasks.start_soon(client, inbox, number)

    anyio.run(run)
