"""Scrapes of `/metrics`: gauges that are read at each scrape, and the rendering of all metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from sfn.clock import Clock
from sfn.errors import ErrorScope, SfnError
from sfn.telemetry.metrics import NOT_CONFIGURED, REASONS, UNDECODABLE

STATES: Final = ("due", "scheduled", "retrying", "leased", "dead", "held")
"""States of a table's job."""
HELD_STATE: Final = "held"


class ScrapedStats(Protocol):
    """The statistics of the inbox."""

    @property
    def tables(self) -> Mapping[tuple[str, str], int]:
        """Number of tables, by catalog and state."""
        ...

    @property
    def oldest_due(self) -> Mapping[str, datetime]:
        """Start of the longest wait of a job with an unprocessed notification, by catalog; missing if none waits."""
        ...

    @property
    def late(self) -> Mapping[str, int]:
        """Number of tables that wait longer than `telemetry.late_after`, by catalog."""
        ...

    @property
    def dead_letters(self) -> Mapping[tuple[str, str], int]:
        """Number of open dead letters, by catalog ("" for none) and reason."""
        ...

    @property
    def limit_reached(self) -> frozenset[str]:
        """Catalogs that reached their drop limit."""
        ...

    @property
    def open_intents(self) -> Mapping[str, int]:
        """Number of commits through gateways with an unknown outcome, by catalog; missing if there are none."""
        ...

    @property
    def missing(self) -> Mapping[str, ScrapedMissingTables]:
        """Missing tables, by catalog."""
        ...

    @property
    def unapplied(self) -> int:
        """Number of accepted messages that are not part of these statistics yet."""
        ...

    @property
    def oldest_unapplied(self) -> datetime | None:
        """Time at which the oldest of them arrived; None without any."""
        ...

    @property
    def queued(self) -> int:
        """Number of messages of this process that wait for the disk."""
        ...

    @property
    def oldest_queued(self) -> datetime | None:
        """Time at which the oldest of them arrived; None without any."""
        ...


class ScrapedMissingTables(Protocol):
    """The tables of a catalog that have a live SFN file but that the catalog does not show any more."""

    @property
    def count(self) -> int:
        """Number of tables."""
        ...

    @property
    def since(self) -> datetime:
        """Time at which the first of these tables was found missing."""
        ...


class ScrapedBreaker(Protocol):
    """A circuit breaker that is not closed, after an error of a catalog, a store or the process."""

    @property
    def scope(self) -> ErrorScope:
        """Catalog, store or process."""
        ...

    @property
    def name(self) -> str:
        """Name of the catalog, or prefix of the store."""
        ...

    @property
    def is_failing(self) -> bool:
        """True until a job succeeds."""
        ...


