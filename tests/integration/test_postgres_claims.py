"""Several processes work off one inbox: each row is one's, until its lease ends."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from datetime import timedelta

import anyio
import pytest

from sfn.clock import SystemClock
from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName
from sfn.domain.jobs import Done, LeasedJob, Retry
from sfn.inbox.model import InboxConfig, NewDeadLetter
from sfn.inbox.postgres import PostgresInbox, PostgresServer
from sfn.inbox.postgres.asking import SOON
from tests.integration import sharing
from tests.integration.sharing import claims, fill, named, replicas, session, stored
from tests.promises.inboxes import PLENTY, HandClock
from tests.servers.postgres import Postgres

LEASE = timedelta(seconds=30)
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(name="dsn")
def fixture_dsn(postgres: Postgres, database: str) -> str:
    return postgres.dsn(database)


async def test_eight_processes_work_off_each_row_once(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        await fill(inbox, 400)
    pipes = [SPAWN.Pipe() for _ in range(8)]
    workers = [SPAWN.Process(target=sharing.work_off, args=(dsn, theirs), daemon=True) for _, theirs in pipes]
    for worker, (_, theirs) in zip(workers, pipes, strict=True):
        worker.start()
        theirs.close()
    assert [ours.recv() for ours, _ in pipes] == ["open"] * 8
    for ours, _ in pipes:
        ours.send("go")
    settled = Counter(table for ours, _ in pipes for table in ours.recv())
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    assert settled == {str(named(number)): 1 for number in range(400)}
    assert await stored(dsn, "SELECT count(*) FROM sfn.subject WHERE attempt > 0 OR state <> 'queued'") == [0]


async def test_a_lease_of_another_process_is_left_alone_until_it_ends(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock) as [first, second]:
        await fill(first, 2)
        taken = await claims(first)
        assert [claim.attempt for claim in taken] == [1, 1]
        clock.turn(LEASE.total_seconds() - 1)
        assert (await second.claim(PLENTY)).jobs == ()
        assert await first.renew(taken[:1]) == taken[:1]
        clock.turn(1)
        claimed = await second.claim(PLENTY)
        assert ([claim.subject for claim in claimed.jobs], claimed.expired_leases) == ([taken[1].subject], 1)
        assert not await first.settle(taken[1], Done(clock.now()), clock.now())
        assert await first.settle(taken[0], Done(clock.now()), clock.now())
        assert await second.settle(claimed.jobs[0], Done(clock.now()), clock.now())


async def test_a_start_takes_nothing_back(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [first]:
        await fill(first, 1)
        (taken,) = await claims(first)
        async with replicas(dsn, clock, 1) as [second]:
            assert await claims(second) == []
        assert await first.settle(taken, Done(clock.now()), clock.now())


async def test_what_a_killed_process_had_is_taken_over_when_its_leases_end(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        await fill(inbox, 3)
        ours, theirs = SPAWN.Pipe()
        worker = SPAWN.Process(target=sharing.claim_and_stand_still, args=(dsn, theirs), daemon=True)
        worker.start()
        theirs.close()
        assert ours.recv() == 3
        worker.kill()
        worker.join(30)
        found: list[LeasedJob] = []
        with anyio.fail_after(20):
            while len(found) < 3:
                await inbox.wait(None)
                found += await claims(inbox)
    assert [claim.attempt for claim in found] == [2, 2, 2]


async def test_a_row_that_another_transaction_has_is_passed_over_and_soon_looked_for_again(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [inbox], session(dsn) as other:
        await fill(inbox, 2)
        async with other.transaction():
            await other.execute("SELECT FROM sfn.subject WHERE key LIKE '%t00000%' FOR UPDATE")
            with anyio.fail_after(3):
                claimed = await inbox.claim(PLENTY)
            assert [claim.subject for claim in claimed.jobs] == [named(1)]
            # Not at once, over and over, nor as late as a poll.
            assert claimed.next_due == clock.now() + SOON
        assert [claim.subject for claim in await claims(inbox)] == [named(0)]


async def test_those_who_claim_at_once_get_no_row_twice_and_leave_none(dsn: str) -> None:
    async with replicas(dsn, HandClock(), 3) as inboxes:
        await fill(inboxes[0], 120)
        taken: list[LeasedJob] = []

        async def take(inbox: PostgresInbox) -> None:
            while got := (await inbox.claim(sharing.ONE_BY_ONE)).jobs:
                taken.extend(got)

        async with anyio.create_task_group() as tasks:
            for inbox in inboxes * 2:
                tasks.start_soon(take, inbox)
        taken += await claims(inboxes[0])
        assert Counter(claim.subject for claim in taken) == {named(number): 1 for number in range(120)}


async def test_a_sweep_is_one_process_turn(dsn: str) -> None:
    async with replicas(dsn, HandClock()) as [first, second]:
        for inbox in (first, second):
            await inbox.put([Notification(CatalogName("prod"), sender="start")])
        assert len(await claims(first)) == 1
        assert await claims(second) == []


async def test_a_row_that_nobody_comes_back_from_is_poison_whoever_tried(dsn: str) -> None:
    clock, terms = HandClock(), InboxConfig(max_crashes=3)
    async with replicas(dsn, clock, terms=terms) as [first, second]:
        await fill(first, 1)
        poisoned: list[NewDeadLetter] = []
        for number in range(4):
            claimed = await (first, second)[number % 2].claim(PLENTY)
            poisoned += claimed.poison_letters
            clock.turn(LEASE.total_seconds())
        assert [letter.attempts for letter in poisoned] == [3]


async def test_tokens_grow_whoever_draws_them(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock) as [first, second]:
        tokens, seqs = [], []
        for number in range(6):
            inbox, other = (first, second) if number % 2 else (second, first)
            await other.put([Notification(named(0))])
            (claim,) = await claims(inbox)
            tokens.append(claim.fencing_token)
            seqs.append(claim.notified_seq)
            assert await other.settle(claim, Retry(clock.now(), "no"), clock.now())
        assert sorted(set(tokens)) == tokens
        assert all(seq < token for seq, token in zip(seqs, tokens, strict=True))


async def test_an_inbox_that_is_closed_leaves_no_connection(dsn: str) -> None:
    async with PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), SystemClock()) as inbox:
        await fill(inbox, 3)
        with anyio.move_on_after(0.2):
            await inbox.wait(None)
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'iceberg-sfn' AND datname = current_database()"
    with anyio.fail_after(5):
        while await stored(dsn, query):  # noqa: ASYNC110 - no event crosses processes
            await anyio.sleep(0.05)
