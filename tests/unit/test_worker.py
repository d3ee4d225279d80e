"""The worker: errors, stops, and what an exception that no adapter foresaw means."""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import anyio
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict
from typing_extensions import override

from sfn.domain.events import InboxMessage, Notification, PutResult
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.domain.jobs import (
    Capacity,
    ConcurrencyGroup,
    DeadLettered,
    DeadLetterReason,
    Done,
    FailureCause,
    LeasedJob,
    Outcome,
    Priority,
    Rescheduled,
    Retry,
    Returned,
    StoredObject,
)
from sfn.errors import ErrorScope, ForbiddenForTable, Permanent, Transient, UnaddressableTable
from sfn.inbox import ClaimResult
from sfn.inbox.inbox import InboxErrorLog
from sfn.inbox.model import DeadLetterFilter
from sfn.publish.policy import TableFilter
from sfn.storage import ERROR_BY_REACH, PROPAGATION_SECONDS, PermissionTracker, PreconditionFailed
from sfn.storage.memory import MemoryStore
from sfn.worker import worker
from sfn.worker.capacity import MAX_PAUSE, MAX_RETRY_AFTER, RetryPolicy
from sfn.worker.worker import MAX_UNEXPECTED_ERRORS, Leases, UnexpectedErrorKind, WorkerOptions, classify_error
from tests.promises.inboxes import PLENTY
from tests.support.clock import HandClock
from tests.support.working import REFRESH, TABLE, Desk, WatchedInbox

SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS, errno.EUSERS, errno.ENOLCK]
OTHERS = sorted(set(errno.errorcode) - set(SHORTAGES) - {errno.EWOULDBLOCK})


class FailingInbox(WatchedInbox):
    """An inbox whose disk is full for some calls.

    Attributes:
        fails: how many calls of a verb fail yet.
        fenced: every claim turns out to be another worker's.
    """

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.fails: dict[str, int] = {}
        self.fenced = False

    @override
    async def claim(
        self, capacity: Capacity, running: Sequence[LeasedJob] = (), until: datetime | None = None
    ) -> ClaimResult:
        self._fail("claim")
        return await super().claim(capacity, running, until)

    @override
    async def renew(self, claims: Sequence[LeasedJob]) -> list[LeasedJob]:
        self._fail("renew")
        return await super().renew(claims)

    @override
    async def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        self._fail("settle")
        return await super().settle(claim, outcome, now) and not self.fenced

    @override
    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        self._fail("put")
        return await super().put(messages)

    def _fail(self, verb: str) -> None:
        self.fails[verb] = self.fails.get(verb, 0) - 1
        if self.fails[verb] >= 0:
            raise Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=0.01)


@pytest.fixture
def inbox() -> FailingInbox:
    return FailingInbox(HandClock())


@pytest.fixture
async def desk(inbox: FailingInbox) -> Desk:
    made = Desk(clock=HandClock(), inbox=inbox)
    made.catalog.create(TABLE)
    await inbox.put([Notification(TABLE)])
    return made


def told(records: Sequence[EventDict]) -> list[tuple[str, str, str | None]]:
    return [(record["log_level"], record["event"], record.get("error")) for record in records]


BEGINS = ("warning", "inbox call failed", "inbox: expected room, found none")
ENDS = ("info", "inbox recovered", None)


async def test_a_claim_that_fails_time_and_again_is_told_once_and_its_end(desk: Desk, inbox: FailingInbox) -> None:
    inbox.fails["claim"] = 3
    stop = anyio.Event()
    with capture_logs() as records:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.worker.run, stop)
            with anyio.fail_after(10):
                while not desk.book.outcomes:  # noqa: ASYNC110 - the book has no event for it
                    await anyio.sleep(0.005)
            stop.set()
    assert told(records) == [BEGINS, ENDS]


@pytest.mark.slow
async def test_a_settle_that_fails_is_told(desk: Desk, inbox: FailingInbox) -> None:
    inbox.fails["settle"] = 1
    with capture_logs() as records:
        await desk.work()
    assert told(records) == [BEGINS, ENDS]


async def test_a_fenced_row_that_cannot_be_hinted_is_told(desk: Desk, inbox: FailingInbox) -> None:
    inbox.fenced, inbox.fails["put"] = True, 1
    with capture_logs() as records:
        await desk.work()
        assert told(records) == [BEGINS]
        await desk.work()
    assert told(records) == [BEGINS, ENDS]


