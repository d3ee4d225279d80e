"""What is counted and timed while it happens, for Prometheus. What is read when somebody asks is in `gauges`.

Names end in a base unit, those of counters in `_total`. A label's values are a set of the configuration or of the code,
never what a sender or a catalog makes up: so there is no label with a table's name, a location or a sender's text.
Every series that can be known is there from the start, with 0: an alarm can't see the first step of one that was not.
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

# ── passing: What is counted and timed of what passes through gateways

_KINDS: Final = {True: "commit", False: "other"}
_ANSWERS: Final = ("2xx", "3xx", "4xx", "5xx", "none")
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class GatewayMetrics:
    """The counters of all gateways.

    Args:
        registry: where they are read.
        names: the configured gateways.
    """

    def __init__(self, registry: CollectorRegistry, names: Collection[str]) -> None:
        self._requests = Counter(
            "sfn_gateway_requests_total",
            "Requests that passed to a catalog, by whether they may change a table, and the catalog's answer, if any.",
            ("gateway", "kind", "answer"),
            registry=registry,
        )
        self._seconds = Histogram(
            "sfn_gateway_seconds",
            "From the request to the header of the catalog's answer; of a commit without its note before.",
            ("gateway", "kind"),
            registry=registry,
            buckets=_SECONDS,
        )
        self._unnoted = Counter(
            "sfn_gateway_unrecorded_total",
            "Commits that passed without a note, as the inbox took none: their catalog is swept instead.",
            ("gateway",),
            registry=registry,
        )
        self._unmapped = Counter(
            "sfn_gateway_unmapped_total",
            "Commits that passed under a prefix that gateway.NAME.catalogs does not have: left to the sweep.",
            ("gateway",),
            registry=registry,
        )
        self._gateways = {
            name: GatewayCounters(name, self._requests, self._seconds, self._unnoted, self._unmapped) for name in names
        }

    def get(self, name: str) -> GatewayCounters:
        """The counters of one gateway."""
        return self._gateways[name]


class GatewayCounters:
    """The counters of one gateway, looked up once: that takes longer than to count."""

    def __init__(self, name: str, requests: Counter, seconds: Histogram, unnoted: Counter, unmapped: Counter) -> None:
        self._requests = {
            (change, answer): requests.labels(name, kind, answer)
            for change, kind in _KINDS.items()
            for answer in _ANSWERS
        }
        self._seconds = {change: seconds.labels(name, kind) for change, kind in _KINDS.items()}
        self._unnoted, self._unmapped = unnoted.labels(name), unmapped.labels(name)

    def answered(self, *, change: bool, status: int | None, seconds: float) -> None:
        """The header of an answer came after so long; None: none did.

        Args:
            change: the request may change a table.
            status: HTTP status.
        """
        answer = "none" if status is None else f"{status // 100}xx"
        self._requests[change, answer if answer in _ANSWERS else "none"].inc()
        self._seconds[change].observe(seconds)

    def count_unrecorded(self) -> None:
        """A commit passed that the inbox did not take."""
        self._unnoted.inc()

    def count_unmapped(self) -> None:
        """A commit passed under a prefix that belongs to no catalog of ours."""
        self._unmapped.inc()


# ── pulls: How the sources are that events are fetched from


class PullMetrics:
    """How the sources are.

    Args:
        registry: where it is counted.
        sources: the configured ones, by name.
    """

    def __init__(self, registry: CollectorRegistry, sources: Collection[str]) -> None:
        self._connected = Gauge(
            "sfn_pull_connected", "Whether the source delivers what is published.", ("source",), registry=registry
        )
        self._dropped = Counter(
            "sfn_pull_dropped_total",
            "Messages that the inbox was too slow for and nobody keeps; the source's catalogs are swept instead.",
            ("source",),
            registry=registry,
        )
        for source in sources:
            self._connected.labels(source)
            self._dropped.labels(source)

    def set_connected(self, source: str, *, is_connected: bool) -> None:
        """There is a connection, or none any more."""
        self._connected.labels(source).set(is_connected)

    def count_dropped(self, source: str, count: int) -> None:
        """Messages were dropped."""
        self._dropped.labels(source).inc(count)


# ── work: What is counted and timed of the worker

NOT_CONFIGURED: Final = ""
"""The catalog's label of what belongs to no configured one: rows of one that was, and requests nobody understood."""
UNDECODABLE: Final = "undecodable"
"""The reason of a dead letter that is no table's."""
REASONS: Final = tuple(reason.value for reason in DeadLetterReason if reason.value != UNDECODABLE)
"""Why a table may be a dead letter."""

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
    """What came of tables.

    Args:
        registry: where the metrics are read.
        catalogs: the configured ones; all others share the label `NOT_CONFIGURED`.

    Attributes:
        sweeps: what came of sweeps.
    """

    def __init__(self, registry: CollectorRegistry, catalogs: Collection[str]) -> None:
        self._catalogs = frozenset(catalogs)
        self._attempts = Counter(
            "sfn_publications_total",
            "Attempts to bring a table's files in line with its catalog, by how they ended and what was in the way.",
            ("catalog", "outcome", "error_class"),
            registry=registry,
        )
        self._durations = Histogram(
            "sfn_publication_duration_seconds",
            "How long those attempts took that saw their table through (outcomes done and later).",
            ("catalog",),
            registry=registry,
            buckets=_DURATION_BUCKETS,
        )
        self._staleness = Histogram(
            "sfn_staleness_seconds",
            "From a commit (last-updated-ms) until its pointer was written; without the first pointer of each table, "
            "whose last commit may be years old.",
            ("catalog",),
            registry=registry,
            buckets=_STALENESS_BUCKETS,
        )
        self._expired = Counter(
            "sfn_lease_expirations_total",
            "Leases that ran out, those too that the process before this one left behind.",
            registry=registry,
        )
        self._fenced = Counter(
            "sfn_lost_leases_total",
            "Attempts of which nothing was taken, as their lease was lost: another one, or an operator, has the row.",
            registry=registry,
        )
        self.sweeps = SweepMetrics(registry, catalogs)
        for catalog in catalogs:
            for outcome, error_class in _OUTCOMES:
                self._attempts.labels(catalog, outcome, error_class)
            for histogram in (self._durations, self._staleness):
                histogram.labels(catalog)

    def count_attempt(self, catalog: str, outcome: str, error_class: str) -> None:
        """An attempt of a table ended.

        Args:
            catalog: whose table it is.
            outcome: its name, such as `done`.
            error_class: a dead letter's reason, else the value of a `Cause`; empty where nothing was in the way.
        """
        self._attempts.labels(_label(catalog, self._catalogs), outcome, error_class).inc()

    def observe_duration(self, catalog: str, seconds: float) -> None:
        """An attempt of a table saw it through, in that time."""
        self._durations.labels(_label(catalog, self._catalogs)).observe(seconds)

    def observe_staleness(self, catalog: str, seconds: float) -> None:
        """A table's files name a commit that is that old."""
        self._staleness.labels(_label(catalog, self._catalogs)).observe(seconds)

    def count_expired_leases(self, leases: int) -> None:
        """So many leases ran out."""
        self._expired.inc(leases)

    def count_lost_lease(self) -> None:
        """Nothing of an attempt was taken: its lease was lost."""
        self._fenced.inc()