@dataclass(frozen=True, slots=True)
class LabelNames:
    """The configured names. Only these become label values, and every one has its series from the start.

    Attributes:
        catalogs: names of catalogs.
        stores: names of stores, by prefix.
        swept: seconds between two sweeps, by name of the catalog; without the catalogs that are not swept regularly.
    """

    catalogs: Collection[str]
    stores: Mapping[str, str]
    swept: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The state of the service at one moment.

    Attributes:
        now: the moment.
        stats: last known statistics of the inbox; None before the first.
        inbox_answers: True if these statistics are of this scrape.
        file_sizes: size of each file of the inbox in bytes.
        is_ready: True if the process is ready for traffic.
        reached_catalogs: catalogs that have answered since the start.
        breakers: circuit breakers that are not closed.
    """

    now: datetime
    stats: ScrapedStats | None
    inbox_answers: bool
    file_sizes: Mapping[str, int]
    is_ready: bool
    reached_catalogs: Collection[str]
    breakers: Collection[ScrapedBreaker]


def gauges(state: ServiceState, names: LabelNames) -> Iterator[GaugeMetricFamily]:
    """Yield the gauges of a state. Without statistics their series are missing, because 0 would be wrong."""
    yield _gauge("sfn_ready", "1 if /readyz reports that the process is ready.", (), [((), state.is_ready)])
    yield _gauge(
        "sfn_inbox_answers",
        "1 if the inbox answered this scrape in time; else the metrics of the inbox are those of an earlier scrape.",
        (),
        [((), state.inbox_answers)],
    )
    sizes = [((file,), size) for file, size in state.file_sizes.items()]
    yield _gauge("sfn_inbox_bytes", "Sizes of the inbox's files: database and write-ahead log.", ("file",), sizes)
    reached = [((catalog,), catalog in state.reached_catalogs) for catalog in names.catalogs]
    yield _gauge("sfn_catalog_reached", "1 if the catalog has answered since the start.", ("catalog",), reached)
    yield _gauge(
        "sfn_sweep_interval_seconds",
        "Time between two sweeps; missing for a catalog without regular sweeps.",
        ("catalog",),
        [((catalog,), seconds) for catalog, seconds in names.swept.items()],
    )
    yield _gauge(
        "sfn_breaker_open",
        "1 if nothing has succeeded with a catalog or a store since its last error. A store without a name is one of "
        "tables that were never published. Scope process: it lacks file descriptors, threads or memory.",
        ("scope", "name"),
        _open_breakers(state, names).items(),
    )
    if state.stats is not None:
        yield from _inbox_gauges(state.stats, state.now, names)


def _inbox_gauges(stats: ScrapedStats, now: datetime, names: LabelNames) -> Iterator[GaugeMetricFamily]:
    tables = _with_zeros(stats.tables, ((catalog, state) for catalog in names.catalogs for state in STATES), names)
    ages = dict.fromkeys(names.catalogs, 0.0)
    for catalog, due_at in stats.oldest_due.items():
        label = _label(catalog, names)
        ages[label] = max(ages.get(label, 0.0), (now - due_at).total_seconds())
    known = [*((catalog, reason) for catalog in names.catalogs for reason in REASONS), (NOT_CONFIGURED, UNDECODABLE)]
    letters = _with_zeros(stats.dead_letters, known, names)
    yield _gauge("sfn_pending_tables", "Tables by the state of their job.", ("catalog", "state"), tables.items())
    yield _gauge(
        "sfn_oldest_pending_age_seconds",
        "Longest time for which a notification has waited for its publish, including retries; 0 if none waits.",
        ("catalog",),
        [((catalog,), age) for catalog, age in ages.items()],
    )
    late = Counter(dict.fromkeys(names.catalogs, 0))
    for catalog, count in stats.late.items():
        late[_label(catalog, names)] += count
    yield _gauge(
        "sfn_late_tables",
        "Tables with a change that has waited longer than telemetry.late_after, including tables with a dead letter "
        "but not those with a held drop.",
        ("catalog",),
        [((catalog,), count) for catalog, count in late.items()],
    )
    queues = {
        "disk": (stats.queued, stats.oldest_queued),
        "fold": (stats.unapplied, stats.oldest_unapplied),
    }
    yield _gauge(
        "sfn_waiting_messages",
        "Messages that wait. Queue disk: for their commit, in this process; a full queue is answered with 503. Queue "
        "fold: accepted ones, to become part of the state of their tables.",
        ("queue",),
        [((queue,), count) for queue, (count, _) in queues.items()],
    )
    yield _gauge(
        "sfn_oldest_waiting_age_seconds",
        "Time for which the oldest of these messages has waited; 0 without any.",
        ("queue",),
        [((queue,), (now - since).total_seconds() if since else 0.0) for queue, (_, since) in queues.items()],
    )
    yield _gauge("sfn_dead_letters", "Open dead letters by reason.", ("catalog", "reason"), letters.items())
    intents = Counter(dict.fromkeys(names.catalogs, 0))
    for catalog, count in stats.open_intents.items():
        intents[_label(catalog, names)] += count
    yield _gauge(
        "sfn_open_intents",
        "Commits through a gateway with an unknown outcome. The catalog is queried about each for at most 35 minutes.",
        ("catalog",),
        [((catalog,), count) for catalog, count in intents.items()],
    )
    yield from _missing_gauges(stats, now, names)
    held = [((catalog,), count) for (catalog, state), count in tables.items() if state == HELD_STATE]
    yield _gauge(
        "sfn_tables_on_hold", "Tables held by the drop limit until an operator releases it.", ("catalog",), held
    )
    limit_reached = [((catalog,), catalog in stats.limit_reached) for catalog in names.catalogs]
    yield _gauge(
        "sfn_drop_limit_reached",
        "1 if the catalog reached its drop limit, so that further drops are held.",
        ("catalog",),
        limit_reached,
    )


def _missing_gauges(stats: ScrapedStats, now: datetime, names: LabelNames) -> Iterator[GaugeMetricFamily]:
    counts, ages = Counter(dict.fromkeys(names.catalogs, 0)), dict.fromkeys(names.catalogs, 0.0)
    for catalog, missing in stats.missing.items():
        label = _label(catalog, names)
        counts[label] += missing.count
        ages[label] = max(ages.get(label, 0.0), (now - missing.since).total_seconds())
    yield _gauge(
        "sfn_missing_tables",
        "Tables with a live SFN file that the catalog does not show any more, including those with a held drop.",
        ("catalog",),
        [((catalog,), count) for catalog, count in counts.items()],
    )
    yield _gauge(
        "sfn_oldest_missing_age_seconds",
        "Time since the first of these tables was found missing; 0 without any.",
        ("catalog",),
        [((catalog,), age) for catalog, age in ages.items()],
    )


def _open_breakers(state: ServiceState, names: LabelNames) -> dict[tuple[str, str], bool]:
    known = {(ErrorScope.CATALOG.value, name): False for name in names.catalogs}
    known |= {(ErrorScope.STORE.value, name): False for name in names.stores.values()}
    known[ErrorScope.PROCESS.value, ""] = False
    for breaker in state.breakers:
        if breaker.is_failing:
            of_catalog = breaker.scope is ErrorScope.CATALOG
            name = _label(breaker.name, names) if of_catalog else names.stores.get(breaker.name, "")
            known[breaker.scope.value, name] = True
    return known


def _with_zeros(
    counts: Mapping[tuple[str, str], int], known: Iterable[tuple[str, str]], names: LabelNames
) -> dict[tuple[str, str], int]:
    """Return counts with zeros for all known series, and one common label for catalogs that are not configured."""
    total = Counter(dict.fromkeys(known, 0))
    for (catalog, kind), count in counts.items():
        total[_label(catalog, names), kind] += count
    return total


def _label(catalog: str, names: LabelNames) -> str:
    return catalog if catalog in names.catalogs else NOT_CONFIGURED


def _gauge(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for named, value in values:
        family.add_metric(named, float(value))
    return family


INBOX_TIMEOUT: Final = 1.0
"""Seconds for the inbox's answer. A scrape has 10 s, and must also succeed when the disk hangs, to report that."""