async def test_leases_that_cannot_be_renewed_are_told(desk: Desk, inbox: FailingInbox) -> None:
    leases = Leases(inbox, desk.clock, timedelta(seconds=30), InboxErrorLog(desk.clock, "worker"))
    (claim,) = (await inbox.claim(PLENTY)).jobs
    leases.add(claim)
    inbox.fails["renew"] = 2
    with capture_logs() as records:
        for _ in range(3):
            await leases.renew_once()
    assert told(records) == [BEGINS, ENDS]


@pytest.mark.slow
async def test_leases_that_could_not_be_renewed_are_tried_again_at_once(
    desk: Desk, inbox: FailingInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that waited for long in vain leaves less of the lease than until the next turn."""
    monkeypatch.setattr(worker, "RETRY_PAUSE", 0.01)
    leases = Leases(inbox, desk.clock, timedelta(seconds=4.5), InboxErrorLog(desk.clock, "worker"))
    (claim,) = (await inbox.claim(PLENTY)).jobs
    leases.add(claim)
    inbox.fails["renew"] = 3
    with capture_logs() as records:
        with anyio.move_on_after(4):
            await leases.run()
        assert told(records) == [BEGINS, ENDS]


DRAIN = timedelta(seconds=0.2)


class StalledInbox(WatchedInbox):
    """An inbox whose disk does not answer.

    Attributes:
        stalls: the verb that never returns; what it was to do is done.
        reached: it was called.
    """

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.stalls = ""
        self.reached = anyio.Event()

    @override
    async def claim(
        self, capacity: Capacity, running: Sequence[LeasedJob] = (), until: datetime | None = None
    ) -> ClaimResult:
        claimed = await super().claim(capacity, running, until)
        await self._stall("claim")
        return claimed

    @override
    async def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        kept = await super().settle(claim, outcome, now)
        await self._stall("settle")
        return kept

    async def _stall(self, verb: str) -> None:
        if self.stalls == verb:
            self.stalls = ""
            self.reached.set()
            await anyio.sleep_forever()


class SilentStore(MemoryStore):
    """A store that never answers.

    Attributes:
        reached: it was asked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reached = anyio.Event()

    @override
    async def list(self, prefix: str, limit: int) -> list[str]:
        self.reached.set()
        await anyio.sleep_forever()
        raise AssertionError


class Stage:
    """A worker that was told of a table, and what may stall it."""

    def __init__(self) -> None:
        clock = HandClock()
        self.inbox, self.store = StalledInbox(clock), SilentStore()
        self.desk = Desk(WorkerOptions(drain=DRAIN), clock=clock, inbox=self.inbox)
        self.desk.catalog.create(TABLE)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """The worker runs meanwhile; then it is told to stop, and must end by itself soon."""
        await self.inbox.put([Notification(TABLE)])
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.desk.worker.run, stop)
            yield
            stop.set()
            tasks.cancel_scope.deadline = anyio.current_time() + 5
        assert not tasks.cancel_scope.cancelled_caught, "it had to be cancelled"


async def test_a_claim_that_never_returns_holds_up_a_stop_for_the_drain_and_no_longer() -> None:
    stage = Stage()
    stage.inbox.stalls = "claim"
    async with stage.running():
        await stage.inbox.reached.wait()


async def test_what_was_settled_when_the_stop_came_is_not_taken_for_lost() -> None:
    stage = Stage()
    stage.inbox.stalls = "settle"
    async with stage.running():
        await stage.inbox.reached.wait()
    assert stage.desk.book.lost == []
    assert [hint.sender for hint in stage.inbox.taken] == [""]
    assert await stage.inbox.due_at(TABLE) > stage.desk.clock.now()


async def test_what_runs_when_the_drain_ends_is_given_back() -> None:
    stage = Stage()
    stage.desk.store = stage.store
    async with stage.running():
        await stage.store.reached.wait()
    (outcome,) = stage.desk.book.outcomes
    assert isinstance(outcome, Returned)
    assert stage.desk.book.lost == []


async def test_what_was_lost_before_the_stop_came_is_looked_at_again() -> None:
    stage = Stage()
    stage.desk.store = stage.store
    async with stage.running():
        await stage.store.reached.wait()
        now = stage.desk.clock.turn(60)
        (other,) = (await stage.inbox.claim(stage.inbox.slots)).jobs
        assert await stage.inbox.settle(other, Done(now + timedelta(hours=1)), now)
    assert len(stage.desk.book.lost) == 1
    assert [hint.sender for hint in stage.inbox.taken] == ["", "lease-lost"]


