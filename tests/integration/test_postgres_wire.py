"""A connection that is lost in the worst moment: what was done by it is neither lost nor done twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio
import pytest

from sfn.domain.events import Notification, PutResult
from sfn.domain.jobs import Done, LeasedJob, Retry
from sfn.errors import OutcomeUnknown, Transient
from sfn.inbox.postgres import PostgresInbox, PostgresServer, connections, transactions
from sfn.inbox.postgres.connections import PAUSE
from tests.integration.sharing import claims, fill, named, replicas, stored
from tests.integration.wire import Cut, Wire, wire_to
from tests.promises.inboxes import PLENTY, TERMS, HandClock
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Postgres

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
        patch.setattr(transactions, "PATIENCE", 0.5)
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
