"""Connections to PostgreSQL: PgBouncer, losses, and signals between processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

import anyio
import pytest

from sfn.clock import SystemClock
from sfn.domain.events import Intent, IntentOutcome, Notification, PutResult
from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import Capacity, Done, LeasedJob, PublishResult, Rescheduled, Retry, Wakeup
from sfn.errors import OutcomeUnknown, Transient
from sfn.inbox import postgres as inbox_module
from sfn.inbox import postgres_connections
from sfn.inbox.postgres import PostgresInbox, PostgresRunner, preflight
from sfn.inbox.postgres_connections import CHANNEL, NOTIFY_PAUSE, PAUSE, AsyncpgConnection
from sfn.inbox.postgres_server import PostgresServer
from tests.promises import inboxes
from tests.promises.inboxes import PLENTY, TERMS
from tests.servers.postgres import PgBouncer, Postgres
from tests.servers.proxies import Cut, Wire, wire_to
from tests.support.clock import HandClock
from tests.support.shared_inboxes import (
    claims,
    done,
    fill,
    named,
    replicas,
    session,
    stored,
    stored_jobs,
    waiting_claim,
)

# ── PgBouncer


@pytest.fixture(name="dsn")
def fixture_dsn(pgbouncer: PgBouncer, database: str) -> str:
    return pgbouncer.dsn(database)


async def test_processes_with_more_connections_than_the_pooler_has_sessions_lose_nothing(dsn: str) -> None:
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


async def test_a_session_of_a_pooler_is_left_as_it_was(pgbouncer: PgBouncer, database: str) -> None:
    dsn = pgbouncer.dsn(database)
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(inbox.max_missing, "prod")
                tasks.start_soon(inbox.put, [Notification(named(number))])
        await inbox.claim(PLENTY)
        with anyio.move_on_after(1.5):
            await waiting_claim(inbox)
        names = ("enable_seqscan", "plan_cache_mode", "synchronous_commit", "lock_timeout", "statement_timeout")
        for _ in range(6):
            assert [pgbouncer.execute(f"SHOW {name}", database) for name in names] == ["on", "auto", "on", "0", "0"]
            assert pgbouncer.execute("SELECT count(*) FROM pg_prepared_statements", database) == "0"
            assert pgbouncer.execute("SELECT count(*) FROM pg_listening_channels()", database) == "0"
        assert pgbouncer.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", database) == "0"


async def test_an_append_through_a_pooler_is_durable_whatever_the_server_does_by_default(
    postgres: Postgres, pgbouncer: PgBouncer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of a session are not ours there, so an append needs a transaction of its own."""
    postgres.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    shown: list[str] = []
    fetch = AsyncpgConnection.fetch

    async def watched(connection: AsyncpgConnection, statement: str, *values: object) -> object:
        found = await fetch(connection, statement, *values)
        if "INSERT INTO sfn.event" in statement:
            shown.append((await fetch(connection, "SHOW synchronous_commit"))[0][0])
        return found

    monkeypatch.setattr(AsyncpgConnection, "fetch", watched)
    async with replicas(pgbouncer.dsn(database), SystemClock(), 1) as [inbox]:
        await inbox.put([Notification(named(0))])
    async with replicas(postgres.dsn(database), SystemClock(), 1) as [inbox]:
        await inbox.put([Notification(named(1))])
    assert shown == ["on", "on"]


async def test_behind_a_pooler_the_events_of_another_process_are_found_by_polling(dsn: str) -> None:
    async with replicas(dsn, SystemClock()) as [first, second], anyio.create_task_group() as tasks:
        tasks.start_soon(fill, first, 1)
        with anyio.fail_after(10):
            assert len(await waiting_claim(second)) == 1


async def test_preflight_reports_a_pooler(dsn: str) -> None:
    found = await preflight(PostgresServer(dsn), SystemClock())
    assert found.is_pooled


# ── Lost connections

