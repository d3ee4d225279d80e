"""Counters and histograms for Prometheus. Gauges that are read at each scrape are in `sfn.telemetry.scrape`.

Names end in a base unit, those of counters in `_total`. The values of labels come from the settings or the code, never
from a sender or a catalog, so no label has a table's name, a location or a text of a sender.

Every known series exists from the start with 0. Otherwise an alert on an increase would miss the first one.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final, Protocol

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from sfn.domain.events import PutResult
from sfn.domain.jobs import (
    DeadLettered,
    DeadLetterReason,
    Done,
    FailureCause,
    Rescheduled,
    Retry,
    Returned,
    SweepCompleted,
)
from sfn.telemetry.logs import LogThrottle

_KINDS: Final = {True: "commit", False: "other"}
_ANSWERS: Final = ("2xx", "3xx", "4xx", "5xx", "none")
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class GatewayMetrics:
    """The metrics of all gateways.

    Args:
        registry: registry of the metrics.
        names: configured gateways.
    """

    def __init__(self, registry: CollectorRegistry, names: Collection[str]) -> None:
        self._requests = Counter(
            "sfn_gateway_requests_total",
            "Requests forwarded to a catalog, by kind (commit or other) and the status of the catalog's answer.",
            ("gateway", "kind", "answer"),
            registry=registry,
        )
        self._seconds = Histogram(
            "sfn_gateway_seconds",
            "Time from the request to the header of the catalog's answer; for a commit without storing its intent.",
            ("gateway", "kind"),
            registry=registry,
            buckets=_SECONDS,
        )
        self._unnoted = Counter(
            "sfn_gateway_unrecorded_total",
            "Commits forwarded without an intent, because the inbox did not accept one; the catalog is swept instead.",
            ("gateway",),
            registry=registry,
        )
        self._unmapped = Counter(
            "sfn_gateway_unmapped_total",
            "Commits forwarded under a prefix that gateway.NAME.catalogs does not have; the next sweep finds them.",
            ("gateway",),
            registry=registry,
        )
        self._gateways = {
            name: GatewayCounters(name, self._requests, self._seconds, self._unnoted, self._unmapped) for name in names
        }

    def get(self, name: str) -> GatewayCounters:
        return self._gateways[name]


class GatewayCounters:
    """The metrics of one gateway. Labels are resolved once, because that takes longer than counting."""

    def __init__(self, name: str, requests: Counter, seconds: Histogram, unnoted: Counter, unmapped: Counter) -> None:
        self._requests = {
            (change, answer): requests.labels(name, kind, answer)
            for change, kind in _KINDS.items()
            for answer in _ANSWERS
        }
        self._seconds = {change: seconds.labels(name, kind) for change, kind in _KINDS.items()}
        self._unnoted, self._unmapped = unnoted.labels(name), unmapped.labels(name)

    def answered(self, *, change: bool, status: int | None, seconds: float) -> None:
        """Count a request and the time until the header of the answer.

        Args:
            change: True if the request may change a table.
            status: HTTP status of the answer; None without an answer.
            seconds: time since the request.
        """
        answer = "none" if status is None else f"{status // 100}xx"
        self._requests[change, answer if answer in _ANSWERS else "none"].inc()
        self._seconds[change].observe(seconds)

    def count_unrecorded(self) -> None:
        """Count a commit that was forwarded without an intent in the inbox."""
        self._unnoted.inc()

    def count_unmapped(self) -> None:
        """Count a commit under a prefix that belongs to no configured catalog."""
        self._unmapped.inc()


class PullMetrics:
    """The metrics of pull sources.

    Args:
        registry: registry of the metrics.
        sources: names of the configured sources.
    """

    def __init__(self, registry: CollectorRegistry, sources: Collection[str]) -> None:
        self._connected = Gauge(
            "sfn_pull_connected", "1 if the source delivers the published events.", ("source",), registry=registry
        )
        self._dropped = Counter(
            "sfn_pull_dropped_total",
            "Messages lost because the inbox was too slow; the source's catalogs are swept instead.",
            ("source",),
            registry=registry,
        )
        for source in sources:
            self._connected.labels(source)
            self._dropped.labels(source)

    def set_connected(self, source: str, *, is_connected: bool) -> None:
        """Set the state of a source's connection."""
        self._connected.labels(source).set(is_connected)

    def count_dropped(self, source: str, count: int) -> None:
        """Count messages that were lost."""
        self._dropped.labels(source).inc(count)


