"""Several processes share an inbox in PostgreSQL: leases, commands of operators, and open intents."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from datetime import timedelta
from typing import Final

import anyio
import pytest

from sfn.clock import SystemClock
from sfn.domain.events import Intent, IntentOutcome, Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import (
    BackwardStep,
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    PublishResult,
    Retry,
    StepKind,
    TableState,
)
from sfn.errors import Permanent
from sfn.inbox.intents import CHECK_DELAYS
from sfn.inbox.model import AdminCommand, DeadLetterFilter, DeadLetterStatus, InboxConfig, NewDeadLetter
from sfn.inbox.operations import ClaimRequest, Operations
from sfn.inbox.postgres import PostgresInbox, connected
from sfn.inbox.postgres_server import PostgresServer
from sfn.inbox.transaction import Durability, Transaction
from tests.promises.inboxes import PLENTY, TERMS, Ground, pointer, table
from tests.support import shared_inboxes
from tests.support.clock import HandClock
from tests.support.shared_inboxes import (
    blocked,
    claims,
    fill,
    holding_fold_lock,
    named,
    replicas,
    session,
    stored,
    stored_jobs,
    waiting_claim,
)

# ── Leases

LEASE = timedelta(seconds=30)
SPAWN = multiprocessing.get_context("spawn")


async def test_eight_processes_settle_each_job_once(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        await fill(inbox, 400)
    pipes = [SPAWN.Pipe() for _ in range(8)]
    workers = [SPAWN.Process(target=shared_inboxes.work_off, args=(dsn, theirs), daemon=True) for _, theirs in pipes]
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
    jobs = (await stored_jobs(dsn)).values()
    assert {(job.state, job.attempt, job.crashes, job.outcomes) for job in jobs} == {("queued", 0, 0, 1)}


async def test_a_lease_of_another_process_is_respected_until_it_expires(dsn: str) -> None:
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


async def test_a_start_takes_back_no_lease(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [first]:
        await fill(first, 1)
        (taken,) = await claims(first)
        async with replicas(dsn, clock, 1) as [second]:
            assert await claims(second) == []
        assert await first.settle(taken, Done(clock.now()), clock.now())


async def test_the_leases_of_a_killed_process_are_taken_over_when_they_expire(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        await fill(inbox, 3)
        ours, theirs = SPAWN.Pipe()
        worker = SPAWN.Process(target=shared_inboxes.claim_and_stand_still, args=(dsn, theirs), daemon=True)
        worker.start()
        theirs.close()
        assert ours.recv() == 3
        worker.kill()
        worker.join(30)
        found: list[LeasedJob] = []
        with anyio.fail_after(20):
            while len(found) < 3:
                found += await waiting_claim(inbox)
    assert [claim.attempt for claim in found] == [2, 2, 2]


async def test_concurrent_claims_lease_each_job_once_and_leave_none(dsn: str) -> None:
    async with replicas(dsn, HandClock(), 3) as inboxes:
        await fill(inboxes[0], 120)
        taken: list[LeasedJob] = []

        async def take(inbox: PostgresInbox) -> None:
            while got := (await inbox.claim(shared_inboxes.ONE_BY_ONE)).jobs:
                taken.extend(got)

        async with anyio.create_task_group() as tasks:
            for inbox in inboxes * 2:
                tasks.start_soon(take, inbox)
        assert Counter(claim.subject for claim in taken) == {named(number): 1 for number in range(120)}


async def test_a_sweep_runs_in_one_process_at_a_time(dsn: str) -> None:
    async with replicas(dsn, HandClock()) as [first, second]:
        for inbox in (first, second):
            await inbox.put([Notification(CatalogName("prod"), sender="start")])
        assert len(await claims(first)) == 1
        assert await claims(second) == []


async def test_crashes_in_several_processes_make_a_job_poison(dsn: str) -> None:
    clock, terms = HandClock(), InboxConfig(max_crashes=3)
    async with replicas(dsn, clock, terms=terms) as [first, second]:
        await fill(first, 1)
        poisoned: list[NewDeadLetter] = []
        for number in range(4):
            claimed = await (first, second)[number % 2].claim(PLENTY)
            poisoned += claimed.poison_letters
            clock.turn(LEASE.total_seconds())
        assert [letter.attempts for letter in poisoned] == [3]


async def test_no_two_claims_have_the_same_token(dsn: str) -> None:
    clock = HandClock()
    tokens: list[int] = []
    for _ in range(2):
        # A process that starts again draws new tokens.
        async with replicas(dsn, clock) as [first, second]:
            for number in range(6):
                inbox, other = (first, second) if number % 2 else (second, first)
                await other.put([Notification(named(0))])
                (claim,) = await claims(inbox)
                tokens.append(claim.fencing_token)
                assert await other.settle(claim, Retry(clock.now(), "no"), clock.now())
    assert len(set(tokens)) == len(tokens) == 12


async def test_a_process_that_used_up_its_tokens_draws_new_ones(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 2) as inboxes:
        tokens: list[int] = []
        for number in range(4):
            inbox = inboxes[number % 2]
            await inbox.put([Notification(named(0))])
            (claim,) = await claims(inbox)
            tokens.append(claim.fencing_token)
            assert await inbox.settle(claim, Done(clock.now() + LEASE), clock.now())
            if number == 1:
                for one in inboxes:
                    # Blocks of a thousand tokens are too many to use up here.
                    one._runner._tokens.clear()  # type: ignore[attr-defined] # noqa: SLF001
    assert len(set(tokens)) == 4


async def test_a_closed_inbox_leaves_no_connection(dsn: str) -> None:
    async with PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), SystemClock()) as inbox:
        await fill(inbox, 3)
        with anyio.move_on_after(0.2):
            await waiting_claim(inbox)
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'iceberg-sfn' AND datname = current_database()"
    with anyio.fail_after(5):
        while await stored(dsn, query):  # noqa: ASYNC110 - no event crosses processes
            await anyio.sleep(0.05)


# ── Concurrent operations

LAKE = "s3://lake/orders"
ORDERS, SUCCESSOR = table("orders"), table("successor")


@pytest.mark.parametrize("comes_first", [True, False])
async def test_a_table_that_comes_to_a_location_and_one_that_leaves_it_notice_each_other(
    dsn: str, *, comes_first: bool
) -> None:
    """Otherwise the new table waits for the end of the old one, and no event wakes it."""
    clock = HandClock()
    async with replicas(dsn, clock, 2, TERMS) as [first, second]:
        ground = Ground(first, clock)
        await ground.published(ORDERS, LAKE, "u1", due=0)
        await first.put([Notification(SUCCESSOR)])
        by_name = {claim.subject: claim for claim in await claims(first)}
        seen: list[frozenset[TableIdentifier] | None] = []

        async def come() -> None:
            seen.append(await first.record_location(by_name[SUCCESSOR], LAKE, "u2"))

        gone = Done(
            clock.now(),
            PublishResult(TableState(has_settled=True), wake_locations=frozenset({LAKE}), written_keys=("gone",)),
        )

        async def leave() -> None:
            assert await second.settle(by_name[ORDERS], gone, clock.now())

        async with anyio.create_task_group() as tasks, holding_fold_lock(dsn):
            # The server grants the lock in the order of the requests.
            for number, step in enumerate((come, leave) if comes_first else (leave, come), start=1):
                tasks.start_soon(step)
                await blocked(dsn, number)
        assert seen == [frozenset({ORDERS}) if comes_first else frozenset()]
        job = (await stored_jobs(dsn))[SUCCESSOR]
        assert (job.version > by_name[SUCCESSOR].version) is comes_first


async def test_the_drop_limit_allows_no_more_steps_than_it_may_in_several_processes(dsn: str) -> None:
    clock = HandClock()
    tables = [table(f"t{number}", "few") for number in range(8)]
    async with replicas(dsn, clock, 2, TERMS) as inboxes:
        await inboxes[0].put([Notification(name) for name in tables])
        leased = await claims(inboxes[0])
        allowed: list[bool] = []

        async def ask(inbox: PostgresInbox, claim: LeasedJob, number: int) -> None:
            step = BackwardStep(StepKind.DROP, "u", pointer(number))
            allowed.append(await inbox.allow_step(claim, step, clock.now()))

        async with anyio.create_task_group() as tasks, holding_fold_lock(dsn):
            for number, claim in enumerate(leased):
                tasks.start_soon(ask, inboxes[number % 2], claim, number)
            await blocked(dsn, 8)
    assert Counter(allowed) == {True: 2, False: 6}


async def test_a_concurrency_group_that_one_process_adds_is_claimed_from_by_others_at_once(dsn: str) -> None:
    async with replicas(dsn, HandClock()) as [first, second]:
        assert await claims(second) == []
        for number in range(3):
            await first.put([Notification(table("orders", f"catalog{number}"))])
            await first.fold()
            assert [claim.subject.catalog for claim in await claims(second)] == [f"catalog{number}"]
    groups = await stored(dsn, "SELECT catalog FROM sfn.concurrency_group")
    assert len(groups) == len(set(groups)) == 3


async def test_two_operators_close_a_letter_once(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 2) as inboxes:
        await fill(inboxes[0], 6)
        for claim in await claims(inboxes[0]):
            await inboxes[0].settle(claim, DeadLettered(DeadLetterReason.PERMANENT, "it can't be"), clock.now())
        letters = [letter.id for letter in await inboxes[1].list_newest(DeadLetterFilter(), 10)]
        counts: list[int] = []

        async def replay(inbox: PostgresInbox, numbers: list[int]) -> None:
            counts.append(await inbox.replay(numbers, [], AdminCommand("ann", "", clock.now())))

        async def discard(inbox: PostgresInbox, numbers: list[int]) -> None:
            counts.append(await inbox.discard(numbers, AdminCommand("ben", "", clock.now())))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replay, inboxes[0], letters[:4])
            tasks.start_soon(replay, inboxes[1], letters[::-1][:4])
            tasks.start_soon(discard, inboxes[0], letters[::-1])
            tasks.start_soon(discard, inboxes[1], letters)
        assert sum(counts) == 6
        statuses = Counter(
            letter.status for letter in await inboxes[0].list_after(DeadLetterFilter(status=None), 0, 10)
        )
        claimed = (await inboxes[0].claim(PLENTY)).jobs
        assert len(claimed) == statuses[DeadLetterStatus.REPLAYED]
        assert [entry.count for entry in await inboxes[0].audit_log(None, 10)][::-1] == counts


async def test_a_job_that_is_deleted_while_an_event_of_its_table_arrives_is_made_again(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock) as [first, second]:
        for turn in range(20):
            await fill(first, 1)
            (claim,) = await claims(first)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(first.settle, claim, Done(clock.now(), forget=True), clock.now())
                tasks.start_soon(second.put, [Notification(named(0), "etl", f"{turn}")])
            # In either order, the event is processed.
            (claim,) = await claims(second)
            assert await second.settle(claim, Done(clock.now(), forget=True), clock.now())
    for emptied in ("job", "cache", "place", "outcome", "pending"):
        assert await stored(dsn, f"SELECT count(*) FROM sfn.{emptied}") == [0]  # noqa: S608 - our own names


# ── Open intents

FIRST: Final = CHECK_DELAYS[0].total_seconds()
LAST: Final = CHECK_DELAYS[-1].total_seconds()


def intents(*numbers: int) -> list[Intent]:
    """Return an intent for each of these tables, by its number."""
    return [Intent(f"i{number}", (named(number),), "gateway", "10.0.0.1") for number in numbers]


async def test_concurrent_claims_check_each_intent_once(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 3) as inboxes:
        await inboxes[0].put(intents(*range(60)))
        await inboxes[1].fold()
        clock.turn(FIRST)
        leased: list[LeasedJob] = []

        async def take(inbox: PostgresInbox) -> None:
            leased.extend(await claims(inbox))

        async with anyio.create_task_group() as tasks:
            for inbox in inboxes * 2:
                tasks.start_soon(take, inbox)
        assert Counter(claim.subject for claim in leased) == {named(number): 1 for number in range(60)}
        assert {job.version for job in (await stored_jobs(dsn)).values()} == {1}
        assert await stored(dsn, "SELECT count(*) FROM sfn.intent") == [60]


async def test_the_answers_to_intents_wait_for_no_claim_and_are_applied_by_the_next_one(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock) as [first, second]:
        await first.put(intents(1, 2))
        await first.fold()
        clock.turn(FIRST)
        async with anyio.create_task_group() as tasks, holding_fold_lock(dsn):
            tasks.start_soon(claims, first)
            await blocked(dsn, 1)
            with anyio.fail_after(4):
                await second.put([IntentOutcome("i1", is_known=True), IntentOutcome("i2", is_known=False)])
        # The claim got the lock after the answers, so it folded them before it checked.
        assert await stored(dsn, "SELECT id FROM sfn.intent") == ["i2"]
        assert await stored_jobs(dsn) == {}
        clock.turn(FIRST - 1)
        assert (await second.claim(PLENTY)).next_due == clock.turn(1)
        assert [claim.subject for claim in await claims(second)] == [named(2)]


async def test_the_answer_to_a_commit_and_its_notification_are_stored_together_or_not_at_all(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [inbox], session(dsn) as other:
        await inbox.put(intents(1))
        await other.execute("ALTER TABLE sfn.event ADD CHECK (sender <> 'gateway') NOT VALID")
        with pytest.raises(Permanent, match="23514"):
            await inbox.put([IntentOutcome("i1", is_known=True), Notification(named(1), "gateway")])
        await inbox.fold()
        assert await stored(dsn, "SELECT id FROM sfn.intent") == ["i1"]
        assert await stored(dsn, "SELECT count(*) FROM sfn.event") == [1]


async def test_intents_survive_the_end_of_their_process(dsn: str) -> None:
    clock = HandClock()
    long = TableIdentifier("prod", ("sales",), "x" * 3000)
    async with replicas(dsn, clock, 1) as [inbox]:
        await inbox.put([*intents(1), Intent("long", (long,), "gate\0way", "10.0.0.1")])
    async with replicas(dsn, clock, 1) as [inbox]:
        await inbox.fold()
        assert set(await stored(dsn, "SELECT sender FROM sfn.intent")) == {"gateway", "gate\ufffdway"}
    clock.turn(LAST)
    async with replicas(dsn, clock, 1) as [inbox]:
        assert {claim.subject for claim in await claims(inbox)} == {named(1), long}
        assert await stored(dsn, "SELECT count(*) FROM sfn.intent") == [0]


async def test_intents_of_several_processes_above_the_limit_share_one_of_the_whole_catalog(dsn: str) -> None:
    """A later one does not move the next check."""
    clock = HandClock()
    async with replicas(dsn, clock) as inboxes:
        await inboxes[0].put(intents(*range(1000)))
        clock.turn(5)
        async with anyio.create_task_group() as tasks:
            for number, inbox in enumerate(inboxes * 3):
                tasks.start_soon(inbox.put, intents(2000 + number))
        await inboxes[0].fold()
        clock.turn(5)
        await inboxes[1].put(intents(3000))
        while (await inboxes[1].fold()).has_more:
            pass
        query = "SELECT key || (opened_at - due_at) / 1000000 FROM sfn.intent WHERE id = ''"
        assert await stored(dsn, query) == ['["prod"]-25']
        assert await stored(dsn, "SELECT count(*) FROM sfn.intent WHERE id <> ''") == [1000]


async def test_a_claim_and_a_fold_read_few_of_many_open_intents(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [inbox]:
        await inbox.put(intents(*range(900)))
        for start in range(0, 900, 100):
            await inbox.put([IntentOutcome(f"i{number}", is_known=False) for number in range(start, start + 100)])
        while (await inbox.fold()).has_more:
            pass
        # The open intents of a peer are counted, up to its limit: this one is of another peer.
        await inbox.put([Intent("new", (named(1000),), "gateway", "10.0.0.2"), IntentOutcome("i7", is_known=True)])
    operations = Operations(InboxConfig(), clock.now)

    async def read(transaction: Transaction) -> int:
        await operations.claim(transaction, ClaimRequest(PLENTY), [])
        ((count,),) = await transaction.fetch(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'intent'"
        )
        return int(count)

    async with connected(PostgresServer(dsn)) as runner:
        assert await runner.run(read, Durability.DERIVED) < 10
    # One was opened, and the answer to the other one closes nothing: that one was unresolved before.
    assert await stored(dsn, "SELECT count(*) FROM sfn.intent") == [901]
