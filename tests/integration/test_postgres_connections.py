"""Connections to PostgreSQL: PgBouncer, losses and notifications."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import anyio
import pytest

from sfn.clock import SystemClock
from sfn.domain.events import Intent, Notification, PutResult
from sfn.domain.jobs import Done, LeasedJob, PublishResult, Rescheduled, Retry, Wakeup
from sfn.errors import OutcomeUnknown, Transient
from sfn.inbox.postgres import PostgresInbox, PostgresServer, connections, job_queue, preflight, transaction_runner
from sfn.inbox.postgres.connections import PAUSE
from tests.promises.inboxes import PLENTY, TERMS
from tests.servers.postgres import PgBouncer, Postgres
from tests.servers.proxies import Cut, Wire, wire_to
from tests.support.clock import HandClock
from tests.support.shared_inboxes import claims, done, fill, named, replicas, session, stored

# PgBouncer.


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


# Lost connections.


COMMIT = b"Q\0\0\0\x0bCOMMIT\0"
"""The whole message (PostgreSQL manual, section 55.7): what begins READ COMMITTED is none, nor is a notification."""


@dataclass(frozen=True, slots=True)
class Ground:
    """An inbox behind a wire, one that is not, and the clock of both."""

    wire: Wire
    inbox: PostgresInbox
    other: PostgresInbox
    clock: HandClock
    dsn: str


@pytest.fixture(name="ground")
async def fixture_ground(postgres: Postgres, database: str) -> AsyncIterator[Ground]:
    clock, dsn = HandClock(), postgres.dsn(database)
    async with wire_to(postgres.port) as wire, replicas(dsn, clock, 1, TERMS) as [other]:
        behind = PostgresServer(dsn.replace(f":{postgres.port}/", f":{wire.port}/") + "?sslmode=disable")
        async with PostgresInbox.opened(behind, TERMS, clock, stats_max_age=0) as inbox:
            yield Ground(wire, inbox, other, clock, dsn)


@pytest.mark.parametrize("cut", Cut)
async def test_a_put_whose_answer_is_lost_is_repeated_and_counts_once(ground: Ground, cut: Cut) -> None:
    ground.wire.cut_at(COMMIT, cut)
    with pytest.raises(OutcomeUnknown, match="uncertain") as lost:
        await ground.inbox.put([Notification(named(0), "etl", "e1")])
    assert lost.value.retry_after == 1.0
    again = await ground.inbox.put([Notification(named(0), "etl", "e1")])
    assert again == (PutResult(0, 1, 0) if cut is Cut.AFTER else PutResult(1, 0, 0))
    assert await stored(ground.dsn, "SELECT event_id FROM sfn.event") == ["e1"]


@pytest.mark.parametrize("cut", Cut)
async def test_a_claim_that_never_came_to_be_known_is_made_again_at_once(ground: Ground, cut: Cut) -> None:
    await fill(ground.inbox, 2)
    ground.wire.cut_at(COMMIT, cut)
    with pytest.raises(OutcomeUnknown, match="uncertain"):
        await ground.inbox.claim(PLENTY)
    if cut is Cut.AFTER:
        assert await claims(ground.other) == []
    claimed = await ground.inbox.claim(PLENTY)
    # Neither an attempt nor a crash: nobody worked on them.
    assert [(claim.subject, claim.attempt) for claim in claimed.jobs] == [(named(0), 1), (named(1), 1)]
    assert claimed.expired_leases == 0
    assert await ground.inbox.renew(claimed.jobs) == list(claimed.jobs)


async def test_what_others_made_of_such_a_claim_is_left_alone(ground: Ground) -> None:
    await fill(ground.inbox, 1)
    ground.wire.cut_at(COMMIT, Cut.AFTER)
    with pytest.raises(OutcomeUnknown, match="uncertain"):
        await ground.inbox.claim(PLENTY)
    ground.clock.turn(TERMS.lease.total_seconds())
    (theirs,) = await claims(ground.other)
    assert await claims(ground.inbox) == []
    assert await ground.other.settle(theirs, Done(ground.clock.now()), ground.clock.now())


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("forget", [True, False])
async def test_a_settle_whose_answer_is_lost_is_no_lost_lease(ground: Ground, cut: Cut, *, forget: bool) -> None:
    await fill(ground.inbox, 1)
    (claim,) = await claims(ground.inbox)
    outcome = Done(ground.clock.now(), forget=forget)
    for _ in range(2):
        ground.wire.cut_at(COMMIT, cut)
        with pytest.raises(OutcomeUnknown, match="uncertain"):
            await ground.inbox.settle(claim, outcome, ground.clock.now())
        ground.clock.turn(1)
    assert await ground.inbox.settle(claim, outcome, ground.clock.now())
    assert not await ground.inbox.settle(claim, outcome, ground.clock.now())


async def test_a_settle_that_came_too_late_is_one_all_the_same(ground: Ground) -> None:
    """Its first try was lost on the way, and another process took the row over."""
    await fill(ground.inbox, 1)
    (mine,) = await claims(ground.inbox)
    ground.wire.cut_at(COMMIT, Cut.BEFORE)
    with pytest.raises(OutcomeUnknown, match="uncertain"):
        await ground.inbox.settle(mine, Done(ground.clock.now()), ground.clock.now())
    ground.clock.turn(TERMS.lease.total_seconds())
    (theirs,) = await claims(ground.other)
    assert await ground.other.settle(theirs, Retry(ground.clock.now(), "no"), ground.clock.now())
    assert not await ground.inbox.settle(mine, Done(ground.clock.now()), ground.clock.now())


async def test_what_is_lost_before_its_commit_is_begun_anew_and_nobody_hears_of_it(ground: Ground) -> None:
    await fill(ground.inbox, 1)
    ground.wire.cut_at(b"BEGIN", Cut.AFTER)
    assert await ground.inbox.put([Notification(named(1))]) == PutResult(1, 0, 0)
    ground.wire.cut_at(b"BEGIN", Cut.BEFORE)
    assert len(await claims(ground.inbox)) == 2


async def test_a_server_that_falls_silent_holds_nobody_up_for_long(ground: Ground) -> None:
    await fill(ground.inbox, 1)
    troubles: list[Transient] = []

    async def noted(number: int) -> None:
        try:
            await ground.inbox.put([Notification(named(number))])
        except Transient as trouble:
            troubles.append(trouble)

    ground.wire.is_silent = True
    with anyio.fail_after(40):
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(noted, number)
        assert len(troubles) == 3
    ground.wire.is_silent = False
    await anyio.sleep(PAUSE)
    with anyio.fail_after(10):
        assert len(await claims(ground.inbox)) == 1


async def test_what_a_firewall_forgot_costs_one_wait(ground: Ground) -> None:
    """Everything idle is silent then, and the next one of it would be too."""
    async with anyio.create_task_group() as tasks:
        for verb in (
            ground.inbox.retired_catalogs,
            ground.inbox.retired_catalogs,
            ground.inbox.check_version,
            ground.inbox.stats,
        ):
            tasks.start_soon(verb)
    ground.wire.forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_runner, "PATIENCE", 0.5)
        with pytest.raises(OutcomeUnknown, match="no answer in time"):
            await ground.inbox.put([Notification(named(0), "etl", "e1")])
    assert await ground.inbox.put([Notification(named(0), "etl", "e1")]) == PutResult(1, 0, 0)


async def test_what_was_idle_for_long_is_not_used_again(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(ground.inbox, 1)
    ground.wire.forget()
    monkeypatch.setattr(connections, "IDLE", 0.0)
    with anyio.fail_after(5):
        assert len(await claims(ground.inbox)) == 1


async def test_a_pooler_that_comes_between_is_noticed(postgres: Postgres, pgbouncer: PgBouncer, database: str) -> None:
    """Behind the same name: what was prepared in one session is asked of another."""
    clock = HandClock()
    taken: list[LeasedJob] = []
    async with wire_to(postgres.port) as wire:
        dsn = postgres.dsn(database).replace(f":{postgres.port}/", f":{wire.port}/") + "?sslmode=disable"
        async with PostgresInbox.opened(PostgresServer(dsn), TERMS, clock) as inbox:
            await fill(inbox, 1)
            wire.target = pgbouncer.port
            wire.cut_at(b"BEGIN", Cut.BEFORE)
            for number in range(20):
                async with anyio.create_task_group() as tasks:
                    for part in range(6):
                        tasks.start_soon(inbox.put, [Notification(named(number * 6 + part))])
                        tasks.start_soon(inbox.max_missing, "prod")
            taken += await claims(inbox)
            assert len(taken) == PLENTY.live


# Notifications between processes.


SELDOM = 20.0
"""Seconds from one look to the next: what wakes a worker sooner is what it hears."""
SOON = SELDOM / 2
AWHILE = 0.6
"""Seconds in which it would have heard."""
LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"


@pytest.fixture(name="seldom")
def fixture_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_queue, "POLLED", timedelta(seconds=SELDOM))


@pytest.fixture(name="direct_dsn")
def fixture_direct_dsn(postgres: Postgres, database: str) -> str:
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
async def test_what_one_process_puts_wakes_the_others(direct_dsn: str) -> None:
    async with replicas(direct_dsn, SystemClock(), 3) as [first, *others], anyio.create_task_group() as tasks:
        times: list[float] = []

        async def wait(inbox: PostgresInbox) -> None:
            times.append(await waits(inbox))

        for listeners, inbox in enumerate(others, start=1):
            await listening(inbox, direct_dsn, listeners)
            tasks.start_soon(wait, inbox)
        await anyio.sleep(0.1)
        await fill(first, 1)
        with anyio.fail_after(SOON):
            while len(times) < 2:  # noqa: ASYNC110 - they are many
                await anyio.sleep(0.01)


async def test_a_hint_of_a_row_that_was_due_already_wakes_nobody(direct_dsn: str) -> None:
    async with replicas(direct_dsn, SystemClock()) as [first, second]:
        await fill(first, 1)
        await listening(second, direct_dsn)
        async with anyio.create_task_group() as tasks:
            await first.put([Notification(named(0))])
            tasks.start_soon(first.put, [Notification(named(0))])
            assert await waits(second) > AWHILE


async def test_an_intent_wakes_nobody(direct_dsn: str) -> None:
    """Its first ask is half a minute away, and its answer mostly comes long before."""
    async with replicas(direct_dsn, SystemClock()) as [gateway, worker]:
        await listening(worker, direct_dsn)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gateway.put, [Intent("i1", (named(1),), "gateway", "10.0.0.1")])
            assert await waits(worker) > AWHILE


@pytest.mark.usefixtures("seldom")
async def test_a_row_that_another_one_asks_for_wakes_the_others(direct_dsn: str) -> None:
    clock = SystemClock()
    async with replicas(direct_dsn, clock) as [first, second]:
        await fill(first, 1)
        (claim,) = await claims(first)
        await listening(second, direct_dsn)
        async with anyio.create_task_group() as tasks:
            asks = PublishResult(wakeups=(Wakeup(named(7)),))
            outcome = Rescheduled(clock.now() + timedelta(hours=1), "renamed", result=asks)
            tasks.start_soon(first.settle, claim, outcome, clock.now())
            assert await waits(second) < SOON
        assert [one.subject for one in await claims(second)] == [named(7)]


async def test_a_settle_that_is_nobody_else_s_business_wakes_nobody(direct_dsn: str) -> None:
    clock = SystemClock()
    async with replicas(direct_dsn, clock) as [first, second]:
        await fill(first, 1)
        (claim,) = await claims(first)
        await listening(second, direct_dsn)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.settle, claim, done(), clock.now())
            assert await waits(second) > AWHILE


async def test_who_hears_nothing_any_more_looks(direct_dsn: str) -> None:
    async with replicas(direct_dsn, SystemClock()) as [first, second]:
        await listening(second, direct_dsn)
        await deafen(direct_dsn)
        await fill(first, 1)
        assert AWHILE < await waits(second) < SOON
        assert len(await claims(second)) == 1


@pytest.mark.usefixtures("seldom")
async def test_who_hears_nothing_any_more_listens_again(direct_dsn: str) -> None:
    async with replicas(direct_dsn, SystemClock()) as [first, second]:
        await listening(second, direct_dsn)
        await deafen(direct_dsn)
        await listening(second, direct_dsn)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.put, [Notification(named(5))])
            assert await waits(second) < SOON


async def deafen(dsn: str) -> None:
    """End every connection that listens."""
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    assert True in await stored(dsn, ended)
    await anyio.sleep(0.1)


async def test_a_notification_that_cannot_be_sent_holds_nothing_up(direct_dsn: str) -> None:
    """The queue's lock is the server's: whoever has it keeps others from telling, not from putting."""
    async with (
        replicas(direct_dsn, SystemClock(), 1) as [inbox],
        session(direct_dsn) as other,
        other.transaction(),
    ):
        await other.execute("NOTIFY elsewhere")
        with anyio.fail_after(5):
            await fill(inbox, 3)
            assert len(await claims(inbox)) == 3