class SweepMetrics:
    """What came of sweeps."""

    def __init__(self, registry: CollectorRegistry, catalogs: Collection[str]) -> None:
        self._catalogs = frozenset(catalogs)

        def last(name: str, text: str) -> Gauge:
            return Gauge(f"sfn_sweep_last_{name}", f"{text}; 0 before the first.", ("catalog",), registry=registry)

        self._attempts = Counter(
            "sfn_sweeps_total",
            "Attempts to walk over a catalog, by how they ended.",
            ("catalog", "outcome"),
            registry=registry,
        )
        self._end = last("end_timestamp_seconds", "When the last complete sweep of this process ended, in Unix time")
        self._duration = last("duration_seconds", "How long the last complete sweep took")
        self._tables = last("tables", "Tables that the last complete sweep looked at")
        self._withheld = last("unlisted_namespaces", "Namespaces that the last complete sweep could not list")
        self._differing = last("differing", "Tables that the last complete sweep found to differ from their files")
        for catalog in catalogs:
            for outcome in _SWEEP_OUTCOMES:
                self._attempts.labels(catalog, outcome)
            for gauge in (self._end, self._duration, self._tables, self._withheld, self._differing):
                gauge.labels(catalog)

    def count_attempt(self, catalog: str, outcome: str) -> None:
        """An attempt to sweep a catalog ended."""
        self._attempts.labels(_label(catalog, self._catalogs), outcome).inc()

    def set_completed(self, catalog: str, outcome: SweepCompleted, at: datetime, seconds: float) -> None:
        """A sweep is complete.

        Args:
            catalog: which was swept.
            outcome: what it says.
            at: when it ended.
            seconds: how long it took.
        """
        label = _label(catalog, self._catalogs)
        self._end.labels(label).set(at.timestamp())
        self._duration.labels(label).set(seconds)
        self._tables.labels(label).set(outcome.tables)
        self._withheld.labels(label).set(len(outcome.unlisted_namespaces))
        self._differing.labels(label).set(outcome.differing)


