"""Several processes share an inbox in PostgreSQL."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
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
from sfn.inbox.intents import CHECK_DELAYS
from sfn.inbox.model import AdminCommand, DeadLetterFilter, DeadLetterStatus, InboxConfig, NewDeadLetter
from sfn.inbox.postgres import PostgresInbox, PostgresServer
from sfn.inbox.postgres.claiming import SOON
from sfn.inbox.postgres.database import reached
from sfn.inbox.postgres.schema import MIGRATIONS, Migration
from sfn.inbox.postgres.tables import SqlTransaction
from sfn.inbox.postgres.tables.intents import PostgresIntents
from sfn.inbox.postgres.transaction import InboxTransaction, IntentQuery
from tests.promises.inboxes import PLENTY, TERMS, Ground, pointer, table
from tests.servers.postgres import Postgres
from tests.support import shared_inboxes
from tests.support.clock import HandClock
from tests.support.shared_inboxes import claims, fill, named, replicas, session, stored

# Leases.


LEASE = timedelta(seconds=30)
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(name="dsn")
def fixture_dsn(postgres: Postgres, database: str) -> str:
    return postgres.dsn(database)


async def test_eight_processes_work_off_each_row_once(dsn: str) -> None:
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
        worker = SPAWN.Process(target=shared_inboxes.claim_and_stand_still, args=(dsn, theirs), daemon=True)
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
            while got := (await inbox.claim(shared_inboxes.ONE_BY_ONE)).jobs:
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


# Concurrent operations.


LAKE = "s3://lake/orders"
ORDERS, HEIR = table("orders"), table("heir")


async def test_who_comes_to_a_place_and_who_leaves_it_see_one_what_the_other_did(dsn: str) -> None:
    """Else the one waits for the other's end, of which nobody tells it."""
    clock = HandClock()
    async with replicas(dsn, clock, 2, TERMS) as [first, second], session(dsn) as other:
        ground = Ground(first, clock)
        await ground.published(ORDERS, LAKE, "u1", due=0)
        await first.put([Notification(HEIR)])
        by_name = {claim.subject: claim for claim in await claims(first)}
        seen: list[frozenset[TableIdentifier] | None] = []

        async def come() -> None:
            seen.append(await first.record_location(by_name[HEIR], LAKE, "u2"))

        gone = Done(
            clock.now(),
            PublishResult(TableState(has_settled=True), wake_locations=frozenset({LAKE}), written_keys=("gone",)),
        )
        async with anyio.create_task_group() as tasks, other.transaction():
            await other.execute("SELECT FROM sfn.subject FOR UPDATE")
            tasks.start_soon(come)
            await anyio.sleep(0.3)
            tasks.start_soon(second.settle, by_name[ORDERS], gone, clock.now())
            await anyio.sleep(0.3)
        assert seen == [frozenset({ORDERS})]
        newest = await stored(dsn, "SELECT seq FROM sfn.subject WHERE key LIKE '%heir%'")
        assert newest[0] > by_name[HEIR].notified_seq


async def test_a_brake_lets_no_more_pass_than_it_may_however_many_ask(dsn: str) -> None:
    clock = HandClock()
    tables = [table(f"t{number}", "few") for number in range(8)]
    async with replicas(dsn, clock, 2, TERMS) as inboxes, session(dsn) as other:
        await inboxes[0].put([Notification(name) for name in tables])
        passed: list[bool] = []

        async def permit(inbox: PostgresInbox, claim: LeasedJob, number: int) -> None:
            passed.append(await inbox.allow_step(claim, BackwardStep(StepKind.DROP, "u", pointer(number)), clock.now()))

        async with anyio.create_task_group() as tasks, other.transaction():
            await other.execute("LOCK TABLE sfn.permit IN SHARE MODE")
            for number, claim in enumerate(await claims(inboxes[0])):
                tasks.start_soon(permit, inboxes[number % 2], claim, number)
            await anyio.sleep(0.3)
    assert Counter(passed) == {True: 2, False: 6}


async def test_a_lane_that_one_process_makes_is_seen_by_the_others_at_once(dsn: str) -> None:
    async with replicas(dsn, HandClock()) as [first, second]:
        assert await claims(second) == []
        for number in range(3):
            await first.put([Notification(table("orders", f"catalog{number}"))])
            assert [claim.subject.catalog for claim in await claims(second)] == [f"catalog{number}"]


