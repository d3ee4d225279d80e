"""Transactions on a real PostgreSQL server, statement by statement, in every order, and with connections that are lost.

The service has a lock for everything that changes jobs, and no lock for appends. Each test here lets one statement at a
time run, in an order that it chooses, and compares the outcome with what every order must lead to.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import anyio
import pytest

from sfn.domain.events import Notification, PutResult
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, LeasedJob, Retry
from sfn.errors import Transient
from sfn.inbox.model import AdminCommand, DeadLetterFilter, DeadLetterStatus, FoldResult, InboxConfig, JobState
from sfn.inbox.postgres import PostgresInbox, PostgresRunner, append_rows
from sfn.inbox.postgres_connections import AsyncpgConnection, connect
from sfn.inbox.postgres_server import LOST, PostgresConnectionLost, PostgresServer
from sfn.inbox.schema import encode_message, to_micros
from sfn.inbox.transaction import Appended
from tests.promises.inboxes import PLENTY
from tests.servers.postgres import Postgres
from tests.support.clock import HandClock
from tests.support.shared_inboxes import blocked, claims, named, replicas, session, stored, stored_jobs

T = TypeVar("T")

STUCK: Final = 10.0
"""Seconds for one statement."""
DRAWN: Final = 60
"""Orders that are drawn where there are too many for all of them."""


Choose: TypeAlias = Callable[[int], int]
"""Returns the index of the task that goes on, of this number of tasks."""


class EveryOrder:
    """Every order in which a program can run: a depth-first search over the choices of its runs."""

    def __init__(self) -> None:
        self._path: list[list[int]] = []
        self._place = 0

    def __iter__(self) -> Iterator[Choose]:
        while True:
            self._place = 0
            yield self._choose
            del self._path[self._place :]
            while self._path and self._path[-1][0] + 1 >= self._path[-1][1]:
                self._path.pop()
            if not self._path:
                return
            self._path[-1][0] += 1

    def _choose(self, number: int) -> int:
        if self._place == len(self._path):
            self._path.append([0, number])
        step = self._path[self._place]
        step[1] = number
        self._place += 1
        return min(step[0], number - 1)


def drawn_orders(seed: int) -> Iterator[Choose]:
    """Yield random orders."""
    chance = random.Random(seed)
    for _ in range(DRAWN):
        yield chance.randrange


@dataclass(eq=False)
class Actor:
    """One task, which runs statements when the schedule lets it.

    Attributes:
        statements: the statements that it has run.
        session: the process id of the server for its last statement.
        waiting: True while it waits to run the next one.
        is_free: True if no statement waits.
        has_ended: True once the task has ended.
        kill: called around each statement with its number and True after it; True to lose the connection there.
    """

    statements: list[str] = field(default_factory=list)
    session: int = 0
    waiting: bool = False
    kill: Callable[[int, bool], bool] = lambda _number, _after: False
    is_free: bool = False
    has_ended: bool = False
    _turn: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_moving(self) -> bool:
        """True while it neither waits for its turn nor has ended."""
        return not self.waiting and not self.has_ended

    async def wait(self) -> None:
        """Wait for the turn."""
        if not self.is_free:
            self.waiting, self._turn = True, anyio.Event()
            await self._turn.wait()

    def go(self) -> None:
        """Let it run one statement."""
        self.waiting = False
        self._turn.set()


ACTOR: ContextVar[Actor | None] = ContextVar("ACTOR", default=None)


@contextmanager
def acting(actor: Actor) -> Iterator[Actor]:
    """Have the statements of this task be those of an actor."""
    before = ACTOR.set(actor)
    try:
        yield actor
    finally:
        ACTOR.reset(before)


@pytest.fixture(name="gates", autouse=True)
def fixture_gates(monkeypatch: pytest.MonkeyPatch, postgres: Postgres, database: str) -> None:
    """Have each statement of an actor wait for its turn."""
    dsn = postgres.dsn(database)

    def gated(original: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def run(connection: AsyncpgConnection, statement: str, *values: object) -> T:
            actor = ACTOR.get()
            # A new connection and a signal are not part of a transaction.
            if actor is None or statement.startswith(("SET ", "BEGIN; SET", "SELECT pg_backend_pid")):
                return await original(connection, statement, *values)
            number = len(actor.statements)
            await actor.wait()
            actor.statements.append(statement)
            actor.session = connection.session
            if actor.kill(number, False):
                await end_session(dsn, connection.session)
            result = await original(connection, statement, *values)
            if actor.kill(number, True):
                await end_session(dsn, connection.session)
                connection.end()
                raise PostgresConnectionLost(LOST, "the answer was lost")
            return result

        return run

    for name in ("fetch", "execute"):
        monkeypatch.setattr(AsyncpgConnection, name, gated(getattr(AsyncpgConnection, name)))


async def end_session(dsn: str, number: int) -> None:
    """End a session of the server, and wait until it is gone."""
    await stored(dsn, f"SELECT pg_terminate_backend({number}, 5000)")


class Schedule:
    """Runs several tasks side by side, one statement at a time.

    Args:
        server: a connection for questions about locks.
        choose: chooses the task that goes on.
    """

    def __init__(self, server: Any, choose: Choose) -> None:  # noqa: ANN401 - asyncpg has no types
        self._server, self._choose = server, choose
        self.order: list[str] = []

    async def run(self, **programs: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
        """Return the results of the programs, by name."""
        actors = {name: Actor() for name in programs}
        results: dict[str, Any] = {}

        async def run(name: str) -> None:
            ACTOR.set(actors[name])
            results[name] = await programs[name]()
            actors[name].has_ended = True

        with anyio.fail_after(6 * STUCK):
            async with anyio.create_task_group() as tasks:
                for name in programs:
                    tasks.start_soon(run, name)
                while await self._until_still(actors):
                    ready = [name for name in actors if actors[name].waiting]
                    chosen = ready[self._choose(len(ready)) if len(ready) > 1 else 0]
                    self.order.append(chosen)
                    actors[chosen].go()
        return results

    async def _until_still(self, actors: dict[str, Actor]) -> bool:
        """Wait until each task has ended, waits for its turn, or waits for a lock; return False if all have ended."""
        polls = 0
        while True:
            moving = [actor for actor in actors.values() if actor.is_moving]
            if not moving:
                return not all(actor.has_ended for actor in actors.values())
            if polls > 1 and any(actor.waiting for actor in actors.values()):
                blocked = [await self._is_blocked(actor) for actor in moving]
                if all(blocked) and all(actor.is_moving for actor in moving):
                    return True
            polls += 1
            await anyio.sleep(0.001)

    async def _is_blocked(self, actor: Actor) -> bool:
        if not actor.session:
            return False
        return bool(await self._server.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", actor.session))


@dataclass(frozen=True)
class Ground:
    """Three processes with one inbox, and a connection for questions about locks."""

    dsn: str
    inboxes: list[PostgresInbox]
    server: Any
    clock: HandClock

    async def settle(self, claim: LeasedJob, inbox: PostgresInbox | None = None) -> bool:
        """Settle a claim; the next check of its table is a day away."""
        return await (inbox or self.inboxes[0]).settle(claim, self.done(), self.clock.now())

    def done(self) -> Done:
        return Done(self.clock.now() + timedelta(days=1))

    async def claim(self, inbox: PostgresInbox) -> list[LeasedJob]:
        return list((await inbox.claim(PLENTY)).jobs)

    async def job(self, subject: JobKey) -> tuple[int, int, JobState]:
        """Return the version of a job, the one that was processed, and its state."""
        job = (await stored_jobs(self.dsn))[subject]
        return job.version, job.processed_version, job.state

    async def pending(self) -> int:
        (count,) = await stored(self.dsn, "SELECT count(*) FROM sfn.pending")
        return int(count)


@pytest.fixture(name="ground")
async def fixture_ground(dsn: str) -> AsyncIterator[Ground]:
    clock = HandClock()
    async with replicas(dsn, clock, 3, InboxConfig(lease=timedelta(days=30))) as inboxes, session(dsn) as server:
        ground = Ground(dsn, inboxes, server, clock)
        # The first claim of a process draws tokens, and the first one of all makes a group.
        for number, inbox in enumerate(inboxes):
            warm = TableIdentifier("prod", (), f"warm{number}")
            await inbox.put([Notification(warm)])
            for claim in await claims(inbox):
                assert await ground.settle(claim, inbox)
        yield ground


@asynccontextmanager
async def appending(dsn: str) -> AsyncIterator[AsyncpgConnection]:
    """Yield an open connection for an append whose transaction takes long, as behind a pooler."""
    connection = await connect(PostgresServer(dsn), prepares=True)
    try:
        yield connection
    finally:
        await connection.close()


async def append_slowly(
    connection: AsyncpgConnection, at: datetime, *notifications: Notification, commit: bool = True
) -> Appended:
    """Append in three statements."""
    await connection.execute("BEGIN")
    appended = await append_rows(connection, [encode_message(one, to_micros(at)) for one in notifications])
    await connection.execute("COMMIT" if commit else "ROLLBACK")
    return appended


# ── Appends


@pytest.mark.parametrize("first_commits", [True, False])
@pytest.mark.parametrize("second_commits", [True, False])
async def test_two_appends_with_one_event_id_store_one_event_in_every_order(
    ground: Ground, *, first_commits: bool, second_commits: bool
) -> None:
    async with appending(ground.dsn) as one, appending(ground.dsn) as other:
        for run, choose in enumerate(EveryOrder()):
            event = Notification(named(run), "etl", f"e{run}")
            schedule = Schedule(ground.server, choose)
            found = await schedule.run(
                first=partial(append_slowly, one, ground.clock.now(), event, commit=first_commits),
                second=partial(append_slowly, other, ground.clock.now(), event, commit=second_commits),
            )
            new = [
                found[name].new == [True]
                for name, commits in (("first", first_commits), ("second", second_commits))
                if commits
            ]
            events = await stored(ground.dsn, f"SELECT seq FROM sfn.event WHERE event_id = 'e{run}'")  # noqa: S608
            # The one that came second waited: it is a duplicate only if the first one was committed.
            assert (len(events), sum(new)) == ((1, 1) if new else (0, 0)), schedule.order
            assert (
                await stored(ground.dsn, "SELECT seq FROM sfn.pending ORDER BY seq DESC LIMIT 1") == events or not new
            )
        assert run >= 5
    assert await ground.pending() == await _count(ground.dsn, "event WHERE sender = 'etl'")


async def _count(dsn: str, rows: str) -> int:
    (count,) = await stored(dsn, f"SELECT count(*) FROM sfn.{rows}")  # noqa: S608 - our own words
    return int(count)


async def test_a_put_with_an_event_id_that_is_being_appended_waits_for_the_end_of_that_append(ground: Ground) -> None:
    async with appending(ground.dsn) as one:
        for commits in (True, False):
            for run, choose in enumerate(EveryOrder()):
                event = Notification(named(run), "etl", f"{commits} {run}")
                schedule = Schedule(ground.server, choose)
                found = await schedule.run(
                    slow=partial(append_slowly, one, ground.clock.now(), event, commit=commits),
                    put=partial(ground.inboxes[0].put, [event, Notification(named(run))]),
                )
                slow_is_first = schedule.order[:2] == ["slow", "slow"]
                is_duplicate = commits and found["slow"].new == [True]
                assert found["put"] == PutResult(1 if is_duplicate else 2, 1 if is_duplicate else 0), schedule.order
                assert not slow_is_first or found["slow"].new == [True]
                assert await _count(ground.dsn, f"event WHERE event_id = '{commits} {run}'") == 1


async def test_appends_of_the_same_events_in_opposite_order_never_wait_for_each_other(ground: Ground) -> None:
    """Both wait for a third one in the middle of their events; without an order, each would have one event then."""
    events = [Notification(named(number), "etl", f"e{number}") for number in range(3)]
    found: list[Appended] = []

    async def append(connection: AsyncpgConnection, events: Sequence[Notification]) -> None:
        found.append(await append_slowly(connection, ground.clock.now(), *events))

    async with appending(ground.dsn) as one, appending(ground.dsn) as other, appending(ground.dsn) as third:
        await third.execute("BEGIN")
        await append_rows(third, [encode_message(events[1], to_micros(ground.clock.now()))])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append, one, events)
            await blocked(ground.dsn, 1)
            tasks.start_soon(append, other, events[::-1])
            await blocked(ground.dsn, 2)
            await third.execute("ROLLBACK")
    assert sorted(sum(appended.new) for appended in found) == [0, 3]


async def test_an_append_that_commits_late_is_never_lost_although_its_number_is_lower(ground: Ground) -> None:
    """A number is drawn before the commit: a record with a higher number may be folded, even processed, before."""
    inbox = ground.inboxes[0]
    for run, choose in enumerate(EveryOrder()):
        table = named(run)
        async with appending(ground.dsn) as slow:
            await slow.execute("BEGIN")
            row = encode_message(Notification(table, "etl", f"late {run}"), to_micros(ground.clock.now()))
            late = await append_rows(slow, [row])
            await inbox.put([Notification(table, "etl", f"early {run}")])
            processed: list[LeasedJob] = []

            async def work(processed: list[LeasedJob] = processed) -> None:
                (claim,) = await ground.claim(inbox)
                assert await ground.settle(claim, inbox)
                processed.append(claim)

            schedule = Schedule(ground.server, choose)
            await schedule.run(late=partial(slow.execute, "COMMIT"), worker=work)
        (early,) = await stored(ground.dsn, f"SELECT seq FROM sfn.event WHERE event_id = 'early {run}'")  # noqa: S608
        assert late.last < early
        again = await ground.claim(ground.inboxes[1])
        # The claim that began before the late record was folded does not cover it.
        covered = [claim.version for claim in (*processed, *again)]
        assert max(covered) == 2, (schedule.order, covered)
        for claim in again:
            assert await ground.settle(claim)
        assert await ground.job(table) == (2, 2, JobState.QUEUED), schedule.order
        assert await ground.pending() == 0
    assert run >= 5


# ── Folds, claims and settles


async def test_two_folds_at_once_fold_each_record_once(ground: Ground) -> None:
    first, second, _ = ground.inboxes
    for run, choose in enumerate(EveryOrder()):
        table, other = named(2 * run), named(2 * run + 1)
        await first.put([Notification(table), Notification(other), Notification(table)])
        schedule = Schedule(ground.server, choose)
        found = await schedule.run(first=first.fold, second=second.fold)
        folds: Sequence[FoldResult] = list(found.values())
        assert sorted((fold.records, fold.coalesced) for fold in folds) == [(0, 0), (3, 1)], schedule.order
        assert (await ground.job(table), await ground.job(other)) == ((2, 0, "queued"), (1, 0, "queued"))
        assert await ground.pending() == 0
    assert run >= 5


async def test_two_claims_at_once_lease_a_job_once(ground: Ground) -> None:
    first, second, _ = ground.inboxes
    for run, choose in enumerate(EveryOrder()):
        await first.put([Notification(named(2 * run)), Notification(named(2 * run + 1))])
        schedule = Schedule(ground.server, choose)
        found = await schedule.run(first=partial(ground.claim, first), second=partial(ground.claim, second))
        leased = [claim for name in ("first", "second") for claim in found[name]]
        assert sorted(str(claim.subject) for claim in leased) == [str(named(2 * run)), str(named(2 * run + 1))]
        assert [claim.attempt for claim in leased] == [1, 1]
        for claim in leased:
            assert await ground.settle(claim)
    assert run >= 5


async def test_a_put_at_any_statement_of_a_claim_and_of_a_fold_is_applied_once(ground: Ground) -> None:
    first, second, third = ground.inboxes
    for run, choose in enumerate(EveryOrder()):
        table = named(run)
        await first.put([Notification(table)])
        schedule = Schedule(ground.server, choose)
        found = await schedule.run(
            claim=partial(ground.claim, first), fold=second.fold, put=partial(third.put, [Notification(table)])
        )
        (claim,) = found["claim"]
        await second.fold()
        version, processed, state = await ground.job(table)
        assert (version, processed, state) == (2, 0, JobState.LEASED), schedule.order
        assert claim.version in {1, 2}
        assert await ground.settle(claim, first)
        again = await ground.claim(third)
        assert [one.version for one in again] == ([2] if claim.version == 1 else []), schedule.order
        for one in again:
            assert await ground.settle(one, third)
        assert await ground.job(table) == (2, 2, JobState.QUEUED)
        assert await ground.pending() == 0
    assert run >= 50


@pytest.mark.parametrize("seed", [1, 2])
async def test_puts_folds_and_workers_side_by_side_lose_nothing(ground: Ground, seed: int) -> None:
    """Two workers claim and settle, while two more notifications of their tables come."""
    first, second, third = ground.inboxes
    for run, choose in enumerate(drawn_orders(seed)):
        tables = [named(2 * run), named(2 * run + 1)]
        await first.put([Notification(table) for table in tables])
        covered: dict[JobKey, list[int]] = {table: [] for table in tables}

        async def work(inbox: PostgresInbox, covered: dict[JobKey, list[int]] = covered) -> None:
            for claim in await ground.claim(inbox):
                assert await ground.settle(claim, inbox)
                covered[claim.subject].append(claim.version)

        async def put(tables: Sequence[TableIdentifier] = tables) -> None:
            for table in tables:
                await third.put([Notification(table)])

        schedule = Schedule(ground.server, choose)
        await schedule.run(one=partial(work, first), other=partial(work, second), put=put)
        await work(first)
        for table in tables:
            assert await ground.job(table) == (2, 2, JobState.QUEUED), schedule.order
            # No version is processed twice, and the last one is.
            assert sorted(set(covered[table])) == covered[table], schedule.order
            assert covered[table][-1] == 2
        assert await ground.pending() == 0


# ── Commands of operators


@pytest.mark.parametrize("ends", ["replay", "discard"])
async def test_a_claim_beside_the_end_of_a_dead_letter_sees_all_of_it_or_nothing(ground: Ground, ends: str) -> None:
    first, second, _ = ground.inboxes
    for run, choose in enumerate(EveryOrder()):
        table = named(run)
        await first.put([Notification(table)])
        (claim,) = await ground.claim(first)
        assert await first.settle(claim, DeadLettered(DeadLetterReason.PERMANENT, "broken"), ground.clock.now())
        (letter,) = await first.list_newest(DeadLetterFilter(), 10)
        command = AdminCommand("ann", "", ground.clock.now())
        if ends == "replay":
            end: Callable[[], Coroutine[Any, Any, int]] = partial(second.replay, [letter.id], [], command)
        else:
            end = partial(second.discard, [letter.id], command)
        schedule = Schedule(ground.server, choose)
        found = await schedule.run(claim=partial(ground.claim, first), command=end)
        assert found["command"] == 1
        leased = [*found["claim"], *await ground.claim(first)]
        assert [one.subject for one in leased] == ([table] if ends == "replay" else []), schedule.order
        status = DeadLetterStatus.REPLAYED if ends == "replay" else DeadLetterStatus.DISCARDED
        assert [one.status for one in await first.get_many([letter.id])] == [status]
        for one in leased:
            assert await ground.settle(one)
    assert run >= 5


async def test_a_claim_beside_reconcile_covers_it_now_or_with_the_next_claim(ground: Ground) -> None:
    first, second, _ = ground.inboxes
    for run, choose in enumerate(EveryOrder()):
        table = named(run)
        await first.put([Notification(table)])
        command = AdminCommand("ann", "", ground.clock.now())
        schedule = Schedule(ground.server, choose)
        found = await schedule.run(
            claim=partial(ground.claim, first), command=partial(second.reconcile, [Notification(table)], command)
        )
        (claim,) = found["claim"]
        assert await ground.settle(claim, first)
        again = await ground.claim(first)
        assert [one.version for one in (claim, *again)] in ([2], [1, 2]), schedule.order
        for one in again:
            assert await ground.settle(one)
        assert await ground.job(table) == (2, 2, JobState.QUEUED)
    assert run >= 5


async def test_a_settle_beside_a_replay_of_its_job_takes_one_side(ground: Ground) -> None:
    """A replayed job loses its lease: the worker that still has it settles nothing."""
    first, second, _ = ground.inboxes
    for run, choose in enumerate(EveryOrder()):
        table = named(run)
        await first.put([Notification(table)])
        (claim,) = await ground.claim(first)
        letter_outcome = DeadLettered(DeadLetterReason.PERMANENT, "broken", recheck_at=ground.clock.now())
        assert await first.settle(claim, letter_outcome, ground.clock.now())
        (leased,) = await ground.claim(first)
        (letter,) = await first.list_newest(DeadLetterFilter(), 1)
        command = AdminCommand("ann", "", ground.clock.now())
        schedule = Schedule(ground.server, choose)
        found = await schedule.run(
            settle=partial(ground.settle, leased, first), replay=partial(second.replay, [letter.id], [], command)
        )
        # The settle closes the letter, too, if it comes first.
        assert (found["settle"], found["replay"]) in ((True, 0), (False, 1)), schedule.order
        again = await ground.claim(first)
        assert len(again) == found["replay"]
        for one in again:
            assert await ground.settle(one)
    assert run >= 5


# ── Lost connections


@dataclass
class Loss:
    """A connection that is lost once, around one statement.

    Attributes:
        number: number of the statement.
        after: True if the statement was executed before.
        happened: True once the connection is lost.
    """

    number: int
    after: bool
    happened: bool = False

    def __call__(self, number: int, after: bool) -> bool:
        if self.happened or (number, after) != (self.number, self.after):
            return False
        self.happened = True
        return True


async def repeated(loss: Loss, step: Callable[[], Awaitable[T]]) -> T:
    """Run a step around which a connection is lost, and repeat it as the service does."""
    with acting(Actor(kill=loss, is_free=True)):
        for _ in range(2):
            try:
                return await step()
            except Transient:
                # Behind it is one lost connection at most.
                assert loss.happened
        return await step()


@pytest.mark.parametrize("step", ["put", "fold", "claim", "settle"])
@pytest.mark.parametrize("after", [False, True])
async def test_a_connection_that_is_lost_around_any_statement_loses_nothing_and_repeats_nothing(
    ground: Ground, step: str, *, after: bool
) -> None:
    number = 0
    # The last run has no statement with that number, so a connection was lost around each one.
    while await _work_with_loss(ground, step, number, after=after):
        number += 1
    assert number == {"put": 1, "fold": 5, "claim": 5, "settle": 4}[step]


async def _work_with_loss(ground: Ground, step: str, number: int, *, after: bool) -> bool:
    """Put, claim and settle, and lose a connection around a statement of one step; return False if there is none."""
    inbox, other, _ = ground.inboxes
    losses = {name: Loss(number if name == step else -1, after) for name in ("put", "fold", "claim", "settle")}
    table = named(number)
    events = [Notification(table, "etl", f"{number} {part}") for part in range(2)]
    accepted = await repeated(losses["put"], partial(inbox.put, events))
    assert accepted.accepted + accepted.duplicates == 2
    if step == "fold":
        await repeated(losses["fold"], inbox.fold)
    (claim,) = await repeated(losses["claim"], partial(ground.claim, inbox))
    assert (claim.subject, claim.attempt, claim.version) == (table, 1, 2)
    assert await ground.claim(other) == []
    assert await repeated(losses["settle"], partial(ground.settle, claim, inbox))
    assert await ground.job(table) == (2, 2, JobState.QUEUED)
    job = (await stored_jobs(ground.dsn))[table]
    assert (job.crashes, job.attempt) == (0, 0)
    assert await _count(ground.dsn, f"outcome WHERE key LIKE '%{table.name}%'") == 1
    assert await ground.claim(inbox) == await ground.claim(other) == []
    assert await _count(ground.dsn, f"event WHERE key LIKE '%{table.name}%'") == 2
    assert await ground.pending() == 0
    return losses[step].happened


@pytest.mark.parametrize("after", [False, True])
async def test_a_connection_that_is_lost_during_a_retry_costs_one_attempt(ground: Ground, *, after: bool) -> None:
    """A claim that ends with a retry keeps its count, at whatever statement its connection is lost."""
    inbox = ground.inboxes[0]
    for run in range(10):
        loss = Loss(run, after)
        await inbox.put([Notification(named(run))])
        (claim,) = await ground.claim(inbox)
        later = ground.clock.now() + timedelta(days=1)
        settle = partial(inbox.settle, claim, Retry(later, "not now"), ground.clock.now())
        assert await repeated(loss, settle)
        assert (await stored_jobs(ground.dsn))[named(run)].attempt == 1
        if not loss.happened:
            break
    assert run == 4


# ── What one process remembers


async def test_a_new_connection_at_any_statement_of_a_claim_confuses_no_concurrency_groups(ground: Ground) -> None:
    """With a new connection the process forgets the numbers of the groups: another server may answer."""
    inbox, other, _ = ground.inboxes

    async def connect_again() -> None:
        actor = ACTOR.get()
        assert actor is not None
        await actor.wait()
        ACTOR.set(None)
        assert isinstance(inbox._runner, PostgresRunner)  # noqa: SLF001
        inbox._runner.connections.forget()  # noqa: SLF001
        await inbox.retired_catalogs()

    for run, choose in enumerate(EveryOrder()):
        before = await ground.server.fetch(GROUPS)
        tables = [TableIdentifier(catalog, (), f"t{run}") for catalog in ("prod", "new0", f"new{run}")]
        await other.put([Notification(table) for table in tables])
        schedule = Schedule(ground.server, choose)
        found = await schedule.run(claim=partial(ground.claim, inbox), connect=connect_again)
        assert {claim.subject: claim.group.catalog for claim in found["claim"]} == {
            table: table.catalog for table in tables
        }, schedule.order
        groups = await ground.server.fetch(GROUPS)
        assert groups[: len(before)] == before
        for claim in found["claim"]:
            assert await ground.settle(claim, inbox)
        # The process still claims from all groups.
        await other.put([Notification(table) for table in tables])
        again = await ground.claim(inbox)
        assert {claim.subject for claim in again} == set(tables), schedule.order
        for claim in again:
            assert await ground.settle(claim, inbox)
    assert run == 5


GROUPS: Final = "SELECT id, catalog, store, priority FROM sfn.concurrency_group ORDER BY id"


async def test_an_event_that_is_accepted_during_a_fold_is_part_of_the_next_query(ground: Ground) -> None:
    """A query of an operator folds first what this process has accepted."""
    inbox = ground.inboxes[0]
    for run, choose in enumerate(EveryOrder()):
        table = named(run)
        await inbox.put([Notification(named(1000 + run))])
        schedule = Schedule(ground.server, choose)
        await schedule.run(fold=inbox.fold, put=partial(inbox.put, [Notification(table)]))
        status = await inbox.table_status(table)
        assert status is not None
        assert status.unapplied == 0, schedule.order


# ── Figures


async def statements(program: Callable[[], Awaitable[object]]) -> list[str]:
    """Run a program, and return its statements."""
    with acting(Actor(is_free=True)) as actor:
        await program()
    return actor.statements


async def test_an_append_is_one_statement(ground: Ground) -> None:
    inbox = ground.inboxes[0]
    for number in (1, 10, 500):
        notifications = [Notification(named(one), "etl", f"{number} {one}") for one in range(number)]
        (only,) = await statements(partial(inbox.put, notifications))
        assert "sfn.event" in only
        assert "lock" not in only.lower()


async def test_a_fold_and_a_claim_are_five_statements_together(ground: Ground) -> None:
    inbox = ground.inboxes[0]
    await inbox.put([Notification(named(number)) for number in range(30)])
    begin, *reads, write, commit = await statements(partial(ground.claim, inbox))
    assert "pg_advisory_xact_lock" in begin
    assert [one.split()[0] for one in reads] == ["SELECT", "SELECT"]
    assert "sfn.pending" in write
    assert "sfn.job" in write
    assert commit == "COMMIT"


async def test_a_claim_without_work_writes_nothing(ground: Ground) -> None:
    ran = await statements(partial(ground.claim, ground.inboxes[0]))
    assert len(ran) <= 4
    assert not any("INSERT" in one or "DELETE" in one for one in ran)


async def test_settles_that_come_together_are_one_transaction(ground: Ground) -> None:
    inbox = ground.inboxes[0]
    await inbox.put([Notification(named(number)) for number in range(10)])
    leased = await ground.claim(inbox)
    counts: list[int] = []

    async def settle(claim: LeasedJob) -> None:
        counts.append(len(await statements(partial(ground.settle, claim, inbox))))

    async with anyio.create_task_group() as tasks:
        for claim in leased:
            tasks.start_soon(settle, claim)
    # The first one runs at once, and the others share the next transaction.
    assert sorted(counts) == [0] * 8 + [4, 4]