WISHES = [1e9, 1e300, float("inf"), float("nan"), -1e300]
OTHER = TableIdentifier("prod", TABLE.namespace, "other")
GUESS = TableIdentifier("prod", ("a.b",), "t")
LIVE = ConcurrencyGroup("prod", "file://", Priority.LIVE)


class Unspeakable(Exception):
    """An error that can't even be told."""

    @override
    def __str__(self) -> str:
        raise RuntimeError("unspeakable")


def busy(scope: ErrorScope, wish: float | None) -> Callable[[], Exception]:
    return lambda: Transient("there", scope=scope, expected="an answer", found="none", retry_after=wish)


def refused(scope: ErrorScope = ErrorScope.TABLE) -> Exception:
    return Permanent("there", scope=scope, expected="leave", found="none")


def desk_with_table(terms: WorkerOptions | None = None) -> Desk:
    """A worker, and the table that it is told of."""
    made = Desk(terms)
    made.catalog.create(TABLE)
    return made


def the_only(outcomes: list[Outcome]) -> Outcome:
    (outcome,) = outcomes
    return outcome


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("scope", [ErrorScope.TABLE, ErrorScope.CATALOG, ErrorScope.STORE])
async def test_no_retry_after_holds_the_worker_up_for_long(scope: ErrorScope, wish: float) -> None:
    made = desk_with_table()
    made.trouble = busy(scope, wish)
    outcome = the_only(await made.hear())
    assert isinstance(outcome, Retry if scope is ErrorScope.TABLE else Returned)
    now = made.clock.now()
    assert now < outcome.at <= now + MAX_RETRY_AFTER
    assert made.book.surprises == []
    made.trouble = None
    await made.wait_until(outcome.at)
    assert isinstance(the_only(await made.work()), Done)


@pytest.mark.parametrize("wish", WISHES)
async def test_no_wish_holds_up_a_sweep_for_longer_than_five_minutes(wish: float) -> None:
    made = desk_with_table()
    trouble = busy(ErrorScope.TABLE, wish)()
    assert isinstance(trouble, Transient)
    made.catalog.error = trouble
    outcome = the_only(await made.hear(CatalogName("prod")))
    assert isinstance(outcome, Retry)
    assert outcome.at <= made.clock.now() + MAX_RETRY_AFTER


@pytest.mark.parametrize("broken", [False, True], ids=["told", "untold"])
async def test_an_error_that_nobody_can_tell_is_an_outcome_too(broken: bool) -> None:
    made = desk_with_table()
    made.book.broken = broken
    made.trouble = Unspeakable
    assert the_only(await made.hear()) == Retry(made.clock.now() + MAX_RETRY_AFTER, "Unspeakable", FailureCause.DEFECT)
    assert any(isinstance(error, Unspeakable) for error in made.book.surprises)


async def test_trouble_that_nobody_can_tell_is_an_outcome_too() -> None:
    made = desk_with_table()
    made.trouble = lambda: Permanent("there", scope=ErrorScope.TABLE, expected=Unspeakable(), found="none")  # type: ignore[arg-type]
    assert the_only(await made.hear()) == Retry(made.clock.now() + MAX_RETRY_AFTER, "Permanent", FailureCause.DEFECT)
    assert [type(error) for error in made.book.surprises] == [RuntimeError]


async def test_a_name_that_the_catalogs_paths_can_not_say_has_the_other_name_looked_at_and_no_dead_letter() -> None:
    made = Desk()
    other = TableIdentifier("prod", ("a", "b"), "t")
    made.catalog.error = UnaddressableTable("there", expected="a name", found="another", addressed_levels=("a", "b"))
    await made.inbox.put([Notification(GUESS, is_guessed=True)])
    outcome = the_only(await made.work())
    assert isinstance(outcome, Done)
    assert (outcome.forget, [ask.table for ask in outcome.result.wakeups]) == (True, [other])
    assert await made.inbox.list_after(DeadLetterFilter(status=None), 0, 9) == []


