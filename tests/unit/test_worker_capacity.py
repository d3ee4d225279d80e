"""Capacity, circuit breakers, retries, and the wake-ups after an outage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict
from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import Capacity, ConcurrencyGroup, Done, LeasedJob, Outcome, Priority
from sfn.errors import ErrorScope, Transient
from sfn.inbox import ClaimResult
from sfn.inbox.model import InboxConfig as InboxTerms
from sfn.storage import PrefixRouter
from sfn.worker.capacity import (
    FIRST_PAUSE,
    MAX_PAUSE,
    MAX_RETRY_AFTER,
    CapacityTracker,
    CircuitBreakers,
    RetryPolicy,
    bounded_retry_after,
)
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.worker import Worker, WorkerOptions
from tests.support.clock import EvenChance, HandClock
from tests.support.memory_inbox import MemoryInbox
from tests.support.working import Book

NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LANE = ConcurrencyGroup("prod", "s3://lake", Priority.LIVE)
MANY = 32
OF_TWO = MANY - MANY // 4
"""What one of two catalogs may take."""

TABLES = [TableIdentifier("prod", (), name) for name in "abc"]
OUTAGE = 12
"""Questions that a catalog leaves unanswered."""
_SLEEP = 0.003
"""Seconds that a sleep takes which nothing interrupts, however long it was meant to be."""


def lanes(*seen: ConcurrencyGroup) -> CapacityTracker:
    """Lanes of which each has had a claim."""
    made = CapacityTracker(MANY)
    for lane in seen or (LANE,):
        made.job_started(lane)
        made.job_ended(lane)
    return made


def free(made: CapacityTracker, lane: ConcurrencyGroup = LANE, at: datetime = NOW) -> int:
    return made.capacity(at).available_in(lane)


@pytest.mark.parametrize("wish", [1e9, 1e300, float("inf")])
@pytest.mark.parametrize("scope", [ErrorScope.CATALOG, ErrorScope.STORE])
def test_no_wish_closes_a_lane_for_more_than_five_minutes(scope: ErrorScope, wish: float) -> None:
    made = lanes()
    assert made.record_failure(LANE, scope, NOW, wish).open_until == NOW + timedelta(seconds=300)
    assert free(made, at=NOW + timedelta(seconds=300)) == 1


@pytest.mark.parametrize("wish", [float("nan"), -1e300, None])
def test_what_is_no_wish_is_none(wish: float | None) -> None:
    assert lanes().record_failure(LANE, ErrorScope.CATALOG, NOW, wish).open_until == NOW + FIRST_PAUSE


def test_what_was_in_flight_when_a_breaker_opened_does_not_close_it() -> None:
    made = lanes()
    until = made.record_failure(LANE, ErrorScope.CATALOG, NOW, 60).open_until
    for _ in range(20):
        made.record_success(LANE, NOW + SECOND, store_used=True)
    assert free(made, at=NOW + SECOND) == 0
    assert made.reopens_at(NOW + SECOND) == until
    assert free(made, at=until) == 1


def test_half_open_each_success_doubles_what_may_run() -> None:
    made = lanes()
    at = made.record_failure(LANE, ErrorScope.STORE, NOW, None).open_until
    widths = []
    for _ in range(5):
        widths.append(free(made, at=at))
        made.record_success(LANE, at, store_used=True)
    assert widths == [1, 2, 4, 8, 16]
    assert free(made, at=at) == MANY - 1


def test_of_two_wishes_the_later_is_kept() -> None:
    made = lanes()
    assert made.record_failure(LANE, ErrorScope.CATALOG, NOW, 10).open_until == NOW + 10 * SECOND
    assert made.record_failure(LANE, ErrorScope.CATALOG, NOW + SECOND, 60).open_until == NOW + 61 * SECOND
    assert made.record_failure(LANE, ErrorScope.CATALOG, NOW + SECOND, 5).open_until == NOW + 61 * SECOND
    assert made.reopens_at(NOW) == NOW + 61 * SECOND


def test_troubles_at_the_same_time_are_one() -> None:
    made = lanes()
    for _ in range(20):
        assert made.record_failure(LANE, ErrorScope.CATALOG, NOW, None).open_until == NOW + FIRST_PAUSE


def test_each_trouble_after_a_probe_doubles_the_pause() -> None:
    made, at = lanes(), NOW
    for pause in (FIRST_PAUSE, min(2 * FIRST_PAUSE, MAX_PAUSE), min(4 * FIRST_PAUSE, MAX_PAUSE)):
        before, at = at, made.record_failure(LANE, ErrorScope.STORE, at, None).open_until
        assert at == before + pause


def test_a_breaker_is_of_its_own_catalog_or_store() -> None:
    same_store, same_catalog = (
        ConcurrencyGroup("other", "s3://lake", Priority.BACKGROUND),
        ConcurrencyGroup("prod", "s3://else", Priority.BACKGROUND),
    )
    made = lanes(LANE, same_store, same_catalog)
    made.record_failure(LANE, ErrorScope.STORE, NOW, None)
    assert [free(made, lane) for lane in (LANE, same_store, same_catalog)] == [0, 0, OF_TWO]
    made = lanes(LANE, same_store, same_catalog)
    made.record_failure(LANE, ErrorScope.CATALOG, NOW, None)
    assert [free(made, lane) for lane in (LANE, same_store, same_catalog)] == [0, OF_TWO, 0]


def test_a_store_that_is_not_known_yet_is_its_catalogs_own() -> None:
    """What one bucket refuses says nothing of the first publishes of other catalogs."""
    unknown, others = ConcurrencyGroup("prod", "", Priority.LIVE), ConcurrencyGroup("other", "", Priority.LIVE)
    made = lanes(unknown, others)
    made.record_failure(unknown, ErrorScope.STORE, NOW, None)
    assert free(made, unknown) == 0
    assert free(made, others) == OF_TWO


def test_a_catalog_and_a_store_may_have_the_same_name() -> None:
    made = lanes(LANE, ConcurrencyGroup("s3://lake", "", Priority.LIVE))
    made.record_failure(ConcurrencyGroup("s3://lake", "", Priority.LIVE), ErrorScope.STORE, NOW, None)
    assert free(made) == OF_TWO


def test_a_sweep_has_no_store() -> None:
    sweep, first = ConcurrencyGroup("prod", "", Priority.SWEEP), ConcurrencyGroup("prod", "", Priority.LIVE)
    made = lanes(sweep, first)
    at = made.record_failure(first, ErrorScope.STORE, NOW, None).open_until
    assert free(made, sweep) == MANY // 4
    made.record_success(sweep, at, store_used=True)
    assert free(made, first, at) == 1


def test_who_never_asked_the_store_tells_nothing_of_it() -> None:
    made = lanes()
    at = max(made.record_failure(LANE, scope, NOW, None).open_until for scope in (ErrorScope.STORE, ErrorScope.CATALOG))
    for _ in range(10):
        made.record_success(LANE, at, store_used=False)
    assert free(made, at=at) == 1
    made.record_success(LANE, at, store_used=True)
    assert free(made, at=at) == 2


def test_a_catalog_that_hangs_leaves_every_other_its_share() -> None:
    others = [ConcurrencyGroup(f"c{number}", "s3://lake", Priority.LIVE) for number in range(3)]
    made = lanes(LANE, *others)
    while free(made):
        made.job_started(LANE)
    assert [free(made, lane) for lane in others] == [MANY // 8] * 3
    assert made.capacity(NOW).total == 3 * (MANY // 8)
    for _ in range(MANY // 8):
        made.job_started(others[0])
    assert [free(made, lane) for lane in (LANE, *others)] == [0, 0, MANY // 8, MANY // 8]


def test_a_catalog_alone_may_take_all_but_the_slot_of_the_chores() -> None:
    made = lanes()
    while free(made):
        made.job_started(LANE)
    assert (made.capacity(NOW).total, free(made, replace(LANE, priority=Priority.BACKGROUND))) == (1, 1)


def test_short_lived_tables_leave_a_slot_to_others_that_were_told_of() -> None:
    made, first = lanes(), replace(LANE, priority=Priority.SHORT_LIVED)
    while free(made, first):
        made.job_started(first)
    assert [free(made, lane) for lane in (first, LANE, replace(LANE, priority=Priority.BACKGROUND))] == [0, 1, 2]
    made = CapacityTracker(1)
    assert free(made, first) == 1


def test_a_lane_that_had_no_claim_yet_has_the_breakers_of_its_rows_other_lanes() -> None:
    made, first = lanes(), replace(LANE, priority=Priority.SHORT_LIVED)
    until = made.record_failure(LANE, ErrorScope.STORE, NOW, None).open_until
    assert [free(made, first, at) for at in (NOW, until)] == [0, 1]


def test_a_sweep_does_not_take_the_slot_that_tables_probe_with() -> None:
    sweep = ConcurrencyGroup("prod", "", Priority.SWEEP)
    made = lanes(LANE, sweep)
    made.job_started(sweep)
    until = made.record_failure(LANE, ErrorScope.CATALOG, NOW, None).open_until
    assert (free(made, at=NOW), free(made, at=until), free(made, sweep, until)) == (0, 1, 0)
    made.job_started(LANE)
    assert free(made, at=until) == 0


def test_a_breaker_says_since_when_nothing_succeeds_and_why() -> None:
    made = lanes()
    until = made.record_failure(LANE, ErrorScope.CATALOG, NOW, None, "no answer").open_until
    made.record_failure(LANE, ErrorScope.CATALOG, until, None, "no route")
    (breaker,) = made.unclosed_breakers(until)
    assert (breaker.failing_since, breaker.error) == (NOW, "no route")


def test_what_fails_anew_is_away_since_then() -> None:
    made = lanes()
    until = made.record_failure(LANE, ErrorScope.CATALOG, NOW, None, "no answer").open_until
    (back,) = made.record_success(LANE, until, store_used=False)
    assert (back.name, back.failing_since) == ("prod", NOW)
    assert made.record_success(LANE, until, store_used=False) == []
    assert (
        made.record_failure(LANE, ErrorScope.CATALOG, until + SECOND, None, "no route").failing_since == until + SECOND
    )


def test_a_shortage_of_the_process_holds_up_every_lane() -> None:
    others = [
        LANE,
        ConcurrencyGroup("other", "s3://else", Priority.BACKGROUND),
        ConcurrencyGroup("other", "", Priority.SWEEP),
    ]
    made = lanes(*others)
    at = made.record_failure(LANE, ErrorScope.PROCESS, NOW, None).open_until
    assert [free(made, lane) for lane in others] == [0, 0, 0]
    assert [free(made, lane, at) for lane in others] == [1, 1, 1]
    made.job_started(LANE)
    assert [free(made, lane, at) for lane in others] == [0, 0, 1]
    made.job_ended(LANE)
    made.record_success(others[1], at, store_used=False)
    assert free(made, at=at) == 2


TABLE = TableIdentifier("prod", ("sales",), "orders")
FILE_LANE = ConcurrencyGroup("prod", "file:///lake", Priority.LIVE)


class Away:
    """Outages of one worker, with its clock."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.outages = CircuitBreakers(CapacityTracker(32), self.clock)

    def fails(self, scope: ErrorScope = ErrorScope.CATALOG, found: str = "refused") -> None:
        """One attempt ends in trouble; the next may begin."""
        trouble = Transient("it", scope=scope, expected="an answer", found=found)
        again = self.outages.record_failure(FILE_LANE, trouble)
        self.clock.turn((again - self.clock.now()).total_seconds())

    def works(self) -> None:
        """One attempt succeeds."""
        self.outages.record_success(FILE_LANE, TABLE, store_used=True)


