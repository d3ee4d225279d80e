"""A database in trouble: senders are told to come again, workers go on, and nothing acknowledged is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta

import anyio
import anyio.to_thread
import pytest

from sfn.clock import SystemClock
from sfn.domain.events import Notification, PutResult
from sfn.domain.jobs import Done, LeasedJob
from sfn.errors import ErrorScope, Transient
from sfn.inbox.model import InboxConfig
from sfn.inbox.postgres import PostgresInbox, PostgresServer
from sfn.inbox.postgres.opening import reached
from sfn.inbox.postgres.tables import Sql
from tests.integration.sharing import claims, fill, named, replicas, session, stored
from tests.promises.inboxes import PLENTY
from tests.servers.postgres import Postgres

TERMS = InboxConfig(lease=timedelta(seconds=2))
RESTARTS = 4


@pytest.fixture(name="own", scope="module")
def fixture_own() -> Iterator[Postgres]:
    """A server that nobody else has."""
    with Postgres() as postgres:
        yield postgres


@dataclass(slots=True)
class Book:
    """What was promised, kept outside of what made the promises."""

    acknowledged: set[str] = field(default_factory=set)
    settled: Counter[int] = field(default_factory=Counter)
    troubles: Counter[tuple[str, ErrorScope, float | None]] = field(default_factory=Counter)

    @asynccontextmanager
    async def noted(self, what: str) -> AsyncIterator[None]:
        """Trouble is expected: the caller comes again when it is told to."""
        try:
            yield
        except Transient as trouble:
            self.troubles[what, trouble.scope, trouble.retry_after] += 1
            await anyio.sleep(0.05)


async def send(inbox: PostgresInbox, number: int, book: Book, stop: anyio.Event) -> None:
    """Send event after event, each until it is taken."""
    turn = 0
    while not stop.is_set():
        event = f"{number}-{turn}"
        async with book.noted("put"):
            await inbox.put([Notification(named(turn % 20), "etl", event)])
            book.acknowledged.add(event)
            turn += 1


async def work(inbox: PostgresInbox, book: Book, stop: anyio.Event) -> None:
    """Claim and settle, each claim until it is settled or lost."""
    clock = SystemClock()
    while not stop.is_set():
        found: list[LeasedJob] = []
        async with book.noted("claim"):
            found += await claims(inbox)
        async with anyio.create_task_group() as tasks:
            for claim in found:
                tasks.start_soon(settle, inbox, claim, book, clock)
        await anyio.sleep(0.01)


async def settle(inbox: PostgresInbox, claim: LeasedJob, book: Book, clock: SystemClock) -> None:
    while True:
        async with book.noted("settle"):
            kept = await inbox.settle(claim, Done(clock.now() + timedelta(hours=1)), clock.now())
            book.settled[claim.fencing_token] += kept
            return


async def test_nothing_acknowledged_is_lost_however_often_the_server_is_killed(own: Postgres) -> None:
    """By a server whose own default is to answer before anything is on disk."""
    with own.database() as database:
        dsn, book, stop = own.dsn(database), Book(), anyio.Event()
        own.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
        async with replicas(dsn, SystemClock(), 2, TERMS) as inboxes, anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(send, inboxes[number % 2], number, book, stop)
            for inbox in inboxes:
                tasks.start_soon(work, inbox, book, stop)
            for _ in range(RESTARTS):
                await anyio.sleep(1.2)
                before = len(book.acknowledged)
                await anyio.to_thread.run_sync(own.stop)
                await anyio.sleep(0.3)
                await anyio.to_thread.run_sync(own.start)
                with anyio.fail_after(30):
                    while len(book.acknowledged) < before + 20:  # noqa: ASYNC110 - it goes on by itself
                        await anyio.sleep(0.02)
            stop.set()
        assert {trouble[1:] for trouble in book.troubles} == {(ErrorScope.INBOX, 1.0)}
        assert {trouble[0] for trouble in book.troubles} >= {"put", "claim"}
        assert set(book.settled.values()) <= {0, 1}
        assert book.acknowledged <= set(await stored(dsn, "SELECT event_id FROM sfn.event"))
        assert await stored(dsn, "SELECT count(*) FROM sfn.event") == await stored(
            dsn, "SELECT count(DISTINCT event_id) FROM sfn.event"
        )
        async with replicas(dsn, SystemClock(), 1, TERMS) as [inbox]:
            with anyio.fail_after(20):
                while await stored(dsn, "SELECT key FROM sfn.subject WHERE seq > done_seq OR state <> 'queued'"):
                    for claim in await claims(inbox):
                        assert await inbox.settle(claim, Done(claim.failing_since), SystemClock().now())
        assert await stored(dsn, "SELECT max(crashes) FROM sfn.subject") == [0]


async def test_who_has_no_connection_left_is_told_and_goes_on_when_there_is_one(own: Postgres) -> None:
    with own.database() as database:
        own.execute("CREATE ROLE narrow LOGIN")
        own.execute(f"ALTER DATABASE {database} OWNER TO narrow")
        server = PostgresServer(own.dsn(database).replace("postgres@", "narrow@"))
        async with PostgresInbox.opened(server, InboxConfig(), SystemClock()) as inbox:
            own.execute("ALTER ROLE narrow CONNECTION LIMIT 0")
            own.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'narrow'")
            with pytest.raises(Transient, match="53300") as refused:
                await fill(inbox, 1)
            assert "max_connections" in refused.value.remedy
            own.execute("ALTER ROLE narrow CONNECTION LIMIT -1")
            await anyio.sleep(0.3)
            assert await inbox.put([Notification(named(0))]) == PutResult(1, 0, 0)


async def test_a_primary_that_takes_no_writes_any_more_is_waited_for(own: Postgres) -> None:
    with own.database() as database:
        async with replicas(own.dsn(database), SystemClock(), 1) as [inbox]:
            own.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
            own.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'iceberg-sfn'")
            with pytest.raises(Transient, match="25006") as refused:
                await fill(inbox, 1)
            assert "target_session_attrs" in refused.value.remedy
            own.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
            own.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'iceberg-sfn'")
            await fill(inbox, 1)


async def test_a_table_that_somebody_keeps_locked_holds_nobody_up_for_long(own: Postgres) -> None:
    with own.database() as database:
        dsn = own.dsn(database)
        async with replicas(dsn, SystemClock(), 1) as [inbox], session(dsn) as other:
            async with other.transaction():
                await other.execute("LOCK TABLE sfn.subject")
                with anyio.fail_after(9), pytest.raises(Transient, match="55P03") as refused:
                    await fill(inbox, 1)
                assert "pg_stat_activity" in refused.value.remedy
            await fill(inbox, 1)
            assert len((await inbox.claim(PLENTY)).jobs) == 1


async def test_one_who_stops_in_the_middle_of_a_transaction_keeps_its_rows_for_seconds(own: Postgres) -> None:
    """Such as a process that is suspended: the server ends its session."""

    async def stand_still(sql: Sql) -> None:
        await sql.fetch("SELECT FROM sfn.subject FOR UPDATE")
        locked.set()
        await anyio.sleep(14)

    async def stopped() -> None:
        with anyio.move_on_after(20):
            async with reached(PostgresServer(dsn)) as there:
                await there.transactions.on_tables(stand_still)

    with own.database() as database:
        dsn, locked, taken = own.dsn(database), anyio.Event(), False
        async with replicas(dsn, SystemClock(), 1) as [inbox], anyio.create_task_group() as tasks:
            await fill(inbox, 1)
            tasks.start_soon(stopped)
            await locked.wait()
            began = anyio.current_time()
            while not taken:
                with suppress(Transient):
                    await inbox.put([Notification(named(0))])
                    taken = True
            assert anyio.current_time() - began < 13
            tasks.cancel_scope.cancel()