async def test_what_is_told_of_a_row_is_numbered_in_the_order_in_which_it_is_taken(dsn: str) -> None:
    """Else what came while a put waited for another row would look older than what that put says."""
    async with replicas(dsn, HandClock()) as [first, second], session(dsn) as other:
        await fill(first, 2)
        async with anyio.create_task_group() as tasks, other.transaction():
            await other.execute("SELECT FROM sfn.subject WHERE key LIKE '%t00000%' FOR UPDATE")
            tasks.start_soon(first.put, [Notification(named(0)), Notification(named(1))])
            await anyio.sleep(0.3)
            await second.put([Notification(named(1))])
        rows = "SELECT seq - (SELECT max(seq) FROM sfn.event e WHERE e.key = s.key) FROM sfn.subject s"
        assert await stored(dsn, rows) == [0, 0]


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
            tasks.start_soon(replay, inboxes[0], letters)
            tasks.start_soon(replay, inboxes[1], letters[::-1])
            tasks.start_soon(discard, inboxes[0], letters[::-1])
            tasks.start_soon(discard, inboxes[1], letters)
        assert sum(counts) == 6
        statuses = Counter(
            letter.status for letter in await inboxes[0].list_after(DeadLetterFilter(status=None), 0, 10)
        )
        claimed = (await inboxes[0].claim(PLENTY)).jobs
        assert len(claimed) == statuses[DeadLetterStatus.REPLAYED]


async def test_a_row_that_is_forgotten_while_it_is_told_of_is_made_anew(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock) as [first, second]:
        for turn in range(20):
            await fill(first, 1)
            (claim,) = await claims(first)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(first.settle, claim, Done(clock.now(), forget=True), clock.now())
                tasks.start_soon(second.put, [Notification(named(0), "etl", f"{turn}")])
            # Whoever came first, what was told is looked at.
            (claim,) = await claims(second)
            assert await second.settle(claim, Done(clock.now(), forget=True), clock.now())
    assert await stored(dsn, "SELECT count(*) FROM sfn.subject") == [0]
    assert await stored(dsn, "SELECT count(*) FROM sfn.memo") == [0]


# Open intents.


FIRST: Final = CHECK_DELAYS[0].total_seconds()
LAST: Final = CHECK_DELAYS[-1].total_seconds()
BLOCKED: Final = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
HINTED: Final = "SELECT key FROM sfn.event ORDER BY seq"
ONE = '["prod","sales","t00001"]'


def intents(*numbers: int) -> list[Intent]:
    """An intent for each of these tables, by its number."""
    return [Intent(f"i{number}", (named(number),), "gateway", "10.0.0.1") for number in numbers]


async def blocked(dsn: str, sessions: int) -> None:
    """Until so many of the database wait for a lock."""
    with anyio.fail_after(10):
        while await stored(dsn, BLOCKED) != [sessions]:  # noqa: ASYNC110 - the server knows
            await anyio.sleep(0.02)


async def test_who_look_at_once_ask_for_each_once(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 3) as inboxes:
        await inboxes[0].put(intents(*range(60)))
        clock.turn(FIRST)
        async with anyio.create_task_group() as tasks:
            for inbox in inboxes * 2:
                tasks.start_soon(claims, inbox)
        await claims(inboxes[0])
    assert Counter(await stored(dsn, HINTED)) == {f'["prod","sales","t{number:05}"]': 1 for number in range(60)}


