"""What is counted and timed while it happens, for Prometheus. What is read when somebody asks is in `gauges`.

Names end in a base unit, those of counters in `_total`. A label's values are a set of the configuration or of the code,
never what a sender or a catalog makes up: so there is no label with a table's name, a location or a sender's text.
Every series that can be known is there from the start, with 0: an alarm can't see the first step of one that was not.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Final, Protocol

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from sfn.domain.events import PutResult
from sfn.telemetry.passing import GatewayMetrics
from sfn.telemetry.pulls import PullMetrics
from sfn.telemetry.refusals import LogThrottle
from sfn.telemetry.work import PublicationMetrics

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
            ("dialect", "result"),
            registry=registry,
        )
        self._refused = Counter(
            "sfn_requests_refused_total",
            "Requests to take events that were refused, by HTTP status.",
            ("status",),
            registry=registry,
        )
        self._coalesced = Counter(
            "sfn_superseded_total",
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
