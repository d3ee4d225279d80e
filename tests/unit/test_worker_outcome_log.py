"""The log record and the metrics of each outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs
from structlog.testing import capture_logs
from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, JobKey, Table, TableIdentifier
from sfn.domain.jobs import (
    ConcurrencyGroup,
    DeadLettered,
    DeadLetterReason,
    Done,
    FailureCause,
    LeasedJob,
    Outcome,
    Priority,
    PublishCache,
    PublishedPointer,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    SweepCompleted,
    TableState,
)
from sfn.errors import ErrorScope, LocationRefused, Permanent, Transient
from sfn.inbox.model import poison_letter
from sfn.telemetry.scrape import LabelNames, Scrape, ScrapeSources
from sfn.worker.outcome_log import OutcomeLog, OutcomeMetrics
from sfn.worker.worker import MAX_UNEXPECTED_ERRORS
from tests.promises.inboxes import PLENTY, TERMS
from tests.support.clock import HandClock
from tests.support.metrics_page import Page, read
from tests.support.working import TABLE, Desk, WatchedInbox

NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)
FILES = ["file:///b", "file:///a"]
DID = PublishResult(written_keys=tuple(FILES))
FIELDS = {"event", "catalog", "table", "attempt", "outcome", "reason", "why", "seconds", "files", "version_hint"}


def claim(subject: JobKey) -> LeasedJob:
    return LeasedJob(
        subject, ConcurrencyGroup("prod", "", Priority.LIVE), fencing_token=1, version=1, attempt=3, failing_since=NOON
    )


ORDERS = claim(TableIdentifier("prod", ("sales", "eu"), "orders"))


@pytest.mark.parametrize(
    ("outcome", "level", "told"),
    [
        (Done(NOON, DID), "info", ("done", None, None, FILES)),
        (Rescheduled(NOON, "a replica", result=DID), "info", ("rescheduled", None, "a replica", FILES)),
        (Retry(NOON, "no answer"), "warning", ("retry", None, "no answer", [])),
        (Returned(NOON, "the service stops"), "warning", ("returned", None, "the service stops", [])),
        (Returned(NOON, "no answer", FailureCause.CATALOG), "debug", ("returned", None, "no answer", [])),
        (Returned(NOON, "no answer", FailureCause.STORE), "debug", ("returned", None, "no answer", [])),
        (DeadLettered(DeadLetterReason.HELD_DROP, "look"), "error", ("dead", "held-drop", "look", [])),
        (DeadLettered(DeadLetterReason.POISON, "look", DID), "error", ("dead", "poison", "look", FILES)),
    ],
)
def test_an_outcome_is_one_record(
    outcome: Outcome, level: str, told: tuple[str, str | None, str | None, list[str]]
) -> None:
    with capture_logs() as records:
        OutcomeLog().on_settled(ORDERS, outcome, 0.12345)
    (record,) = records
    assert record.items() >= {"event": "settled", "log_level": level, "attempt": 3, "seconds": 0.123}.items()
    assert (record["catalog"], record["table"]) == ("prod", "prod:sales.eu.orders")
    assert (record["outcome"], record["reason"], record["why"], record["files"]) == told


@pytest.mark.parametrize(("said", "hint"), [(None, None), ("7", "foreign")])
def test_that_a_version_hint_is_somebody_elses_is_said_with_every_look(said: str | None, hint: str | None) -> None:
    with capture_logs() as records:
        OutcomeLog().on_settled(ORDERS, Done(NOON, PublishResult(TableState(foreign_version_hint=said))), 1)
    assert [record["version_hint"] for record in records] == [hint]


@pytest.mark.parametrize(("calm", "level"), [(True, "info"), (False, "warning")])
def test_a_sweep_is_one_record_without_a_table(*, calm: bool, level: str) -> None:
    with capture_logs() as records:
        OutcomeLog().on_settled(claim(CatalogName("prod")), SweepCompleted(NOON, NOON, calm), 2)
    (record,) = records
    assert (record["catalog"], record["table"]) == ("prod", None)
    assert (record["outcome"], record["log_level"], record["why"] is None) == ("swept", level, calm)


def test_all_records_have_the_same_fields() -> None:
    with capture_logs() as records:
        OutcomeLog().on_settled(ORDERS, Done(NOON), 1)
        OutcomeLog().on_lease_lost(ORDERS)
        OutcomeLog().on_unexpected_error(ORDERS, ZeroDivisionError("by zero"))
    assert [record["event"] for record in records] == ["settled", "lease lost", "unexpected error"]
    assert all(set(record) - {"log_level", "exc_info"} == FIELDS for record in records)
    assert records[2]["why"] == "ZeroDivisionError: by zero"
    assert isinstance(records[2]["exc_info"], ZeroDivisionError)


def test_poison_is_a_record_like_any_outcome() -> None:
    with capture_logs() as records:
        OutcomeLog().on_poisoned(poison_letter(ORDERS.subject, 5, 7))
    (record,) = records
    assert record.keys() == FIELDS | {"log_level", "exc_info"}
    assert (record["event"], record["log_level"], record["attempt"]) == ("settled", "error", 7)
    assert (record["outcome"], record["reason"], record["table"]) == ("dead", "poison", "prod:sales.eu.orders")


PROD = CatalogName("prod")
SECRET = TableIdentifier("prod", ("s3cret",), "s3cret-table")
ENDED = ("outcome", "error_class")


def desk(inbox: WatchedInbox | None = None, clock: HandClock | None = None) -> Desk:
    """A worker, and the table that it is told of."""
    made = Desk(clock=clock, inbox=inbox)
    made.catalog.create(TABLE)
    return made


async def page(made: Desk) -> Page:
    """What a scrape says now."""
    watched = ScrapeSources(made.inbox.stats, {}, lambda: True, lambda: ["prod"], made.worker.breakers)
    return await read(Scrape(made.metrics.registry, watched, LabelNames(("prod", "dev"), {}), made.clock))


def trouble(scope: ErrorScope) -> Callable[[], Exception]:
    return lambda: Transient("s3cret", scope=scope, expected="an answer", found="none")


def refused() -> Exception:
    return LocationRefused("s3cret", expected="a location below a store", found="another one")


def forbidden() -> Exception:
    return Permanent("s3cret", scope=ErrorScope.TABLE, expected="leave", found="none")


async def test_a_published_table_is_counted_and_scheduled() -> None:
    made = desk()
    await made.hear()
    told = await page(made)
    assert told.of("sfn_publications_total", "catalog", *ENDED) == {("prod", "done", ""): 1}
    assert told.of("sfn_publication_duration_seconds_count", "catalog") == {("prod",): 1}
    assert told.of("sfn_pending_tables", "catalog", "state") == {("prod", "scheduled"): 1}


async def test_staleness_is_the_age_of_a_commit_whose_pointer_replaced_another() -> None:
    made = desk()
    await made.hear()
    assert (await page(made)).of("sfn_staleness_seconds_count", "catalog") == {}
    ages = []
    for _ in range(2):
        table = made.catalog.commit(TABLE)
        made.clock.turn(7)
        ages.append(made.clock.now().timestamp() - table.last_updated_ms / 1000)
        await made.hear()
    # Nothing new was committed: nothing was stale.
    await made.hear()
    told = await page(made)
    assert told.value("sfn_staleness_seconds_count", catalog="prod") == 2
    assert told.value("sfn_staleness_seconds_sum", catalog="prod") == pytest.approx(sum(ages))
    assert told.value("sfn_publications_total", catalog="prod", outcome="done", error_class="") == 4


@pytest.mark.parametrize(
    ("why", "error_class"),
    [(trouble(ErrorScope.TABLE), "table"), (RuntimeError, "defect")],
    ids=["trouble", "surprise"],
)
async def test_an_attempt_that_is_repeated_says_why(why: Callable[[], Exception], error_class: str) -> None:
    made = desk()
    made.trouble = why
    await made.hear()
    told = await page(made)
    assert told.of("sfn_publications_total", *ENDED) == {("retry", error_class): 1}
    assert told.of("sfn_pending_tables", "catalog", "state") == {("prod", "retrying"): 1}
    assert told.of("sfn_publication_duration_seconds_count", "catalog") == {}
    made.trouble = None
    await made.wait_until(await made.inbox.due_at(TABLE))
    await made.work()
    told = await page(made)
    assert told.of("sfn_publications_total", *ENDED) == {("retry", error_class): 1, ("done", ""): 1}


@pytest.mark.parametrize("scope", [ErrorScope.CATALOG, ErrorScope.STORE, ErrorScope.INBOX])
async def test_an_attempt_that_was_given_back_says_whose_trouble_it_was(scope: ErrorScope) -> None:
    made = desk()
    made.trouble = trouble(scope)
    await made.hear()
    told = await page(made)
    assert told.of("sfn_publications_total", *ENDED) == {("returned", scope.value): 1}
    opened = {} if scope is ErrorScope.INBOX else {(scope.value, "prod" if scope is ErrorScope.CATALOG else ""): 1}
    assert told.of("sfn_breaker_open", "scope", "name") == opened
    made.trouble = None
    await made.wait_until(await made.inbox.due_at(TABLE))
    await made.work()
    assert (await page(made)).of("sfn_breaker_open", "scope", "name") == {}


@pytest.mark.parametrize(("why", "reason"), [(refused, "location-refused"), (forbidden, "permanent")])
async def test_a_table_that_is_given_up_is_an_open_dead_letter(why: Callable[[], Exception], reason: str) -> None:
    made = desk()
    made.trouble = why
    await made.hear()
    told = await page(made)
    assert told.of("sfn_publications_total", *ENDED) == {("dead", reason): 1}
    assert told.of("sfn_dead_letters", "catalog", "reason") == {("prod", reason): 1}
    assert told.of("sfn_pending_tables", "catalog", "state") == {("prod", "dead"): 1}
    made.trouble = None
    await made.wait_until(await made.inbox.due_at(TABLE))
    await made.work()
    assert (await page(made)).of("sfn_dead_letters", "catalog", "reason") == {}


async def test_what_nobody_expected_is_poison_in_the_end() -> None:
    made = desk()
    made.trouble = RuntimeError
    await made.hear()
    for _ in range(MAX_UNEXPECTED_ERRORS - 1):
        await made.wait_until(await made.inbox.due_at(TABLE))
        await made.work()
    told = await page(made)
    ended = {("retry", "defect"): MAX_UNEXPECTED_ERRORS - 1, ("dead", "poison"): 1}
    assert told.of("sfn_publications_total", *ENDED) == ended


async def test_a_lease_that_ran_out_is_counted() -> None:
    made = desk()
    await made.inbox.put([Notification(TABLE)])
    await made.inbox.claim(PLENTY)
    made.clock.turn(TERMS.lease.total_seconds())
    await made.work()
    assert (await page(made)).value("sfn_lease_expirations_total") == 1
    await made.hear()
    assert (await page(made)).value("sfn_lease_expirations_total") == 1


async def test_a_table_that_nobody_comes_back_from_is_poison() -> None:
    made = desk()
    await made.inbox.put([Notification(TABLE)])
    for _ in range(TERMS.max_crashes):
        await made.inbox.claim(PLENTY)
        made.clock.turn(TERMS.lease.total_seconds())
    await made.work()
    told = await page(made)
    assert told.of("sfn_publications_total", *ENDED) == {("dead", "poison"): 1}
    assert told.of("sfn_dead_letters", "catalog", "reason") == {("prod", "poison"): 1}


class Fencing(WatchedInbox):
    """Another worker has every row when it is settled."""

    @override
    async def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        return False


async def test_an_attempt_whose_lease_was_lost_is_fenced_and_nothing_else() -> None:
    clock = HandClock()
    made = desk(Fencing(clock), clock)
    await made.hear()
    told = await page(made)
    assert told.value("sfn_lost_leases_total") == 1
    assert told.of("sfn_publications_total", *ENDED) == {}
    assert told.of("sfn_pending_tables", "catalog", "state") == {("prod", "leased"): 1}


async def test_a_sweep_is_no_publication() -> None:
    made = desk()
    made.catalog.error = Transient("s3cret", scope=ErrorScope.TABLE, expected="an answer", found="none")
    await made.hear(PROD)
    made.catalog.error = None
    await made.wait_until(await made.inbox.due_at(PROD))
    await made.work()
    told = await page(made)
    assert told.of("sfn_sweeps_total", "catalog", "outcome") == {("prod", "retry"): 1, ("prod", "swept"): 1}
    assert told.of("sfn_sweep_last_tables", "catalog") == {("prod",): 1}
    assert told.of("sfn_sweep_last_differing", "catalog") == {("prod",): 1}
    assert told.of("sfn_sweep_last_end_timestamp_seconds", "catalog") == {("prod",): made.clock.now().timestamp()}
    assert told.of("sfn_publications_total", *ENDED) == {}
    assert told.of("sfn_pending_tables", "catalog", "state") == {("prod", "due"): 1}


async def test_no_story_puts_a_name_into_the_page() -> None:
    made = desk()
    made.catalog.create_namespace("s3cret")
    made.catalog.create(SECRET, location="file:///s3cret-place")
    scopes = (ErrorScope.TABLE, ErrorScope.STORE, ErrorScope.CATALOG)
    for why in (*map(trouble, scopes), RuntimeError, refused, forbidden):
        made.trouble = why
        await made.inbox.put([Notification(SECRET, "s3cret-sender", min_metadata_location="s3cret", event_id="s3cret")])
        made.clock.turn(timedelta(hours=1).total_seconds())
        await made.work()
    made.trouble = None
    made.clock.turn(timedelta(hours=1).total_seconds())
    await made.hear(SECRET, PROD)
    told = await page(made)
    assert len(told.of("sfn_publications_total", *ENDED)) > 4
    assert "s3cret" not in told.text


NOW = HandClock().now()
BEFORE = PublishedPointer("file:///t/metadata/1.json", "u1", "file:///t", NOW)
AFTER = structs.replace(BEFORE, metadata_location="file:///t/metadata/2.json")
LEASED = LeasedJob(TABLE, ConcurrencyGroup("prod", "", Priority.LIVE), 1, 1, 1, NOW)
COMMITTED = Table("u1", "file:///t", AFTER.metadata_location, last_updated_ms=int((NOW.timestamp() - 5) * 1000))
ELSEWHERE = replace(COMMITTED, metadata_location="elsewhere")
WROTE = PublishResult(
    TableState(live=AFTER), PublishCache(COMMITTED), written_keys=("file:///t/metadata/_sfn/t_main.ver",)
)


@pytest.mark.parametrize(
    ("before", "findings", "count"),
    [
        pytest.param(BEFORE, WROTE, 1, id="a newer pointer"),
        pytest.param(BEFORE, replace(WROTE, written_keys=()), 0, id="which was there already"),
        pytest.param(None, WROTE, 0, id="the first pointer"),
        pytest.param(AFTER, WROTE, 0, id="a refresh"),
        pytest.param(BEFORE, replace(WROTE, table_state=TableState()), 0, id="a tombstone"),
        pytest.param(BEFORE, replace(WROTE, cache=PublishCache()), 0, id="no answer remembered"),
        pytest.param(BEFORE, replace(WROTE, cache=PublishCache(ELSEWHERE)), 0, id="another's"),
    ],
)
async def test_only_a_pointer_that_was_written_over_an_older_one_was_stale(
    before: PublishedPointer | None, findings: PublishResult, count: int
) -> None:
    made = desk()
    leased = replace(LEASED, table_state=TableState(live=before))
    OutcomeMetrics(made.metrics.work, made.clock).on_settled(leased, Done(NOW, findings), 0.5)
    told = await page(made)
    assert told.value("sfn_staleness_seconds_count", catalog="prod") == count
    assert told.value("sfn_staleness_seconds_sum", catalog="prod") == 5 * count


async def test_a_writers_clock_that_is_ahead_makes_nothing_stale() -> None:
    made = desk()
    leased = replace(LEASED, table_state=TableState(live=BEFORE))
    ahead = PublishCache(replace(COMMITTED, last_updated_ms=int((NOW.timestamp() + 5) * 1000)))
    OutcomeMetrics(made.metrics.work, made.clock).on_settled(leased, Done(NOW, replace(WROTE, cache=ahead)), 0.5)
    told = await page(made)
    assert told.value("sfn_staleness_seconds_count", catalog="prod") == 1
    assert told.value("sfn_staleness_seconds_sum", catalog="prod") == 0


async def test_a_stop_and_poison_have_names_too() -> None:
    made = desk()
    meter = OutcomeMetrics(made.metrics.work, made.clock)
    meter.on_settled(LEASED, Returned(NOW, "the service stops"), 0.5)
    meter.on_poisoned(poison_letter(TABLE, 5, 5))
    assert (await page(made)).of("sfn_publications_total", *ENDED) == {("returned", "stop"): 1, ("dead", "poison"): 1}