async def test_what_another_transaction_asks_for_is_asked_for_if_that_one_fails(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [inbox], session(dsn) as other:
        await inbox.put(intents(1, 2))
        clock.turn(FIRST)
        async with other.transaction():
            await other.execute("SELECT FROM sfn.intent WHERE id = 'i1' FOR UPDATE")
            with anyio.fail_after(3):
                claimed = await inbox.claim(PLENTY)
            assert [claim.subject for claim in claimed.jobs] == [named(2)]
            assert claimed.next_due == clock.now() + SOON
        assert [claim.subject for claim in await claims(inbox)] == [named(1)]


async def test_an_ask_for_a_row_that_another_transaction_has_holds_nobody_up_and_is_made_soon(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [inbox], session(dsn) as other:
        await inbox.put([Notification(named(1)), *intents(1, 2)])
        await claims(inbox)
        clock.turn(FIRST)
        async with other.transaction():
            await other.execute("SELECT FROM sfn.subject WHERE key LIKE '%t00001%' FOR UPDATE")
            with anyio.fail_after(3):
                claimed = await inbox.claim(PLENTY)
            assert [claim.subject for claim in claimed.jobs] == [named(2)]
            assert claimed.next_due == clock.now() + SOON
        await claims(inbox)
    assert (await stored(dsn, HINTED)).count(ONE) == 2


async def test_an_answer_waits_for_who_asks_and_has_the_last_word(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock) as [first, second], session(dsn) as other:
        await first.put(intents(1, 2))
        clock.turn(FIRST)
        async with anyio.create_task_group() as tasks, other.transaction():
            await other.execute("LOCK TABLE sfn.event IN SHARE MODE")
            tasks.start_soon(claims, first)
            await blocked(dsn, 1)
            tasks.start_soon(second.put, [IntentOutcome("i1", is_known=True), IntentOutcome("i2", is_known=False)])
            await blocked(dsn, 2)
        assert await stored(dsn, "SELECT id FROM sfn.intent") == ["i2"]
        clock.turn(FIRST - 1)
        assert (await second.claim(PLENTY)).next_due == clock.turn(1)
        await claims(second)
    assert (await stored(dsn, HINTED)).count('["prod","sales","t00002"]') == 2


async def test_the_answer_to_a_commit_and_its_hint_are_all_or_nothing(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [inbox], session(dsn) as other:
        await inbox.put(intents(1))
        await other.execute("ALTER TABLE sfn.event ADD CHECK (sender <> 'gateway') NOT VALID")
        with pytest.raises(Exception, match="23514"):
            await inbox.put([IntentOutcome("i1", is_known=True), Notification(named(1), "gateway")])
        assert await stored(dsn, "SELECT id FROM sfn.intent") == ["i1"]


async def test_intents_are_there_for_who_comes_later(dsn: str) -> None:
    clock = HandClock()
    long = TableIdentifier("prod", ("sales",), "x" * 3000)
    async with replicas(dsn, clock, 1) as [inbox]:
        await inbox.put([*intents(1), Intent("long", (long,), "gate\0way", "10.0.0.1")])
    clock.turn(LAST)
    async with replicas(dsn, clock, 1) as [inbox]:
        assert {claim.subject for claim in await claims(inbox)} == {named(1), long}
        standing = await inbox.table_status(long)
        assert standing is not None
        assert standing.last_event is not None
        assert standing.last_event.sender == "gate\ufffdway"


async def test_those_who_open_too_many_at_once_share_one_of_the_catalog(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock) as inboxes:
        await inboxes[0].put(intents(*range(1000)))
        clock.turn(5)
        async with anyio.create_task_group() as tasks:
            for number, inbox in enumerate(inboxes * 3):
                tasks.start_soon(inbox.put, intents(2000 + number))
        clock.turn(5)
        await inboxes[1].put(intents(3000))
        query = "SELECT key || (opened_at - due_at) / 1000000 FROM sfn.intent WHERE id = ''"
        assert await stored(dsn, query) == ['["prod"]-25']


async def test_who_opens_one_of_the_catalog_puts_off_no_ask_of_another_one_that_does(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock) as [first, second], session(dsn) as other:
        await first.put(intents(*range(1000)))
        async with anyio.create_task_group() as tasks, other.transaction():
            await other.execute("LOCK TABLE sfn.intent IN SHARE MODE")
            for inbox, number in ((first, 2000), (second, 3000)):
                tasks.start_soon(inbox.put, intents(number))
                await blocked(dsn, 1 if inbox is first else 2)
                clock.turn(5)
        query = "SELECT due_at - (SELECT min(opened_at) FROM sfn.intent) FROM sfn.intent WHERE id = ''"
        assert await stored(dsn, query) == [FIRST * 1_000_000]


async def test_nothing_that_is_asked_of_intents_reads_all_that_are_open(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [inbox]:
        await inbox.put(intents(*range(900)))
        for start in range(0, 900, 100):
            await inbox.put([IntentOutcome(f"i{number}", is_known=False) for number in range(start, start + 100)])
    sought = IntentQuery({"i7", ""}, {named(7)}, {named(7)}, {"10.0.0.2"})
    looks: list[Callable[[PostgresIntents], Awaitable[object]]] = [
        lambda table: table.span(),
        lambda table: table.due(clock.now(), 500),
        lambda table: table.find(sought),
        lambda table: table.get({"i7"}),
        lambda table: table.of(named(7)),
        lambda table: table.close({"i7"}),
    ]
    async with reached(PostgresServer(dsn)) as there:
        for look in looks:
            assert await there.transactions.run(partial(_rows_read, look)) < 10


async def _rows_read(look: Callable[[PostgresIntents], Awaitable[object]], unit: InboxTransaction) -> int:
    assert isinstance(unit, SqlTransaction)
    await look(unit.intents)
    ((read,),) = await unit.sql.fetch(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'intent'"
    )
    return int(read)


async def test_tables_of_the_first_version_get_room_for_intents_while_one_of_it_goes_on(dsn: str) -> None:
    clock = SystemClock()
    # The statements of this version name columns of later steps; only the room for intents is missing.
    statements = ";".join(step.script for step in MIGRATIONS if step is not MIGRATIONS[1])
    async with PostgresInbox.opened(
        PostgresServer(dsn), InboxConfig(), clock, migrations=[Migration(statements, oldest=1)]
    ) as old:
        await old.put([Notification(named(7), "etl", "e1")])
        async with replicas(dsn, clock, 1) as [new]:
            assert (await new.put([*intents(1), Notification(named(7), "etl", "e1")])).duplicates == 1
            await old.put([Notification(named(8))])
            await old.check_version()
            assert len(await claims(new)) == 2
    assert await stored(dsn, "SELECT version FROM sfn.version") == [len(MIGRATIONS)]