def told(records: list[EventDict]) -> list[tuple[object, ...]]:
    return [
        (record["log_level"], record["event"], record.get("catalog", record.get("store", ""))) for record in records
    ]


def test_an_outage_is_told_when_it_begins_and_when_it_ends() -> None:
    away = Away()
    began = away.clock.now()
    with capture_logs() as records:
        for _ in range(20):
            away.fails()
        away.works()
        away.works()
    assert told(records) == [("warning", "catalog unreachable", "prod"), ("info", "catalog recovered", "prod")]
    assert records[0]["error"] == "it: expected an answer, found refused"
    assert records[0]["since"] == began.isoformat()
    assert records[1]["seconds"] == 19.5


def test_what_lasts_is_told_once_a_minute_with_how_often_it_was_tried() -> None:
    away = Away()
    with capture_logs() as records:
        for _ in range(130):
            away.fails()
    assert told(records) == [("warning", "catalog unreachable", "prod")] * 3
    assert [record["suppressed"] for record in records] == [0, 60, 59]


def test_what_comes_and_goes_does_not_fill_the_log() -> None:
    away = Away()
    with capture_logs() as records:
        for _ in range(20):
            away.fails()
            away.works()
    assert told(records) == [("warning", "catalog unreachable", "prod"), ("info", "catalog recovered", "prod")]


