"""What two processes do at once comes out as if one had done it after the other."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import (
    BackwardStep,
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    PublishResult,
    StepKind,
    TableState,
)
from sfn.inbox.model import AdminCommand, DeadLetterFilter, DeadLetterStatus
from sfn.inbox.postgres import PostgresInbox
from tests.integration.sharing import claims, fill, named, replicas, session, stored
from tests.promises.inboxes import PLENTY, TERMS, Ground, HandClock, pointer, table
from tests.servers.postgres import Postgres

LAKE = "s3://lake/orders"
ORDERS, HEIR = table("orders"), table("heir")


@pytest.fixture(name="dsn")
def fixture_dsn(postgres: Postgres, database: str) -> str:
    return postgres.dsn(database)


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