@pytest.mark.parametrize(
    ("hints", "instead", "excluded"),
    [
        ([Notification(GUESS, is_guessed=True)], (), False),
        ([Notification(GUESS, is_guessed=True)], ("a", ""), False),
        ([Notification(GUESS, is_guessed=True)], ("a", "b"), True),
        ([Notification(GUESS)], ("a", "b"), False),
        ([Notification(GUESS, is_guessed=True), Notification(GUESS)], ("a", "b"), False),
        ([Notification(GUESS), Notification(GUESS, is_guessed=True)], ("a", "b"), False),
    ],
)
async def test_a_name_without_exactly_one_other_reading_or_from_an_event_is_a_dead_letter(
    hints: list[Notification], instead: tuple[str, ...], *, excluded: bool
) -> None:
    """An acknowledged event does not end without a trace."""
    made = Desk()
    assert made.source is not None
    interest = TableFilter(exclude=("a.b.*",)) if excluded else TableFilter()
    made.source = replace(made.source, policy=replace(made.source.policy, table_filter=interest))
    made.catalog.error = UnaddressableTable("there", expected="a name", found="another", addressed_levels=instead)
    await made.inbox.put(hints)
    outcome = the_only(await made.work())
    assert isinstance(outcome, DeadLettered)
    assert outcome.reason is DeadLetterReason.PERMANENT
    assert len(await made.inbox.list_after(DeadLetterFilter(status=None), 0, 9)) == 1


async def test_one_that_has_a_file_of_ours_is_refused() -> None:
    """Its file would say for ever what it says now: an operator has to know."""
    made = desk_with_table()
    await made.hear()
    made.catalog.error = UnaddressableTable("there", expected="a name", found="another", addressed_levels=("a", "b"))
    outcome = the_only(await made.hear())
    assert isinstance(outcome, DeadLettered)
    assert outcome.reason is DeadLetterReason.PERMANENT


async def test_a_table_that_was_refused_by_mistake_heals_without_an_event() -> None:
    made = desk_with_table()
    made.trouble = refused
    outcome = the_only(await made.hear())
    assert isinstance(outcome, DeadLettered)
    assert (outcome.reason, outcome.result) == (DeadLetterReason.PERMANENT, None)
    assert outcome.recheck_at == made.clock.now() + REFRESH
    made.trouble = None
    await made.wait_until(outcome.recheck_at)
    assert isinstance(the_only(await made.work()), Done)
    assert [letter.status.value for letter in await made.inbox.list_after(DeadLetterFilter(status=None), 0, 9)] == [
        "superseded"
    ]


async def test_a_table_that_is_refused_again_waits_again() -> None:
    made = desk_with_table()
    made.trouble = refused
    await made.hear()
    for _ in range(3):
        await made.wait_until(made.clock.now() + REFRESH)
        outcome = the_only(await made.work())
        assert isinstance(outcome, DeadLettered)
        assert outcome.recheck_at == made.clock.now() + REFRESH
    assert [letter.status.value for letter in await made.inbox.list_after(DeadLetterFilter(status=None), 0, 9)] == [
        "open"
    ]


async def test_a_table_whose_budget_is_spent_is_looked_at_again() -> None:
    made = desk_with_table(WorkerOptions(retry=RetryPolicy(max_attempts=1)))
    made.trouble = busy(ErrorScope.TABLE, None)
    outcome = the_only(await made.hear())
    assert isinstance(outcome, DeadLettered)
    assert (outcome.reason, outcome.recheck_at) == (DeadLetterReason.EXHAUSTED, made.clock.now() + REFRESH)


async def test_poison_is_left_alone_for_long() -> None:
    made = desk_with_table()
    made.trouble = RuntimeError
    outcomes = await made.hear()
    while isinstance(outcomes[-1], Retry):
        await made.wait_until(outcomes[-1].at)
        outcomes += await made.work()
    assert len(outcomes) == MAX_UNEXPECTED_ERRORS
    assert isinstance(outcomes[-1], DeadLettered)
    assert (outcomes[-1].reason, outcomes[-1].recheck_at) == (DeadLetterReason.POISON, made.clock.now() + REFRESH)


def short() -> Exception:
    return OSError(errno.EMFILE, "too many open files")