@dataclass(frozen=True, slots=True)
class ScrapeSources:
    """The sources of the gauges. Only `stats` may wait.

    Attributes:
        stats: returns the statistics of the inbox, or raises an `SfnError`.
        files: files of the inbox, by label; a file that does not exist has size 0.
        is_ready: returns True if the process is ready for traffic.
        reached_catalogs: returns the catalogs that have answered.
        breakers: returns the circuit breakers that are not closed.
    """

    stats: Callable[[], Awaitable[ScrapedStats]]
    files: Mapping[str, Path]
    is_ready: Callable[[], bool]
    reached_catalogs: Callable[[], Collection[str]]
    breakers: Callable[[], Collection[ScrapedBreaker]]


@dataclass(frozen=True, slots=True)
class Exposition:
    """The response to a scrape.

    Attributes:
        media_type: value of `Content-Type`.
        content: rendered metrics.
    """

    media_type: str
    content: bytes


class Scrape:
    """The handler of scrapes. It answers in time even if the inbox hangs.

    Args:
        registry: counters and histograms.
        sources: sources of the gauges.
        names: configured names.
        clock: wall clock.
        inbox_timeout: seconds for the inbox's answer; after that, the last known statistics are used.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        sources: ScrapeSources,
        names: LabelNames,
        clock: Clock,
        inbox_timeout: float = INBOX_TIMEOUT,
    ) -> None:
        self._registry, self._sources, self._names, self._clock = registry, sources, names, clock
        self._inbox_timeout = inbox_timeout
        self._lock, self._answers_begun = anyio.Lock(), 0
        self._writing = anyio.CapacityLimiter(1)
        self._stats: ScrapedStats | None = None
        self._sizes: Mapping[str, int] = {}
        self._answers = False

    async def __call__(self, accept: str) -> Exposition:
        """Return the metrics in the format that the client prefers.

        Args:
            accept: `Accept` header of the client; may be empty.
        """
        await self._query_inbox()
        # Render in a thread, because with many catalogs rendering would block other requests for too long.
        return await anyio.to_thread.run_sync(self._write, accept, self._state(), limiter=self._writing)

    async def _query_inbox(self) -> None:
        """Query the inbox, one query at a time. Scrapes that arrive during a query share the next one."""
        arrived = self._answers_begun
        async with self._lock:
            if self._answers_begun > arrived:
                return
            self._answers_begun += 1
            self._answers = False
            with anyio.move_on_after(self._inbox_timeout):
                try:
                    self._stats = await self._sources.stats()
                except SfnError:
                    return
                # This call cannot be abandoned, so use it only after the disk just answered.
                self._sizes = {name: _size(file) for name, file in self._sources.files.items()}
                self._answers = True

    def _state(self) -> ServiceState:
        sources = self._sources
        return ServiceState(
            now=self._clock.now(),
            stats=self._stats,
            inbox_answers=self._answers,
            file_sizes=self._sizes,
            is_ready=sources.is_ready(),
            reached_catalogs=frozenset(sources.reached_catalogs()),
            breakers=tuple(sources.breakers()),
        )

    def _write(self, accept: str, state: ServiceState) -> Exposition:
        encode, media_type = negotiate_format(accept)
        return Exposition(media_type, encode(_ScrapeCollector(self._registry, gauges(state, self._names))))


def negotiate_format(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """Return the encoder and the media type for any `Accept` header."""
    try:
        return choose_encoder(accept)
    except TypeError:
        # The library raises this for a version that is not a number.
        return choose_encoder("")


class _ScrapeCollector:
    """A `Collector` of counters and histograms, then gauges."""

    def __init__(self, registry: CollectorRegistry, current: Iterable[Metric]) -> None:
        self._registry, self._current = registry, current

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()
        yield from self._current


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