COMMIT = b"Q\0\0\0\x0bCOMMIT\0"
"""The whole message (PostgreSQL manual, section 55.7); neither a signal nor an append has one."""


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
async def test_a_put_without_an_answer_is_repeated_and_stored_once(ground: Ground, cut: Cut) -> None:
    await fill(ground.inbox, 1)
    event = Notification(named(0), "etl", "the event")
    ground.wire.cut_at(b"the event", cut)
    with pytest.raises(OutcomeUnknown, match="uncertain") as lost:
        await ground.inbox.put([event])
    assert lost.value.retry_after == 1.0
    assert await ground.inbox.put([event]) == (PutResult(0, 1) if cut is Cut.AFTER else PutResult(1, 0))
    assert await stored(ground.dsn, "SELECT event_id FROM sfn.event WHERE sender = 'etl'") == ["the event"]


@pytest.mark.parametrize("cut", Cut)
async def test_a_claim_with_an_unknown_outcome_is_made_again_at_once(ground: Ground, cut: Cut) -> None:
    await fill(ground.inbox, 2)
    ground.wire.cut_at(COMMIT, cut)
    with pytest.raises(OutcomeUnknown, match="uncertain"):
        await ground.inbox.claim(PLENTY)
    if cut is Cut.AFTER:
        assert await claims(ground.other) == []
    claimed = await ground.inbox.claim(PLENTY)
    # Neither an attempt nor a crash counts: no worker had them.
    assert [(claim.subject, claim.attempt) for claim in claimed.jobs] == [(named(0), 1), (named(1), 1)]
    assert claimed.expired_leases == 0
    assert await ground.inbox.renew(claimed.jobs) == list(claimed.jobs)


async def test_a_claim_with_an_unknown_outcome_that_another_process_took_over_is_not_given_back(ground: Ground) -> None:
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
async def test_a_settle_without_an_answer_is_not_a_lost_lease(ground: Ground, cut: Cut, *, forget: bool) -> None:
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


async def test_a_settle_that_is_repeated_after_its_lease_expired_has_no_effect(ground: Ground) -> None:
    """Its first attempt was lost on the way, and another process took the job over."""
    await fill(ground.inbox, 1)
    (mine,) = await claims(ground.inbox)
    ground.wire.cut_at(COMMIT, Cut.BEFORE)
    with pytest.raises(OutcomeUnknown, match="uncertain"):
        await ground.inbox.settle(mine, Done(ground.clock.now()), ground.clock.now())
    ground.clock.turn(TERMS.lease.total_seconds())
    (theirs,) = await claims(ground.other)
    assert await ground.other.settle(theirs, Retry(ground.clock.now(), "no"), ground.clock.now())
    assert not await ground.inbox.settle(mine, Done(ground.clock.now()), ground.clock.now())


@pytest.mark.parametrize("cut", Cut)
async def test_a_transaction_that_is_lost_before_its_commit_is_repeated_unnoticed(ground: Ground, cut: Cut) -> None:
    await fill(ground.inbox, 2)
    ground.wire.cut_at(b"BEGIN ISOLATION", cut)
    leased = await claims(ground.inbox)
    assert len(leased) == 2
    # The statement that writes the jobs.
    await fill(ground.inbox, 2)
    ground.wire.cut_at(b"INSERT INTO sfn.outcome", cut)
    assert await ground.inbox.settle(leased[0], done(), ground.clock.now())
    assert await stored(ground.dsn, "SELECT number FROM sfn.outcome") == [1]


@pytest.mark.parametrize("cut", Cut)
async def test_a_transaction_that_is_lost_twice_before_its_commit_changes_nothing(ground: Ground, cut: Cut) -> None:
    await fill(ground.inbox, 1)
    ground.wire.cut_at(b"BEGIN ISOLATION", cut, times=2)
    with pytest.raises(Transient) as not_claimed:
        await ground.inbox.claim(PLENTY)
    assert not isinstance(not_claimed.value, OutcomeUnknown)
    (claim,) = await claims(ground.other)
    assert claim.attempt == 1
    # The statement that writes the jobs.
    ground.wire.cut_at(b"INSERT INTO sfn.outcome", cut, times=2)
    with pytest.raises(Transient) as not_settled:
        await ground.inbox.settle(claim, done(), ground.clock.now())
    assert not isinstance(not_settled.value, OutcomeUnknown)
    assert await ground.other.renew([claim]) == [claim]
    assert await ground.inbox.settle(claim, done(), ground.clock.now())
    assert await stored(ground.dsn, "SELECT number FROM sfn.outcome") == [1]


