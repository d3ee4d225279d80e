"""Through PgBouncer in transaction mode: each transaction may run in another session, which others get too."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest

from sfn.clock import SystemClock
from sfn.domain.events import Notification
from sfn.domain.jobs import LeasedJob
from sfn.inbox.postgres import PostgresInbox, PostgresServer, preflight
from tests.integration.sharing import claims, done, fill, named, replicas
from tests.promises.inboxes import PLENTY
from tests.servers.pgbouncer import PgBouncer


@pytest.fixture(name="dsn")
def fixture_dsn(pgbouncer: PgBouncer, database: str) -> str:
    return pgbouncer.dsn(database)


async def test_replicas_with_more_connections_than_there_are_sessions_get_along(dsn: str) -> None:
    clock = SystemClock()
    taken: list[LeasedJob] = []

    async def client(inbox: PostgresInbox, number: int) -> None:
        for turn in range(10):
            await inbox.put([Notification(named(number * 10 + turn), "etl", f"{number}-{turn}")])
            await inbox.max_missing("prod")

    async def worker(inbox: PostgresInbox) -> None:
        while len(taken) < 160:
            for claim in await claims(inbox):
                assert await inbox.settle(claim, done(), clock.now())
                taken.append(claim)
            await anyio.sleep(0.01)

    async with replicas(dsn, clock, 2) as inboxes, anyio.create_task_group() as tasks:
        for inbox in inboxes:
            tasks.start_soon(worker, inbox)
            for number in range(8):
                tasks.start_soon(client, inbox, number + 8 * inboxes.index(inbox))
    assert Counter(claim.subject for claim in taken) == {named(number): 1 for number in range(160)}


async def test_nothing_of_a_session_is_left_behind(pgbouncer: PgBouncer, database: str) -> None:
    dsn = pgbouncer.dsn(database)
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(inbox.max_missing, "prod")
                tasks.start_soon(inbox.put, [Notification(named(number))])
        await inbox.claim(PLENTY)
        with anyio.move_on_after(1.5):
            await inbox.wait(None)
        ours = ("enable_seqscan", "plan_cache_mode", "synchronous_commit", "lock_timeout", "statement_timeout")
        for _ in range(6):
            shown = [pgbouncer.execute(f"SHOW {name}", database) for name in ours]
            assert shown == ["on", "auto", "on", "0", "0"]
            assert pgbouncer.execute("SELECT count(*) FROM pg_prepared_statements", database) == "0"
            assert pgbouncer.execute("SELECT count(*) FROM pg_listening_channels()", database) == "0"
        assert pgbouncer.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", database) == "0"


async def test_what_another_replica_put_is_found_by_looking_once_a_second(dsn: str) -> None:
    async with replicas(dsn, SystemClock()) as [first, second]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fill, first, 1)
            with anyio.fail_after(3):
                await second.wait(None)
        assert len(await claims(second)) == 1


async def test_it_is_told_that_there_is_a_pooler(dsn: str) -> None:
    found = await preflight(PostgresServer(dsn), SystemClock())
    assert found.is_pooled