@pytest.mark.parametrize(
    "error", [short, MemoryError, busy(ErrorScope.PROCESS, None)], ids=["EMFILE", "memory", "foreseen"]
)
async def test_a_shortage_of_this_process_spends_no_tables_budget(error: Callable[[], Exception]) -> None:
    made = desk_with_table(WorkerOptions(retry=RetryPolicy(max_attempts=2)))
    made.trouble = error
    outcome = the_only(await made.hear())
    for _ in range(9):
        assert isinstance(outcome, Returned)
        assert outcome.cause is FailureCause.PROCESS
        assert outcome.at <= made.clock.now() + MAX_PAUSE
        await made.wait_until(outcome.at)
        outcome = the_only(await made.work())
    assert made.book.surprises == []
    assert [(one.scope, one.name) for one in made.worker.breakers()] == [(ErrorScope.PROCESS, "")]
    made.trouble = None
    assert isinstance(outcome, Returned)
    await made.wait_until(outcome.at)
    assert isinstance(the_only(await made.work()), Done)
    assert await made.inbox.list_after(DeadLetterFilter(status=None), 0, 9) == []


async def test_a_shortage_holds_up_everything_but_one_claim_at_a_time() -> None:
    """So many tables fill no log, and no processor."""
    made = desk_with_table()
    others = [TableIdentifier("prod", TABLE.namespace, f"t{number}") for number in range(20)]
    for table in others:
        made.catalog.create(table)
    made.trouble = short
    await made.hear(TABLE, *others)
    attempts = len(made.book.outcomes)
    for _ in range(10):
        made.clock.turn(MAX_PAUSE.total_seconds())
        attempts += len(await made.work())
    assert attempts <= 21 + 10


class Hungry(MemoryStore):
    """A store that takes more memory than there is, for one table.

    Attributes:
        place: where that table lies.
    """

    place = "nowhere"

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        if key.startswith(self.place):
            raise MemoryError
        return await super().write(key, body, replacing)


async def test_a_table_that_alone_meets_a_shortage_holds_up_no_other() -> None:
    """It is tried more and more seldom, and becomes a dead letter once its budget is spent."""
    made, store = desk_with_table(WorkerOptions(retry=RetryPolicy(max_attempts=3))), Hungry()
    store.place, made.store = made.catalog.commit(TABLE).location, store
    made.catalog.create(OTHER)
    kinds = list[str]()
    await made.inbox.put([Notification(TABLE)])
    for _ in range(6):
        made.catalog.commit(OTHER)
        await made.inbox.put([Notification(OTHER)])
        found = await outcomes_for(made, 30)
        assert "done" in found
        kinds += found
    assert (kinds.count("retry"), kinds.count("dead")) == (2, 1)
    assert set(kinds) == {"done", "returned", "retry", "dead"}


@pytest.mark.parametrize("number", [errno.EIO, errno.ECONNRESET, errno.EINTR, errno.EXDEV, errno.ENOSPC])
async def test_an_error_of_the_system_that_nobody_foresaw_is_no_poison(number: int) -> None:
    made = desk_with_table()
    made.trouble = lambda: OSError(number, "no")
    outcome = the_only(await made.hear())
    for _ in range(3 * MAX_UNEXPECTED_ERRORS):
        assert isinstance(outcome, Retry)
        assert outcome.cause is FailureCause.TABLE
        await made.wait_until(outcome.at)
        outcome = the_only(await made.work())
    assert made.book.surprises == []


async def test_a_table_that_is_denied_is_looked_at_again_soon() -> None:
    """A permission may come back for many tables at once, without an event for each."""
    made = desk_with_table()
    made.trouble = lambda: ForbiddenForTable("there", scope=ErrorScope.TABLE, expected="permission", found="none")
    outcome = the_only(await made.hear())
    assert isinstance(outcome, DeadLettered)
    assert (outcome.reason, outcome.recheck_at) == (DeadLetterReason.PERMANENT, made.clock.now() + RetryPolicy().cap)
    made.trouble = None
    assert outcome.recheck_at is not None
    await made.wait_until(outcome.recheck_at)
    assert isinstance(the_only(await made.work()), Done)