def test_a_store_does_not_hide_behind_its_catalog() -> None:
    away = Away()
    with capture_logs() as records:
        away.fails(ErrorScope.CATALOG)
        away.fails(ErrorScope.STORE)
        away.works()
    assert told(records) == [
        ("warning", "catalog unreachable", "prod"),
        ("warning", "store unreachable", "file:///lake"),
        ("info", "catalog recovered", "prod"),
        ("info", "store recovered", "file:///lake"),
    ]


def test_a_shortage_of_the_process_is_told_once_a_minute_and_when_it_is_over() -> None:
    away = Away()
    with capture_logs() as records:
        for _ in range(30):
            away.fails(ErrorScope.PROCESS)
        away.works()
    assert told(records) == [("warning", "process short of resources", ""), ("info", "process recovered", "")]


def test_a_shortage_is_one_tables_own_where_others_were_served_since_its_last() -> None:
    away = Away()
    shortage = Transient("it", scope=ErrorScope.PROCESS, expected="memory", found="none")
    assert away.outages.narrow_shortage(TABLE, shortage).scope is ErrorScope.PROCESS
    away.clock.turn(1)
    assert away.outages.narrow_shortage(TABLE, shortage).scope is ErrorScope.PROCESS
    away.works()
    assert away.outages.narrow_shortage(TABLE, shortage).scope is ErrorScope.PROCESS
    away.clock.turn(1)
    away.outages.record_success(FILE_LANE, TableIdentifier("prod", ("sales",), "other"), store_used=True)
    away.clock.turn(1)
    assert away.outages.narrow_shortage(TABLE, shortage).scope is ErrorScope.TABLE


