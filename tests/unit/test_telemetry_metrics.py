"""What `/metrics` exposes: these names with these labels, from the start, and nothing that others make up."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser

from sfn.domain.events import PutResult
from sfn.domain.jobs import DeadLetterReason, SweepCompleted
from sfn.errors import ErrorScope
from sfn.inbox import STAT_STATES, MissingTableStats, QueueStats
from sfn.inbox.model import FoldResult
from sfn.telemetry import scrape
from sfn.telemetry.metrics import REASONS, UNDECODABLE, Metrics
from sfn.worker.capacity import CircuitBreakerState
from tests.support.clock import HandClock
from tests.support.metrics_page import NOTHING, Standing, overdue, read

EXPOSED = {
    "process_cpu_seconds_total": (),
    "process_max_fds": (),
    "process_open_fds": (),
    "process_resident_memory_bytes": (),
    "process_start_time_seconds": (),
    "process_virtual_memory_bytes": (),
    "sfn_breaker_open": ("name", "scope"),
    "sfn_drop_limit_reached": ("catalog",),
    "sfn_build_info": ("python", "version"),
    "sfn_bodies_refused_total": ("of",),
    "sfn_catalog_reached": ("catalog",),
    "sfn_dead_letters": ("catalog", "reason"),
    "sfn_events_received_total": ("format", "result"),
    "sfn_facade_requests_total": ("status",),
    "sfn_lost_leases_total": (),
    "sfn_gateway_requests_total": ("answer", "gateway", "kind"),
    "sfn_gateway_seconds_bucket": ("gateway", "kind", "le"),
    "sfn_gateway_seconds_count": ("gateway", "kind"),
    "sfn_gateway_seconds_sum": ("gateway", "kind"),
    "sfn_gateway_unmapped_total": ("gateway",),
    "sfn_gateway_unrecorded_total": ("gateway",),
    "sfn_tables_on_hold": ("catalog",),
    "sfn_inbox_answers": (),
    "sfn_inbox_bytes": ("file",),
    "sfn_ingest_batch_events_bucket": ("le",),
    "sfn_ingest_batch_events_count": (),
    "sfn_ingest_batch_events_sum": (),
    "sfn_ingest_commit_seconds_bucket": ("le",),
    "sfn_ingest_commit_seconds_count": (),
    "sfn_ingest_commit_seconds_sum": (),
    "sfn_late_tables": ("catalog",),
    "sfn_lease_expirations_total": (),
    "sfn_missing_tables": ("catalog",),
    "sfn_oldest_missing_age_seconds": ("catalog",),
    "sfn_oldest_pending_age_seconds": ("catalog",),
    "sfn_oldest_waiting_age_seconds": ("queue",),
    "sfn_open_intents": ("catalog",),
    "sfn_pending_tables": ("catalog", "state"),
    "sfn_pull_connected": ("source",),
    "sfn_pull_dropped_total": ("source",),
    "sfn_publication_duration_seconds_bucket": ("catalog", "le"),
    "sfn_publication_duration_seconds_count": ("catalog",),
    "sfn_publication_duration_seconds_sum": ("catalog",),
    "sfn_publications_total": ("catalog", "error_class", "outcome"),
    "sfn_ready": (),
    "sfn_requests_refused_total": ("status",),
    "sfn_staleness_seconds_bucket": ("catalog", "le"),
    "sfn_staleness_seconds_count": ("catalog",),
    "sfn_staleness_seconds_sum": ("catalog",),
    "sfn_applied_total": (),
    "sfn_coalesced_total": (),
    "sfn_sweep_interval_seconds": ("catalog",),
    "sfn_sweep_last_differing": ("catalog",),
    "sfn_sweep_last_duration_seconds": ("catalog",),
    "sfn_sweep_last_end_timestamp_seconds": ("catalog",),
    "sfn_sweep_last_tables": ("catalog",),
    "sfn_sweep_last_unlisted_namespaces": ("catalog",),
    "sfn_sweeps_total": ("catalog", "outcome"),
    "sfn_waiting_messages": ("queue",),
}


@dataclass(frozen=True)
class Committed:
    """One transaction."""

    messages: int
    seconds: float


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(
        version="1.2.3", catalogs=["prod", "dev"], event_formats=["own"], sources=["events"], gateways=["prod"]
    )


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def standing(tmp_path: Path) -> Standing:
    return Standing(files={"db": tmp_path / "inbox.db", "wal": tmp_path / "inbox.db-wal"})


def open_breaker(scope: ErrorScope, name: str, slots: int = 0) -> CircuitBreakerState:
    return CircuitBreakerState(
        scope, name, datetime(2026, 1, 1, tzinfo=UTC), slots, datetime(2026, 1, 1, tzinfo=UTC), "gone"
    )


async def test_the_names_and_their_labels_are_these(metrics: Metrics, clock: HandClock, standing: Standing) -> None:
    page = await read(standing.scrape(metrics, clock))
    exposed: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for family in page.families:
        for sample in family.samples:
            exposed[sample.name].add(tuple(sorted(sample.labels)))
    assert exposed == {name: {labels} for name, labels in EXPOSED.items()}


async def test_each_metric_says_what_it_is(metrics: Metrics, clock: HandClock, standing: Standing) -> None:
    for family in (await read(standing.scrape(metrics, clock))).families:
        assert family.documentation
        assert family.type in {"counter", "gauge", "histogram"}


async def test_every_series_of_a_configured_catalog_is_there_from_the_start(
    metrics: Metrics, clock: HandClock, standing: Standing
) -> None:
    page = await read(standing.scrape(metrics, clock))
    for catalog in ("prod", "dev"):
        here = [
            sample
            for family in page.families
            for sample in family.samples
            if sample.labels.get("catalog") == catalog or sample.labels.get("name") == catalog
        ]
        assert {sample.name for sample in here} == {
            name for name, labels in EXPOSED.items() if {"catalog", "name"} & set(labels)
        }
        assert {sample.value for sample in here if sample.name != "sfn_sweep_interval_seconds"} == {0}
        for state in STAT_STATES:
            assert page.value("sfn_pending_tables", catalog=catalog, state=state) == 0
        for reason in REASONS:
            assert page.value("sfn_dead_letters", catalog=catalog, reason=reason) == 0
    assert page.value("sfn_dead_letters", catalog="", reason="undecodable") == 0
    assert page.value("sfn_breaker_open", scope="store", name="lake") == 0


async def test_every_series_of_a_configured_source_is_there_from_the_start(
    metrics: Metrics, clock: HandClock, standing: Standing
) -> None:
    page = await read(standing.scrape(metrics, clock))
    for name, labels in EXPOSED.items():
        assert (page.value(name, source="events") == 0) == ("source" in labels)


def test_the_labels_are_the_inboxs_own_words() -> None:
    assert scrape.STATES == STAT_STATES
    assert {*REASONS, UNDECODABLE} == {reason.value for reason in DeadLetterReason}


async def test_the_other_format_is_well_formed_too(metrics: Metrics, clock: HandClock, standing: Standing) -> None:
    written = await standing.scrape(metrics, clock)("application/openmetrics-text; version=1.0.0")
    families = list(parser.text_string_to_metric_families(written.content.decode()))  # type: ignore[no-untyped-call]
    assert {sample.name for family in families for sample in family.samples} == set(EXPOSED)


async def test_events_are_counted_by_what_came_of_them(metrics: Metrics, clock: HandClock) -> None:
    events = metrics.events
    events.count_ingested("own", PutResult(3, 1), 4)
    events.count_ingested("own", PutResult(1, 0), 0)
    events.count_ingested("another", PutResult(1, 0), 0, 5)
    events.count_ingested(None, PutResult(0, 0), 0)
    for status in (401, 422, 422, 503, 500):
        events.count_rejected(status)
    events.count_rejected(404, "another")
    page = await read(Standing().scrape(metrics, clock))
    assert page.of("sfn_events_received_total", "format", "result") == {
        ("own", "accepted"): 4,
        ("own", "duplicate"): 1,
        ("own", "ignored"): 4,
        ("another", "accepted"): 1,
        ("another", "unmapped"): 5,
        ("none", "refused"): 3,
        ("none", "unavailable"): 2,
        ("another", "refused"): 1,
    }
    assert page.of("sfn_requests_refused_total", "status") == {("401",): 1, ("404",): 1, ("422",): 2}


async def test_only_transactions_that_took_something_in_say_how_long_senders_wait(
    metrics: Metrics, clock: HandClock
) -> None:
    for transaction in (Committed(0, 0.0001), Committed(7, 0.25), Committed(1000, 0.5), Committed(0, 30)):
        metrics.commits.observe(transaction)
    page = await read(Standing().scrape(metrics, clock))
    assert page.value("sfn_ingest_commit_seconds_count") == 2
    assert page.value("sfn_ingest_commit_seconds_sum") == 0.75
    assert page.value("sfn_ingest_batch_events_bucket", le="10.0") == 1
    assert page.value("sfn_ingest_batch_events_sum") == 1007


async def test_folds_count_what_was_applied_and_what_one_check_covers(metrics: Metrics, clock: HandClock) -> None:
    for fold in (FoldResult(5, 2), FoldResult(1, 0), FoldResult(500, 499, has_more=True)):
        metrics.commits.observe_fold(fold)
    page = await read(Standing().scrape(metrics, clock))
    assert (page.value("sfn_applied_total"), page.value("sfn_coalesced_total")) == (506, 501)


async def test_messages_that_wait_are_counted_by_queue(metrics: Metrics, clock: HandClock) -> None:
    idle = await read(Standing().scrape(metrics, clock))
    for name in ("sfn_waiting_messages", "sfn_oldest_waiting_age_seconds"):
        assert [idle.value(name, queue=queue) for queue in ("disk", "fold")] == [0, 0]
    now = clock.now()
    figures = replace(
        NOTHING,
        queued=3,
        oldest_queued=now - timedelta(seconds=0.5),
        unapplied=40,
        oldest_unapplied=now - timedelta(seconds=2),
    )
    page = await read(Standing(figures).scrape(metrics, clock))
    assert page.of("sfn_waiting_messages", "queue") == {("disk",): 3, ("fold",): 40}
    assert page.of("sfn_oldest_waiting_age_seconds", "queue") == {("disk",): 0.5, ("fold",): 2}


async def test_what_belongs_to_no_configured_catalog_shares_a_label(metrics: Metrics, clock: HandClock) -> None:
    now = clock.now()
    for catalog in ("was", "had been"):
        metrics.work.count_attempt(catalog, "dead", "permanent")
        metrics.work.observe_duration(catalog, 1.0)
        metrics.work.observe_staleness(catalog, 1.0)
        metrics.work.sweeps.count_attempt(catalog, "dead")
        metrics.work.sweeps.set_completed(catalog, SweepCompleted(now, now, within_limit=True, tables=5), now, 1.0)
    figures = QueueStats(
        tables={("was", "dead"): 2, ("had been", "dead"): 3, ("was", "due"): 1},
        oldest_due={"was": now - timedelta(seconds=40), "had been": now - timedelta(seconds=50)},
        late={"was": 1, "had been": 2},
        dead_letters={("was", "permanent"): 2, ("had been", "permanent"): 3, ("", "undecodable"): 7},
        limit_reached=frozenset({"was"}),
        open_intents={"was": 2, "had been": 1},
        missing={"was": MissingTableStats(2, now - timedelta(seconds=30)), "had been": MissingTableStats(1, now)},
    )
    breakers = [open_breaker(ErrorScope.CATALOG, "was")]
    page = await read(Standing(figures, reached=["was"], breakers=breakers).scrape(metrics, clock))
    assert page.of("sfn_pending_tables", "catalog", "state") == {("", "dead"): 5, ("", "due"): 1}
    assert page.of("sfn_oldest_pending_age_seconds", "catalog") == {("",): 50}
    assert page.of("sfn_late_tables", "catalog") == {("",): 3}
    assert page.of("sfn_dead_letters", "catalog", "reason") == {("", "permanent"): 5, ("", "undecodable"): 7}
    assert page.of("sfn_open_intents", "catalog") == {("",): 3}
    assert page.of("sfn_missing_tables", "catalog") == {("",): 3}
    assert page.of("sfn_oldest_missing_age_seconds", "catalog") == {("",): 30}
    assert page.of("sfn_publications_total", "catalog") == {("",): 2}
    assert page.of("sfn_sweep_last_tables", "catalog") == {("",): 5}
    assert page.of("sfn_breaker_open", "scope", "name") == {("catalog", ""): 1}
    assert (page.of("sfn_drop_limit_reached", "catalog"), page.of("sfn_catalog_reached", "catalog")) == ({}, {})
    assert "had been" not in page.text
    assert '"was"' not in page.text


async def test_the_inboxs_figures_are_told_as_they_are(metrics: Metrics, clock: HandClock) -> None:
    figures = QueueStats(
        tables={("prod", "due"): 4, ("prod", "held"): 11, ("dev", "retrying"): 1},
        oldest_due={"prod": clock.now() - timedelta(minutes=2)},
        late={"prod": 3},
        dead_letters={("prod", "held-drop"): 11, ("dev", "foreign-file"): 1},
        limit_reached=frozenset({"prod"}),
        open_intents={"dev": 5},
        missing={"prod": MissingTableStats(12, clock.now() - timedelta(minutes=3))},
    )
    page = await read(Standing(figures, reached=["prod"], ready=False).scrape(metrics, clock))
    assert page.of("sfn_pending_tables", "catalog", "state") == dict(figures.tables)
    assert page.of("sfn_dead_letters", "catalog", "reason") == dict(figures.dead_letters)
    assert page.of("sfn_oldest_pending_age_seconds", "catalog") == {("prod",): 120}
    assert page.of("sfn_late_tables", "catalog") == {("prod",): 3}
    assert page.of("sfn_tables_on_hold", "catalog") == {("prod",): 11}
    assert page.of("sfn_drop_limit_reached", "catalog") == {("prod",): 1}
    assert page.of("sfn_open_intents", "catalog") == {("dev",): 5}
    assert page.of("sfn_missing_tables", "catalog") == {("prod",): 12}
    assert page.of("sfn_oldest_missing_age_seconds", "catalog") == {("prod",): 180}
    assert page.of("sfn_catalog_reached", "catalog") == {("prod",): 1}
    assert (page.value("sfn_ready"), page.value("sfn_inbox_answers")) == (0, 1)


async def test_a_clock_that_was_set_back_makes_no_age_negative(metrics: Metrics, clock: HandClock) -> None:
    page = await read(Standing(overdue(clock.now() + timedelta(hours=1))).scrape(metrics, clock))
    assert page.value("sfn_oldest_pending_age_seconds", catalog="prod") == 0


async def test_a_breaker_is_open_until_something_succeeded(metrics: Metrics, clock: HandClock) -> None:
    breakers = [
        open_breaker(ErrorScope.CATALOG, "prod"),
        open_breaker(ErrorScope.CATALOG, "dev", slots=2),
        open_breaker(ErrorScope.STORE, "file:///warehouse", slots=1),
        # Whose store is not known yet, and one that was configured once.
        open_breaker(ErrorScope.STORE, "prod"),
        open_breaker(ErrorScope.STORE, "s3://secret-bucket"),
        open_breaker(ErrorScope.PROCESS, ""),
    ]
    page = await read(Standing(breakers=breakers).scrape(metrics, clock))
    assert page.of("sfn_breaker_open", "scope", "name") == {
        ("process", ""): 1,
        ("catalog", "prod"): 1,
        ("store", "lake"): 1,
        ("store", ""): 1,
    }
    assert page.value("sfn_breaker_open", scope="catalog", name="dev") == 0


async def test_a_lagging_sweep_shows(metrics: Metrics, clock: HandClock) -> None:
    sweeps, now = metrics.work.sweeps, clock.now()
    sweeps.count_attempt("prod", "swept")
    sweeps.set_completed(
        "prod",
        SweepCompleted(now, now, within_limit=True, tables=1000, differing=3, unlisted_namespaces=frozenset("ab")),
        now,
        12.5,
    )
    page = await read(Standing().scrape(metrics, clock))
    assert page.of("sfn_sweeps_total", "catalog", "outcome") == {("prod", "swept"): 1}
    assert page.of("sfn_sweep_last_end_timestamp_seconds", "catalog") == {("prod",): now.timestamp()}
    assert page.of("sfn_sweep_last_duration_seconds", "catalog") == {("prod",): 12.5}
    assert page.of("sfn_sweep_last_tables", "catalog") == {("prod",): 1000}
    assert page.of("sfn_sweep_last_differing", "catalog") == {("prod",): 3}
    assert page.of("sfn_sweep_last_unlisted_namespaces", "catalog") == {("prod",): 2}
    assert page.of("sfn_sweep_interval_seconds", "catalog") == {("prod",): 900, ("dev",): 60}


async def test_two_services_in_one_process_count_each_for_itself(metrics: Metrics, clock: HandClock) -> None:
    other = Metrics(version="1.2.3", catalogs=["prod"])
    metrics.work.count_lost_lease()
    assert (await read(Standing().scrape(metrics, clock))).value("sfn_lost_leases_total") == 1
    assert (await read(Standing().scrape(other, clock))).value("sfn_lost_leases_total") == 0
