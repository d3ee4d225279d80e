"""A worker of another process hears of what was put, and finds it by looking where it hears nothing."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from sfn.clock import SystemClock
from sfn.domain.events import Intent, Notification
from sfn.domain.jobs import PublishResult, Rescheduled, Wakeup
from sfn.inbox.postgres import PostgresInbox, worklist
from tests.integration.sharing import claims, done, fill, named, replicas, session, stored
from tests.promises.inboxes import PLENTY
from tests.servers.postgres import Postgres

SELDOM = 20.0
"""Seconds from one look to the next: what wakes a worker sooner is what it hears."""
SOON = SELDOM / 2
AWHILE = 0.6
"""Seconds in which it would have heard."""
LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"


@pytest.fixture(name="seldom")
def fixture_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worklist, "POLLED", timedelta(seconds=SELDOM))


@pytest.fixture(name="dsn")
def fixture_dsn(postgres: Postgres, database: str) -> str:
    return postgres.dsn(database)


async def listening(inbox: PostgresInbox, dsn: str, listeners: int = 1) -> None:
    """Until it listens, as so many of the database then do, and its bell is quiet."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(inbox.wait, None)
        with anyio.fail_after(10):
            while await stored(dsn, LISTENERS) != [listeners]:  # noqa: ASYNC110 - the server knows
                await anyio.sleep(0.02)
        await anyio.sleep(0.1)
        tasks.cancel_scope.cancel()
    await inbox.claim(PLENTY)


async def waits(inbox: PostgresInbox) -> float:
    """Seconds."""
    began = anyio.current_time()
    await inbox.wait(None)
    return anyio.current_time() - began


@pytest.mark.usefixtures("seldom")
async def test_what_one_process_puts_wakes_the_others(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 3) as [first, *others], anyio.create_task_group() as tasks:
        times: list[float] = []

        async def wait(inbox: PostgresInbox) -> None:
            times.append(await waits(inbox))

        for listeners, inbox in enumerate(others, start=1):
            await listening(inbox, dsn, listeners)
            tasks.start_soon(wait, inbox)
        await anyio.sleep(0.1)
        await fill(first, 1)
        with anyio.fail_after(SOON):
            while len(times) < 2:  # noqa: ASYNC110 - they are many
                await anyio.sleep(0.01)


async def test_a_hint_of_a_row_that_was_due_already_wakes_nobody(dsn: str) -> None:
    async with replicas(dsn, SystemClock()) as [first, second]:
        await fill(first, 1)
        await listening(second, dsn)
        async with anyio.create_task_group() as tasks:
            await first.put([Notification(named(0))])
            tasks.start_soon(first.put, [Notification(named(0))])
            assert await waits(second) > AWHILE


async def test_an_intent_wakes_nobody(dsn: str) -> None:
    """Its first ask is half a minute away, and its answer mostly comes long before."""
    async with replicas(dsn, SystemClock()) as [gateway, worker]:
        await listening(worker, dsn)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gateway.put, [Intent("i1", (named(1),), "gateway", "10.0.0.1")])
            assert await waits(worker) > AWHILE


@pytest.mark.usefixtures("seldom")
async def test_a_row_that_another_one_asks_for_wakes_the_others(dsn: str) -> None:
    clock = SystemClock()
    async with replicas(dsn, clock) as [first, second]:
        await fill(first, 1)
        (claim,) = await claims(first)
        await listening(second, dsn)
        async with anyio.create_task_group() as tasks:
            asks = PublishResult(wakeups=(Wakeup(named(7)),))
            outcome = Rescheduled(clock.now() + timedelta(hours=1), "renamed", result=asks)
            tasks.start_soon(first.settle, claim, outcome, clock.now())
            assert await waits(second) < SOON
        assert [one.subject for one in await claims(second)] == [named(7)]


async def test_a_settle_that_is_nobody_else_s_business_wakes_nobody(dsn: str) -> None:
    clock = SystemClock()
    async with replicas(dsn, clock) as [first, second]:
        await fill(first, 1)
        (claim,) = await claims(first)
        await listening(second, dsn)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.settle, claim, done(), clock.now())
            assert await waits(second) > AWHILE


async def test_who_hears_nothing_any_more_looks(dsn: str) -> None:
    async with replicas(dsn, SystemClock()) as [first, second]:
        await listening(second, dsn)
        await deafen(dsn)
        await fill(first, 1)
        assert AWHILE < await waits(second) < SOON
        assert len(await claims(second)) == 1


@pytest.mark.usefixtures("seldom")
async def test_who_hears_nothing_any_more_listens_again(dsn: str) -> None:
    async with replicas(dsn, SystemClock()) as [first, second]:
        await listening(second, dsn)
        await deafen(dsn)
        await listening(second, dsn)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.put, [Notification(named(5))])
            assert await waits(second) < SOON


async def deafen(dsn: str) -> None:
    """End every connection that listens."""
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    assert True in await stored(dsn, ended)
    await anyio.sleep(0.1)


async def test_a_notification_that_cannot_be_sent_holds_nothing_up(dsn: str) -> None:
    """The queue's lock is the server's: whoever has it keeps others from telling, not from putting."""
    async with replicas(dsn, SystemClock(), 1) as [inbox], session(dsn) as other, other.transaction():
        await other.execute("NOTIFY elsewhere")
        with anyio.fail_after(5):
            await fill(inbox, 3)
            assert len(await claims(inbox)) == 3