def _label(catalog: str, configured: Collection[str]) -> str:
    return catalog if catalog in configured else NOT_CONFIGURED


# ── metrics: What is counted and timed while it happens

_NO_FORMAT: Final = "none"
_REFUSALS: Final = (400, 401, 403, 404, 405, 408, 413, 415, 422, 429)
_READ: Final = (200, 204, 304, 400, 401, 403, 404, 405, 500, 503)
_BODIES: Final = ("listener", "gateways")
_MORE_MEMORY: Final = "find out who sends bodies that do not end; or raise listener.body_memory"
_COMMIT: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_BATCH: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)

_log = structlog.stdlib.get_logger(__name__)


class Metrics:
    """All of it, each part for the one who counts it, in a registry of its own.

    Args:
        version: of this service.
        catalogs: the configured ones.
        event_formats: the event formats that are known.
        gateways: the configured ones.
        sources: that events are fetched from.

    Attributes:
        registry: what a scrape reads.
        events: for the receiver.
        commits: for the inbox.
        work: for the worker.
        gateways: for the gateways.
        pulls: for the sources.
        readers: for the facade.
        bodies: for what is held of unknown clients.
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
    """What any process shows.

    Args:
        version: of this distribution.
    """
    # The library has this for the whole process: a second series a counter, that says when it was made.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    made = CollectorRegistry()
    ProcessCollector(registry=made)
    build = Gauge("sfn_build_info", "What runs; always 1.", ("version", "python"), registry=made)
    build.labels(version, platform.python_version()).set(1)
    return made


@dataclass(frozen=True, slots=True)
class _FormatCounters:
    """The counters of one dialect: to look labels up costs three times as much as to count."""

    accepted: Counter
    duplicate: Counter
    ignored: Counter
    unmapped: Counter


class EventMetrics:
    """What came of events."""

    def __init__(self, registry: CollectorRegistry, event_formats: Collection[str]) -> None:
        self._received = Counter(
            "sfn_events_received_total",
            "Events by what came of them, a rename being two. A request of which nothing was taken counts as one: "
            "refused (4xx) or unavailable (5xx), of dialect none unless its path tells more.",
            ("format", "result"),
            registry=registry,
        )
        self._refused = Counter(
            "sfn_requests_refused_total",
            "Requests to take events that were refused, by HTTP status.",
            ("status",),
            registry=registry,
        )
        self._coalesced = Counter(
            "sfn_coalesced_total",
            "Accepted events of tables of which something told before still waited: one publish answers all of it.",
            registry=registry,
        )
        self._by_format = {event_format: self._counters_of(event_format) for event_format in event_formats}
        for result in ("refused", "unavailable"):
            self._received.labels(_NO_FORMAT, result)
        for status in _REFUSALS:
            self._refused.labels(str(status))

    def count_ingested(self, event_format: str | None, stored: PutResult, ignored: int, unmapped: int = 0) -> None:
        """A request was answered with success.

        Args:
            event_format: the name of its events' format; None where there was no event in it.
            stored: what became of that which went into the inbox.
            ignored: events that are understood and of no concern.
            unmapped: events of catalogs of which nobody said which of ours they are.
        """
        name = event_format or _NO_FORMAT
        counters = self._by_format.get(name)
        if counters is None:
            counters = self._by_format[name] = self._counters_of(name)
        if stored.accepted:
            counters.accepted.inc(stored.accepted)
        if stored.duplicates:
            counters.duplicate.inc(stored.duplicates)
        if stored.coalesced:
            self._coalesced.inc(stored.coalesced)
        if ignored:
            counters.ignored.inc(ignored)
        if unmapped:
            counters.unmapped.inc(unmapped)

    def count_rejected(self, status: int, event_format: str | None = None) -> None:
        """A request was answered with an error: nothing of it was taken.

        Args:
            status: HTTP status, 4xx or 5xx.
            event_format: the format, where the route alone tells it.
        """
        refused = status < 500  # noqa: PLR2004 - where the client's errors end
        self._received.labels(event_format or _NO_FORMAT, "refused" if refused else "unavailable").inc()
        if refused:
            self._refused.labels(str(status)).inc()

    def _counters_of(self, event_format: str) -> _FormatCounters:
        return _FormatCounters(*(self._received.labels(event_format, field.name) for field in fields(_FormatCounters)))


class FacadeMetrics:
    """How readers' requests are answered."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._all = Counter(
            "sfn_facade_requests_total",
            "Requests to the facade by its answer: 304 where a reader has the table's metadata already.",
            ("status",),
            registry=registry,
        )
        self._requests = {status: self._all.labels(str(status)) for status in _READ}

    def count_answer(self, status: int) -> None:
        """A request was answered.

        Args:
            status: HTTP status.
        """
        (self._requests.get(status) or self._all.labels(str(status))).inc()