async def test_a_server_that_stops_answering_delays_a_call_by_seconds_only(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(ground.inbox, 1)
    monkeypatch.setattr(inbox_module, "MAX_WAIT", 2.0)
    errors: list[Transient] = []

    async def put(number: int) -> None:
        try:
            await ground.inbox.put([Notification(named(number))])
        except Transient as error:
            errors.append(error)

    ground.wire.is_silent = True
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(put, number)
    assert len(errors) == 3
    ground.wire.is_silent = False
    await anyio.sleep(PAUSE)
    with anyio.fail_after(10):
        assert named(0) in {claim.subject for claim in await claims(ground.inbox)}


async def test_a_firewall_that_forgot_all_connections_costs_one_call(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All idle connections are silent then, so none of them is used again."""
    async with anyio.create_task_group() as tasks:
        for query in (*[ground.inbox.retired_catalogs] * 3, ground.inbox.stats):
            tasks.start_soon(query)
    ground.wire.forget()
    with monkeypatch.context() as patch:
        patch.setattr(inbox_module, "MAX_WAIT", 0.5)
        with pytest.raises(OutcomeUnknown, match="no answer in time"):
            await ground.inbox.put([Notification(named(0), "etl", "e1")])
    assert await ground.inbox.put([Notification(named(0), "etl", "e1")]) == PutResult(1, 0)


async def test_a_connection_that_was_idle_for_long_is_not_used_again(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(ground.inbox, 1)
    ground.wire.forget()
    monkeypatch.setattr(postgres_connections, "IDLE", 0.0)
    with anyio.fail_after(5):
        assert len(await claims(ground.inbox)) == 1


async def test_a_put_after_the_server_closed_idle_connections_is_stored_at_once(ground: Ground) -> None:
    """As after a restart of the server: the process knows that these connections ended."""
    await fill(ground.inbox, 1)
    ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'iceberg-sfn'"
    await stored(ground.dsn, f"{ended} AND datname = current_database()")
    await anyio.sleep(0.1)
    assert await ground.inbox.put([Notification(named(1), "etl", "e1")]) == PutResult(1, 0)
    assert len(await claims(ground.inbox)) == 2


async def test_pooler_in_between_is_noticed(postgres: Postgres, pgbouncer: PgBouncer, database: str) -> None:
    """Its name is the server's: statements that were prepared in one session are missing in another."""
    clock = HandClock()
    async with wire_to(postgres.port) as wire:
        dsn = postgres.dsn(database).replace(f":{postgres.port}/", f":{wire.port}/") + "?sslmode=disable"
        async with PostgresInbox.opened(PostgresServer(dsn), TERMS, clock) as inbox:
            await fill(inbox, 1)
            wire.target = pgbouncer.port
            wire.cut_at(b"BEGIN ISOLATION", Cut.BEFORE)
            await inbox.max_missing("prod")
            for number in range(20):
                async with anyio.create_task_group() as tasks:
                    for part in range(6):
                        tasks.start_soon(inbox.put, [Notification(named(number * 6 + part))])
                        tasks.start_soon(inbox.max_missing, "prod")
            assert len(await claims(inbox)) == PLENTY.live
    assert len(await stored_jobs(postgres.dsn(database))) == 120


# ── Signals between processes

SELDOM = 20.0
"""Seconds between two polls: if a worker wakes sooner, a signal woke it."""
SOON = SELDOM / 2
"""Seconds in which a signal arrives, also on a machine that pauses."""
AWHILE = 0.6
"""Seconds in which a signal would have arrived, shorter than the usual poll interval."""
LISTENERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_catalog AND query LIKE 'LISTEN%' AND state = 'idle'"
)


@pytest.fixture(name="seldom")
def fixture_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresRunner, "poll_interval", timedelta(seconds=SELDOM))


@pytest.fixture(name="direct_dsn")
def fixture_direct_dsn(postgres: Postgres, database: str) -> str:
    return postgres.dsn(database)