NOT_CONFIGURED: Final = ""
"""The label `catalog` for jobs of catalogs that are not configured any more, and for undecodable requests."""
UNDECODABLE: Final = "undecodable"
"""The reason of a dead letter without a table."""
REASONS: Final = tuple(reason.value for reason in DeadLetterReason if reason.value != UNDECODABLE)
"""The reasons of dead letters of tables."""

_OUTCOMES: Final = (
    (Done.label, ""),
    (Rescheduled.label, ""),
    *((Retry.label, cause.value) for cause in (FailureCause.TABLE, FailureCause.DEFECT)),
    *(
        (Returned.label, cause.value)
        for cause in (
            FailureCause.CATALOG,
            FailureCause.STORE,
            FailureCause.INBOX,
            FailureCause.PROCESS,
            FailureCause.STOP,
        )
    ),
    *((DeadLettered.label, reason) for reason in REASONS),
)
_SWEEP_OUTCOMES: Final = (SweepCompleted.label, Retry.label, Returned.label)
_DURATION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_STALENESS_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14_400)


class PublicationMetrics:
    """The metrics of publishes.

    Args:
        registry: registry of the metrics.
        catalogs: configured catalogs; all others share the label `NOT_CONFIGURED`.

    Attributes:
        sweeps: metrics of sweeps.
    """

    def __init__(self, registry: CollectorRegistry, catalogs: Collection[str]) -> None:
        self._catalogs = frozenset(catalogs)
        self._attempts = Counter(
            "sfn_publications_total",
            "Attempts to publish a table, by outcome and class of error.",
            ("catalog", "outcome", "error_class"),
            registry=registry,
        )
        self._durations = Histogram(
            "sfn_publication_duration_seconds",
            "Duration of attempts that processed their table (outcomes done and rescheduled).",
            ("catalog",),
            registry=registry,
            buckets=_DURATION_BUCKETS,
        )
        self._staleness = Histogram(
            "sfn_staleness_seconds",
            "Time from a commit (last-updated-ms) until its SFN file was written; without the first SFN file of a "
            "table, because the last commit before it may be years old.",
            ("catalog",),
            registry=registry,
            buckets=_STALENESS_BUCKETS,
        )
        self._expired = Counter(
            "sfn_lease_expirations_total",
            "Leases that expired, including those of an earlier process.",
            registry=registry,
        )
        self._fenced = Counter(
            "sfn_lost_leases_total",
            "Attempts without effect, because their lease was lost to another worker or to an operator.",
            registry=registry,
        )
        self.sweeps = SweepMetrics(registry, catalogs)
        for catalog in catalogs:
            for outcome, error_class in _OUTCOMES:
                self._attempts.labels(catalog, outcome, error_class)
            for histogram in (self._durations, self._staleness):
                histogram.labels(catalog)

    def count_attempt(self, catalog: str, outcome: str, error_class: str) -> None:
        """Count an attempt to publish a table.

        Args:
            catalog: catalog of the table.
            outcome: name of the outcome, such as `done`.
            error_class: reason of the dead letter, or value of the `FailureCause`; empty without an error.
        """
        self._attempts.labels(_label(catalog, self._catalogs), outcome, error_class).inc()

    def observe_duration(self, catalog: str, seconds: float) -> None:
        """Record the duration of an attempt that processed its table."""
        self._durations.labels(_label(catalog, self._catalogs)).observe(seconds)

    def observe_staleness(self, catalog: str, seconds: float) -> None:
        """Record the age of a commit at the moment when its SFN file was written."""
        self._staleness.labels(_label(catalog, self._catalogs)).observe(seconds)

    def count_expired_leases(self, leases: int) -> None:
        self._expired.inc(leases)

    def count_lost_lease(self) -> None:
        """Count an attempt without effect, because its lease was lost."""
        self._fenced.inc()