class BodyMetrics:
    """Request bodies that were given up, since too many were held of clients that had not shown who they are."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = Counter(
            "sfn_bodies_refused_total",
            "Bodies of clients that had not shown who they are, given up (503) as listener.body_memory was used.",
            ("of",),
            registry=registry,
        )
        self._throttle = LogThrottle()
        for of in _BODIES:
            self._refused.labels(of)

    def counter_for(self, listener: str) -> Callable[[], None]:
        """Counts one more, and has the log say so.

        Args:
            listener: `listener` or `gateways`.
        """
        refused = self._refused.labels(listener)

        def count() -> None:
            refused.inc()
            if (suppressed := self._throttle.allow(listener)) is not None:
                _log.warning("body refused: no memory", of=listener, remedy=_MORE_MEMORY, left_out=suppressed)

        return count


class ObservedTransaction(Protocol):
    """One transaction of the inbox that is on disk."""

    @property
    def messages(self) -> int:
        """How many notes it took in."""
        ...

    @property
    def seconds(self) -> float:
        """How long it ran."""
        ...


class InboxCommitMetrics:
    """How the inbox's disk does."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "sfn_ingest_commit_seconds",
            "How long the transactions ran, to the disk, that took events or other notes in.",
            registry=registry,
            buckets=_COMMIT,
        )
        self._messages = Histogram(
            "sfn_ingest_batch_events",
            "Events and other notes of each such transaction.",
            registry=registry,
            buckets=_BATCH,
        )

    def observe(self, transaction: ObservedTransaction) -> None:
        """A transaction is on disk; one that took nothing in tells nothing of what senders wait for."""
        if transaction.messages:
            self._seconds.observe(transaction.seconds)
            self._messages.observe(transaction.messages)