@pytest.mark.parametrize(
    ("wish", "seconds"),
    [
        (None, 0),
        (0.0, 0),
        (-5.0, 0),
        (float("nan"), 0),
        (0.25, 0.25),
        (300.0, 300),
        (301.0, 300),
        (1e9, 300),
        (1e300, 300),
        (float("inf"), 300),
    ],
)
def test_a_wish_is_heeded_for_five_minutes_at_the_longest(wish: float | None, seconds: float) -> None:
    assert bounded_retry_after(wish) == timedelta(seconds=seconds)
    assert timedelta(seconds=300) == MAX_RETRY_AFTER


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 2), (2, 4), (3, 8), (4, 13), (5, 13), (100, 13), (10**6, 13), (10**400, 13)]
)
def test_each_pause_is_twice_as_long_until_the_longest(attempt: int, seconds: float) -> None:
    policy = RetryPolicy(base=timedelta(seconds=2), cap=timedelta(seconds=13))
    assert policy.pause(attempt, jitter=0) == timedelta(seconds=seconds) / 2
    assert policy.pause(attempt, jitter=0.5) == timedelta(seconds=seconds) * 0.75


@pytest.mark.parametrize("attempt", [1, 30, 10**6])
@pytest.mark.parametrize(
    "base", [timedelta(microseconds=1), timedelta(days=1), timedelta(days=900_000_000), timedelta.max]
)
def test_no_base_is_too_long_or_too_short(base: timedelta, attempt: int) -> None:
    assert RetryPolicy(base=base).pause(attempt, jitter=0.99) <= timedelta(minutes=5)