class SweepMetrics:
    """The metrics of sweeps."""

    def __init__(self, registry: CollectorRegistry, catalogs: Collection[str]) -> None:
        self._catalogs = frozenset(catalogs)

        def last(name: str, text: str) -> Gauge:
            return Gauge(f"sfn_sweep_last_{name}", f"{text}; 0 before the first.", ("catalog",), registry=registry)

        self._attempts = Counter(
            "sfn_sweeps_total",
            "Attempts to sweep a catalog, by outcome.",
            ("catalog", "outcome"),
            registry=registry,
        )
        self._end = last("end_timestamp_seconds", "End of the last complete sweep of this process, as Unix time")
        self._duration = last("duration_seconds", "Duration of the last complete sweep")
        self._tables = last("tables", "Tables that the last complete sweep compared")
        self._withheld = last("unlisted_namespaces", "Namespaces that the last complete sweep could not list")
        self._differing = last("differing", "Tables that the last complete sweep found to differ from their files")
        for catalog in catalogs:
            for outcome in _SWEEP_OUTCOMES:
                self._attempts.labels(catalog, outcome)
            for gauge in (self._end, self._duration, self._tables, self._withheld, self._differing):
                gauge.labels(catalog)

    def count_attempt(self, catalog: str, outcome: str) -> None:
        self._attempts.labels(_label(catalog, self._catalogs), outcome).inc()

    def set_completed(self, catalog: str, outcome: SweepCompleted, at: datetime, seconds: float) -> None:
        """Record a complete sweep.

        Args:
            catalog: catalog that was swept.
            outcome: result of the sweep.
            at: end of the sweep.
            seconds: duration of the sweep.
        """
        label = _label(catalog, self._catalogs)
        self._end.labels(label).set(at.timestamp())
        self._duration.labels(label).set(seconds)
        self._tables.labels(label).set(outcome.tables)
        self._withheld.labels(label).set(len(outcome.unlisted_namespaces))
        self._differing.labels(label).set(outcome.differing)


def _label(catalog: str, configured: Collection[str]) -> str:
    return catalog if catalog in configured else NOT_CONFIGURED


_NO_FORMAT: Final = "none"
_REFUSALS: Final = (400, 401, 403, 404, 405, 408, 413, 415, 422, 429)
_READ: Final = (200, 204, 304, 400, 401, 403, 404, 405, 500, 503)
_BODIES: Final = ("listener", "gateways")
_MORE_MEMORY: Final = "find the client that sends bodies without an end, or raise listener.body_memory"
_COMMIT: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_BATCH: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)

_log = structlog.stdlib.get_logger(__name__)


class Metrics:
    """All counters and histograms of a process, in a registry of their own.

    Args:
        version: version of the service.
        catalogs: configured catalogs.
        event_formats: names of the event formats.
        gateways: configured gateways.
        sources: names of the pull sources.

    Attributes:
        registry: registry of all metrics.
        events: metrics of the receiver.
        commits: metrics of the inbox's transactions.
        work: metrics of the worker.
        gateways: metrics of the gateways.
        pulls: metrics of the pull sources.
        readers: metrics of the facade.
        bodies: metrics of refused request bodies.
    """

    def __init__(
        self,
        *,
        version: str,
        catalogs: Collection[str],
        event_formats: Collection[str] = (),
        gateways: Collection[str] = (),
        sources: Collection[str] = (),
    ) -> None:
        self.registry = new_registry(version)
        self.events = EventMetrics(self.registry, event_formats)
        self.commits = InboxCommitMetrics(self.registry)
        self.work = PublicationMetrics(self.registry, catalogs)
        self.gateways = GatewayMetrics(self.registry, gateways)
        self.pulls = PullMetrics(self.registry, sources)
        self.readers = FacadeMetrics(self.registry)
        self.bodies = BodyMetrics(self.registry)


def new_registry(version: str) -> CollectorRegistry:
    """Return a registry with the metrics of any process: resources and build.

    Args:
        version: version of this distribution.
    """
    # Without this, the library adds a second series to each counter, with the time of its creation.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    build = Gauge("sfn_build_info", "Running versions; always 1.", ("version", "python"), registry=registry)
    build.labels(version, platform.python_version()).set(1)
    return registry


@dataclass(frozen=True, slots=True)
class _FormatCounters:
    """The counters of one event format. Labels are resolved once, because that takes three times as long as counting.

    The names of the fields are values of the label `result`.
    """

    accepted: Counter
    duplicate: Counter
    ignored: Counter
    unmapped: Counter