async def listening(inbox: PostgresInbox, dsn: str, listeners: int = 1) -> None:
    """Wait until an inbox listens, as this many of the database then do, and its signal is not set."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waiting_claim, inbox)
        with anyio.fail_after(10):
            while await stored(dsn, LISTENERS) != [listeners]:  # noqa: ASYNC110 - only the server knows
                await anyio.sleep(0.02)
        await anyio.sleep(0.2)
        tasks.cancel_scope.cancel()
    await inbox.claim(PLENTY)


async def waits(inbox: PostgresInbox) -> tuple[float, list[JobKey]]:
    """Return for how many seconds a claim waits, and what it gets."""
    began = anyio.current_time()
    found = await waiting_claim(inbox)
    return anyio.current_time() - began, [claim.subject for claim in found]


@pytest.mark.usefixtures("seldom")
async def test_a_put_wakes_the_workers_of_other_processes(direct_dsn: str) -> None:
    async with replicas(direct_dsn, SystemClock(), 3) as [first, *others], anyio.create_task_group() as tasks:
        found: list[JobKey] = []

        async def wait(inbox: PostgresInbox) -> None:
            found.extend((await waits(inbox))[1])

        for listeners, inbox in enumerate(others, start=1):
            await listening(inbox, direct_dsn, listeners)
            tasks.start_soon(wait, inbox)
        await anyio.sleep(0.1)
        await fill(first, 1)
        with anyio.fail_after(SOON):
            while not found:  # noqa: ASYNC110 - two tasks
                await anyio.sleep(0.01)
        assert found == [named(0)]
        tasks.cancel_scope.cancel()


@pytest.mark.usefixtures("seldom")
async def test_a_put_beside_a_worker_without_capacity_wakes_other_processes(direct_dsn: str) -> None:
    async with replicas(direct_dsn, SystemClock()) as [first, second], anyio.create_task_group() as tasks:
        await listening(second, direct_dsn)
        tasks.start_soon(first.claim, Capacity(0, 0, 0), (), SystemClock().now() + timedelta(days=1))

        async def put() -> None:
            await anyio.sleep(0.2)
            await fill(first, 1)

        tasks.start_soon(put)
        with anyio.fail_after(SOON):
            assert (await waits(second))[1] == [named(0)]
        tasks.cancel_scope.cancel()


@pytest.mark.usefixtures("seldom")
async def test_a_put_of_known_events_wakes_no_other_process(direct_dsn: str) -> None:
    async with replicas(direct_dsn, SystemClock()) as [first, second]:
        await first.put([Notification(named(0), "etl", "e1")])
        assert len(await claims(second)) == 1
        await listening(second, direct_dsn)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.put, [Notification(named(0), "etl", "e1")])
            with anyio.move_on_after(AWHILE) as awhile:
                await waiting_claim(second)
            assert awhile.cancelled_caught


@pytest.mark.usefixtures("seldom")
async def test_an_intent_and_its_answer_wake_no_other_process(direct_dsn: str) -> None:
    """The first check of an intent is half a minute away."""
    async with replicas(direct_dsn, SystemClock()) as [gateway, worker]:
        await listening(worker, direct_dsn)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gateway.put, [Intent("i1", (named(1),), "gateway", "10.0.0.1")])
            tasks.start_soon(gateway.put, [IntentOutcome("i1", is_known=True)])
            with anyio.move_on_after(AWHILE) as awhile:
                await waiting_claim(worker)
            assert awhile.cancelled_caught


@pytest.mark.usefixtures("seldom")
async def test_a_job_that_another_job_wakes_wakes_other_processes(direct_dsn: str) -> None:
    clock = SystemClock()
    async with replicas(direct_dsn, clock) as [first, second]:
        await fill(first, 1)
        (claim,) = await claims(first)
        await listening(second, direct_dsn)
        async with anyio.create_task_group() as tasks:
            wakes = PublishResult(wakeups=(Wakeup(named(7)),))
            outcome = Rescheduled(clock.now() + timedelta(hours=1), "renamed", result=wakes)
            tasks.start_soon(first.settle, claim, outcome, clock.now())
            took, found = await waits(second)
        assert took < SOON
        assert found == [named(7)]


@pytest.mark.parametrize("uuid", ["its own", "another"])
async def test_a_location_signals_other_processes_only_if_another_table_lives_there(direct_dsn: str, uuid: str) -> None:
    clock, received = HandClock(), list[str]()
    async with replicas(direct_dsn, clock, 1) as [inbox], session(direct_dsn) as other:
        await inboxes.Ground(inbox, clock).published(named(1), "s3://lake", "its own")
        await fill(inbox, 1)
        (claim,) = await claims(inbox)
        await anyio.sleep(4 * NOTIFY_PAUSE)
        await other.add_listener(CHANNEL, lambda *payload: received.append(payload[-1]))
        await inbox.record_location(claim, "s3://lake", uuid)
        await anyio.sleep(2 if uuid == "another" else AWHILE)
    assert len(received) == (uuid == "another")


async def test_a_process_that_cannot_listen_any_more_polls(direct_dsn: str) -> None:
    async with replicas(direct_dsn, SystemClock()) as [first, second]:
        await listening(second, direct_dsn)
        found: list[JobKey] = []

        async def wait() -> None:
            found.extend((await waits(second))[1])

        async with anyio.create_task_group() as tasks:
            began = anyio.current_time()
            tasks.start_soon(wait)
            await anyio.sleep(0.1)
            await end_listeners(direct_dsn)
            await fill(first, 1)
            with anyio.fail_after(SOON):
                while not found:  # noqa: ASYNC110 - another task
                    await anyio.sleep(0.01)
            assert anyio.current_time() - began > AWHILE
        assert found == [named(0)]


@pytest.mark.usefixtures("seldom")
async def test_a_process_whose_listening_connection_ended_listens_again(direct_dsn: str) -> None:
    async with replicas(direct_dsn, SystemClock()) as [first, second]:
        await listening(second, direct_dsn)
        await end_listeners(direct_dsn)
        await listening(second, direct_dsn)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.put, [Notification(named(5))])
            assert (await waits(second))[0] < SOON


async def end_listeners(dsn: str) -> None:
    """End every connection that listens."""
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    assert True in await stored(dsn, ended)
    await anyio.sleep(0.1)


async def test_a_signal_that_cannot_be_sent_delays_nothing(direct_dsn: str) -> None:
    """A transaction of the server that has sent a signal keeps others from sending until its end."""
    async with replicas(direct_dsn, SystemClock(), 1) as [inbox], session(direct_dsn) as other, other.transaction():
        await other.execute("NOTIFY elsewhere")
        with anyio.fail_after(5):
            await fill(inbox, 3)
            leased = await claims(inbox)
            assert len(leased) == 3
            for claim in leased:
                assert await inbox.settle(claim, done(), SystemClock().now())


async def test_process_under_load_sends_one_signal_per_pause(direct_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[float] = []
    execute = AsyncpgConnection.execute

    async def watched(connection: AsyncpgConnection, statement: str, *values: object) -> str:
        if "NOTIFY" in statement:
            sent.append(anyio.current_time())
        return await execute(connection, statement, *values)

    monkeypatch.setattr(AsyncpgConnection, "execute", watched)
    received: list[str] = []
    async with replicas(direct_dsn, SystemClock(), 1) as [inbox], session(direct_dsn) as other:
        await other.add_listener(CHANNEL, lambda *payload: received.append(payload[-1]))
        began = anyio.current_time()
        turn = 0
        while turn < 100 or anyio.current_time() < began + 1.5:
            turn += 1
            await inbox.put([Notification(named(turn % 50), "etl", str(turn))])
            if turn % 20 == 0:
                for claim in await claims(inbox):
                    await inbox.settle(claim, done(), SystemClock().now())
        seconds = anyio.current_time() - began
        # The last one is sent after a pause.
        await anyio.sleep(4 * NOTIFY_PAUSE)
        with anyio.fail_after(5):
            while len(received) < len(sent):  # noqa: ASYNC110 - the driver calls back
                await anyio.sleep(0.01)
    pauses = [after - before for before, after in pairwise(sent)]
    assert turn > len(sent)
    assert min(pauses) >= 0.9 * NOTIFY_PAUSE
    assert 3 <= len(sent) <= seconds / NOTIFY_PAUSE + 2
    assert len(received) == len(sent)