def test_the_longest_pause_may_be_as_long_as_can_be() -> None:
    policy = RetryPolicy(base=timedelta(days=1), cap=timedelta.max)
    assert policy.pause(10**6, jitter=0) == timedelta.max / 2


def test_by_default_it_is_the_age_that_ends_the_attempts() -> None:
    policy, since, attempt = RetryPolicy(), NOW, 1
    now = since
    while (following := policy.next_attempt(attempt, since, now, jitter=0.5)) is not None:
        now, attempt = following, attempt + 1
    assert now - since >= policy.budget
    assert attempt < policy.max_attempts


def test_without_a_budget_left_there_is_no_next_attempt() -> None:
    policy = RetryPolicy(budget=timedelta(hours=1), max_attempts=3)
    assert policy.next_attempt(2, NOW, NOW, jitter=0) == NOW + timedelta(seconds=1)
    assert policy.next_attempt(3, NOW, NOW, jitter=0) is None
    assert policy.next_attempt(1, NOW - timedelta(hours=1), NOW, jitter=0) is None


@dataclass(slots=True)
class Outage:
    """A catalog that cannot be reached at first; then it turns out that it is not configured."""

    left: int = OUTAGE

    async def get(self, catalog: str) -> ConnectedCatalog | None:
        await anyio.lowlevel.checkpoint()
        if self.left:
            self.left -= 1
            raise Transient(catalog, scope=ErrorScope.CATALOG, expected="an answer", found="none")
        return None

    def is_retired(self, catalog: str) -> bool:
        return False


class Journal(Book):
    """What came of the tables in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.done: set[object] = set()

    @override
    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        if isinstance(outcome, Done):
            self.done.add(claim.subject)

    @override
    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        raise AssertionError from error


class SlowInbox(MemoryInbox):
    """Its claims take time, and nothing else does but sleep."""

    def __init__(self, clock: HandClock, claims_take: timedelta) -> None:
        super().__init__(InboxTerms(), clock)
        self._hands, self._claims_take = clock, claims_take

    @override
    async def claim(
        self, capacity: Capacity, running: Sequence[LeasedJob] = (), until: datetime | None = None
    ) -> ClaimResult:
        number = self.runner.signal.number
        claimed = await super().claim(capacity, running)
        await anyio.lowlevel.checkpoint()
        self._hands.at += self._claims_take
        if until is not None and not claimed.has_news:
            due = min(at for at in (until, claimed.next_due) if at is not None)
            with anyio.move_on_after(_SLEEP) as sleep:
                await self.runner.signal.wait_beyond(number)
            if sleep.cancelled_caught:
                self._hands.at = max(self._hands.at, due)
        return claimed

    @override
    async def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        kept = await super().settle(claim, outcome, now)
        # Whoever waits for the bell gets its turns before this one is back.
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        return kept


@pytest.mark.parametrize("concurrency", [1, 2, 8])
@pytest.mark.parametrize("share", [0, 0.1, 0.3, 0.6, 1.1, 2.3])
async def test_after_an_outage_every_row_is_looked_at(share: float, concurrency: int) -> None:
    clock, journal = HandClock(), Journal()
    inbox = SlowInbox(clock, FIRST_PAUSE * share)
    worker = Worker(
        inbox,
        Outage(),
        PrefixRouter({}),
        clock=clock,
        chance=EvenChance(),
        sink=journal,
        options=WorkerOptions(concurrency=concurrency),
    )
    await inbox.put([Notification(table) for table in TABLES])
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run, stop)
        with anyio.move_on_after(30):
            while journal.done != set(TABLES):  # noqa: ASYNC110 - the journal has no event for it
                await anyio.sleep(0.001)
        stop.set()
    assert journal.done == set(TABLES)