class EventMetrics:
    """The metrics of received events."""

    def __init__(self, registry: CollectorRegistry, event_formats: Collection[str]) -> None:
        self._received = Counter(
            "sfn_events_received_total",
            "Events by event format and result; a rename counts as two. A request that fails counts as one event: "
            "refused (4xx) or unavailable (5xx), with format none unless the path of the request names the format.",
            ("format", "result"),
            registry=registry,
        )
        self._refused = Counter(
            "sfn_requests_refused_total",
            "Refused requests with events, by HTTP status.",
            ("status",),
            registry=registry,
        )
        self._by_format = {event_format: self._counters_of(event_format) for event_format in event_formats}
        for result in ("refused", "unavailable"):
            self._received.labels(_NO_FORMAT, result)
        for status in _REFUSALS:
            self._refused.labels(str(status))

    def count_ingested(self, event_format: str | None, stored: PutResult, ignored: int, unmapped: int = 0) -> None:
        """Count the events of a successful request.

        Args:
            event_format: name of the event format; None for a request without events.
            stored: result of storing the notifications.
            ignored: number of events that are not relevant.
            unmapped: number of events of catalogs that the sender's `catalogs` does not name.
        """
        name = event_format or _NO_FORMAT
        counters = self._by_format.get(name)
        if counters is None:
            counters = self._by_format[name] = self._counters_of(name)
        if stored.accepted:
            counters.accepted.inc(stored.accepted)
        if stored.duplicates:
            counters.duplicate.inc(stored.duplicates)
        if ignored:
            counters.ignored.inc(ignored)
        if unmapped:
            counters.unmapped.inc(unmapped)

    def count_rejected(self, status: int, event_format: str | None = None) -> None:
        """Count a request that failed; none of its events was stored.

        Args:
            status: HTTP status, 4xx or 5xx.
            event_format: event format, if the route determines it.
        """
        refused = status < 500  # noqa: PLR2004 - where the client's errors end
        self._received.labels(event_format or _NO_FORMAT, "refused" if refused else "unavailable").inc()
        if refused:
            self._refused.labels(str(status)).inc()

    def _counters_of(self, event_format: str) -> _FormatCounters:
        return _FormatCounters(*(self._received.labels(event_format, field.name) for field in fields(_FormatCounters)))


class FacadeMetrics:
    """The metrics of the facade."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._all = Counter(
            "sfn_facade_requests_total",
            "Requests to the facade by status; 304 if the reader already has the table's metadata.",
            ("status",),
            registry=registry,
        )
        self._requests = {status: self._all.labels(str(status)) for status in _READ}

    def count_answer(self, status: int) -> None:
        """Count a response.

        Args:
            status: HTTP status.
        """
        (self._requests.get(status) or self._all.labels(str(status))).inc()


class BodyMetrics:
    """The metrics of request bodies that were refused because unauthenticated clients used too much memory."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = Counter(
            "sfn_bodies_refused_total",
            "Bodies of unauthenticated clients refused (503), because listener.body_memory was exhausted.",
            ("of",),
            registry=registry,
        )
        self._throttle = LogThrottle()
        for of in _BODIES:
            self._refused.labels(of)

    def counter_for(self, listener: str) -> Callable[[], None]:
        """Return a function that counts and logs a refused body.

        Args:
            listener: `listener` or `gateways`.
        """
        refused = self._refused.labels(listener)

        def count() -> None:
            refused.inc()
            if (suppressed := self._throttle.allow(listener)) is not None:
                _log.warning("body refused: no memory", of=listener, remedy=_MORE_MEMORY, suppressed=suppressed)

        return count


class ObservedTransaction(Protocol):
    """A transaction of the inbox that is on disk."""

    @property
    def messages(self) -> int:
        """Number of messages that it stored."""
        ...

    @property
    def seconds(self) -> float:
        """Duration of the transaction."""
        ...


class ObservedFold(Protocol):
    """Messages of the inbox's log that were applied to the jobs of their tables."""

    @property
    def records(self) -> int:
        """Number of messages."""
        ...

    @property
    def coalesced(self) -> int:
        """Number of events among them that found another one waiting for the same table."""
        ...


class InboxCommitMetrics:
    """The metrics of the inbox's transactions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "sfn_ingest_commit_seconds",
            "Duration of transactions that store events or other messages, until they are on disk.",
            registry=registry,
            buckets=_COMMIT,
        )
        self._messages = Histogram(
            "sfn_ingest_batch_events",
            "Number of events and other messages in each of these transactions.",
            registry=registry,
            buckets=_BATCH,
        )
        self._applied = Counter(
            "sfn_applied_total",
            "Events and other messages that were accepted and are now part of the state of their table.",
            registry=registry,
        )
        self._coalesced = Counter(
            "sfn_coalesced_total",
            "Accepted events of tables with a notification that still waited; one publish covers both.",
            registry=registry,
        )

    def observe(self, transaction: ObservedTransaction) -> None:
        """Record a transaction. One without messages is ignored, because no sender waited for it."""
        if transaction.messages:
            self._seconds.observe(transaction.seconds)
            self._messages.observe(transaction.messages)

    def observe_fold(self, fold: ObservedFold) -> None:
        """Record that messages were applied."""
        self._applied.inc(fold.records)
        if fold.coalesced:
            self._coalesced.inc(fold.coalesced)