class Guarded(MemoryStore):
    """A store whose policy denies to write below some places.

    Attributes:
        denied: these places; "" for all.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        super().__init__()
        self.denied: tuple[str, ...] = ()
        self._denials = PermissionTracker(seconds)

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        if key.startswith(self.denied):
            answers = [not witness.startswith(self.denied) for witness in self._denials.note_denied("write", key)]
            kind, scope = ERROR_BY_REACH[self._denials.judge("write", key, elsewhere=any(answers) if answers else None)]
            raise kind(key, scope=scope, expected="permission to write here", found="a policy")
        self._denials.note_permitted("write", key)
        return await super().write(key, body, replacing)


def guarded() -> tuple[Desk, Guarded]:
    """A worker over such a store, and two tables of which the other one is published."""
    made = desk_with_table()
    made.catalog.create(OTHER)
    store = Guarded(lambda: made.clock.now().timestamp())
    made.store = store
    return made, store


async def outcomes_for(made: Desk, seconds: float) -> list[str]:
    """What comes of all that is due within so many seconds, by its name."""
    found = list[str]()
    for _ in range(int(seconds * 2)):
        found += [outcome.label for outcome in await made.work()]
        made.clock.turn(0.5)
    return found


@pytest.mark.slow
async def test_a_store_that_denies_everything_for_a_while_gives_no_table_up() -> None:
    made, store = guarded()
    await made.hear(OTHER)
    store.denied = ("",)
    for table in (TABLE, OTHER):
        made.catalog.commit(table)
    await made.inbox.put([Notification(TABLE), Notification(OTHER)])
    assert set(await outcomes_for(made, 10 * PROPAGATION_SECONDS)) == {"returned"}
    assert (await made.inbox.stats()).oldest_due["prod"] < made.clock.now() - timedelta(seconds=9 * PROPAGATION_SECONDS)
    store.denied = ()
    assert await outcomes_for(made, 5) == ["done", "done"]
    assert await made.inbox.list_after(DeadLetterFilter(status=None), 0, 9) == []


async def test_a_table_that_alone_is_denied_becomes_a_dead_letter_and_stops_no_other() -> None:
    made, store = guarded()
    await made.hear(OTHER)
    store.denied = (made.catalog.commit(TABLE).location,)
    await made.inbox.put([Notification(TABLE)])
    found = list[str]()
    for _ in range(10):
        found += await outcomes_for(made, PROPAGATION_SECONDS / 2)
        made.catalog.commit(OTHER)
        assert isinstance(the_only(await made.hear(OTHER)), Done)
    assert made.worker.breakers() == []
    assert found[-1] == "dead"
    assert set(found[:-1]) == {"retry"}
    (letter,) = await made.inbox.list_after(DeadLetterFilter(), 0, 9)
    assert (letter.subject, letter.cause) == (TABLE, "expected permission to write here, found a policy")
    assert "prod" in (await made.inbox.stats()).oldest_due
    store.denied = ()
    assert "done" in await outcomes_for(made, RetryPolicy().cap.total_seconds())
    assert await made.inbox.list_after(DeadLetterFilter(), 0, 9) == []


async def test_a_catalogs_pauses_grow_as_a_tables_do() -> None:
    made = desk_with_table(
        WorkerOptions(retry=RetryPolicy(base=timedelta(seconds=2), cap=timedelta(seconds=13), max_attempts=2))
    )
    made.catalog.error = Transient("there", scope=ErrorScope.TABLE, expected="an answer", found="none")
    outcome = the_only(await made.hear(CatalogName("prod")))
    for pause in (1.5, 3, 6, 9.75, 9.75):
        assert isinstance(outcome, Retry)
        assert outcome.at == made.clock.now() + timedelta(seconds=pause)
        await made.wait_until(outcome.at)
        outcome = the_only(await made.work())


@pytest.mark.parametrize("base", [timedelta(days=1), timedelta(days=900_000_000)])
async def test_no_base_is_too_long_for_a_catalog(base: timedelta) -> None:
    made = desk_with_table(WorkerOptions(retry=RetryPolicy(base=base)))
    made.catalog.error = Transient("there", scope=ErrorScope.TABLE, expected="an answer", found="none")
    outcome = the_only(await made.hear(CatalogName("prod")))
    for _ in range(40):
        assert isinstance(outcome, Retry)
        assert outcome.at <= made.clock.now() + timedelta(minutes=5)
        await made.wait_until(outcome.at)
        outcome = the_only(await made.work())
    assert made.book.surprises == []


async def test_who_never_asked_a_store_tells_nothing_of_it() -> None:
    """A table that was created and not written yet has no files to look at."""
    made = desk_with_table()
    await made.hear()
    made.trouble = busy(ErrorScope.STORE, None)
    made.catalog.commit(TABLE)
    outcome = the_only(await made.hear())
    assert isinstance(outcome, Returned)
    made.trouble = None
    made.catalog.drop(TABLE)
    made.catalog.stage(TABLE)
    await made.wait_until(outcome.at)
    assert isinstance(the_only(await made.work()), Done)
    await made.work()
    assert made.inbox.slots.available_in(LIVE) == 1
    made.catalog.create(TABLE)
    assert isinstance(the_only(await made.hear()), Rescheduled)
    await made.work()
    assert made.inbox.slots.available_in(LIVE) == 2


def caused(error: Exception, cause: Exception) -> Exception:
    """An error that was raised from another one."""
    error.__cause__ = cause
    return error


def met(error: Exception, context: Exception, *, suppressed: bool = False) -> Exception:
    """An error that was raised while another one was handled."""
    error.__context__, error.__suppress_context__ = context, suppressed
    return error


def circle() -> Exception:
    """Two errors that caused each other."""
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__ = other, one
    return one


@pytest.mark.parametrize("number", SHORTAGES, ids=errno.errorcode.get)
def test_too_few_resources_are_a_shortage_wherever_a_library_hides_them(number: int) -> None:
    error = OSError(number, "short")
    assert classify_error(error) is UnexpectedErrorKind.SHORTAGE
    assert classify_error(caused(ImportError("no module"), error)) is UnexpectedErrorKind.SHORTAGE
    assert classify_error(met(KeyError("x"), error)) is UnexpectedErrorKind.SHORTAGE
    assert classify_error(ExceptionGroup("two", [ValueError("x"), error])) is UnexpectedErrorKind.SHORTAGE


@pytest.mark.parametrize("number", OTHERS, ids=errno.errorcode.get)
def test_every_other_error_of_the_system_may_pass(number: int) -> None:
    assert classify_error(OSError(number, "no")) is UnexpectedErrorKind.TRANSIENT
    assert classify_error(caused(ValueError("x"), OSError(number, "no"))) is UnexpectedErrorKind.TRANSIENT


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), UnexpectedErrorKind.SHORTAGE),
        (RuntimeError("can't start new thread"), UnexpectedErrorKind.SHORTAGE),
        (caused(ValueError("x"), MemoryError()), UnexpectedErrorKind.SHORTAGE),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), UnexpectedErrorKind.TRANSIENT),
        (TimeoutError(), UnexpectedErrorKind.TRANSIENT),
        (ConnectionResetError(), UnexpectedErrorKind.TRANSIENT),
        (InterruptedError(), UnexpectedErrorKind.TRANSIENT),
        (OSError("without a number"), UnexpectedErrorKind.TRANSIENT),
        (RuntimeError("another one"), UnexpectedErrorKind.DEFECT),
        (RuntimeError(), UnexpectedErrorKind.DEFECT),
        (KeyError("x"), UnexpectedErrorKind.DEFECT),
        (ImportError("no module"), UnexpectedErrorKind.DEFECT),
        (met(KeyError("x"), FileNotFoundError()), UnexpectedErrorKind.DEFECT),
        (met(KeyError("x"), OSError(errno.EMFILE, "short"), suppressed=True), UnexpectedErrorKind.DEFECT),
        (circle(), UnexpectedErrorKind.DEFECT),
    ],
)
def test_each_exception_has_one_meaning(error: Exception, kind: UnexpectedErrorKind) -> None:
    assert classify_error(error) is kind


def test_an_endless_chain_ends() -> None:
    error: Exception = ValueError(0)
    for number in range(1000):
        error = caused(ValueError(number), error)
    assert classify_error(error) is UnexpectedErrorKind.DEFECT


async def test_sweep_of_an_operator_reads_files_and_the_next_one_does_not() -> None:
    desk, catalog = Desk(), CatalogName("prod")
    for force in (True, False):
        await desk.inbox.put([Notification(catalog, force=force)])
        desk.clock.turn(60)
        await desk.work()
        assert desk.worker.sweeps()["prod"].is_thorough is force


@pytest.mark.parametrize(
    ("subject", "force"), [(CatalogName("prod"), False), (CatalogName("prod"), True), (TABLE, True)]
)
async def test_lost_lease_has_a_sweep_read_files_only_if_it_did(subject: JobKey, *, force: bool) -> None:
    clock = HandClock()
    inbox = FailingInbox(clock)
    desk = Desk(clock=clock, inbox=inbox)
    inbox.fenced = True
    await inbox.put([Notification(subject, force=force and subject is not TABLE)])
    await desk.work()
    assert [(one.sender, one.force) for one in inbox.taken[1:] if one.subject == subject] == [("lease-lost", force)]
