"""One look at everything, in the text that Prometheus reads."""

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

# ── gauges: What is read when somebody asks for the metrics

STATES: Final = ("due", "scheduled", "retrying", "leased", "dead", "held")
"""What a table's row may be counted as."""
HELD_STATE: Final = "held"


class ScrapedStats(Protocol):
    """The inbox in numbers."""

    @property
    def tables(self) -> Mapping[tuple[str, str], int]:
        """How many tables there are, by catalog and state."""
        ...

    @property
    def oldest_due(self) -> Mapping[str, datetime]:
        """By catalog since when the row has waited longest that something was told of; missing where none does."""
        ...

    @property
    def dead_letters(self) -> Mapping[tuple[str, str], int]:
        """Open dead letters by catalog, "" for none, and reason."""
        ...

    @property
    def limit_reached(self) -> frozenset[str]:
        """The catalogs whose brake is on."""
        ...

    @property
    def open_intents(self) -> Mapping[str, int]:
        """Commits through a gateway whose outcome is not known, by catalog; missing where there is none."""
        ...

    @property
    def missing(self) -> Mapping[str, ScrapedMissingTables]:
        """Tables with a live file that their catalog does not show any more, by catalog."""
        ...


class ScrapedMissingTables(Protocol):
    """Tables with a live file that their catalog does not show any more."""

    @property
    def count(self) -> int:
        """How many."""
        ...

    @property
    def since(self) -> datetime:
        """When the first of them was first seen missing."""
        ...


class ScrapedBreaker(Protocol):
    """What is held off from a catalog or a store, because of its last trouble."""

    @property
    def scope(self) -> ErrorScope:
        """Of a catalog, of a store, or of the process."""
        ...

    @property
    def name(self) -> str:
        """The catalog's; the store's prefix."""
        ...

    @property
    def allowed_probes(self) -> int:
        """How many claims may run; doubled by each success."""
        ...


@dataclass(frozen=True, slots=True)
class LabelNames:
    """The configured names: they alone become labels, and each of them from the start.

    Attributes:
        catalogs: of catalogs.
        stores: of stores, by what each stands for: the prefix of its locations.
        swept: of catalogs that are swept of our own accord, with the seconds from one sweep to the next.
    """

    catalogs: Collection[str]
    stores: Mapping[str, str]
    swept: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceState:
    """How things stand.

    Attributes:
        now: when.
        stats: what the inbox last said; None until it first did.
        inbox_answers: it said so just now.
        file_sizes: bytes of each of the inbox's files.
        is_ready: the process wants traffic.
        reached_catalogs: catalogs that have answered since the start.
        breakers: those that are not closed.
    """

    now: datetime
    stats: ScrapedStats | None
    inbox_answers: bool
    file_sizes: Mapping[str, int]
    is_ready: bool
    reached_catalogs: Collection[str]
    breakers: Collection[ScrapedBreaker]


def gauges(state: ServiceState, names: LabelNames) -> Iterator[GaugeMetricFamily]:
    """How things stand, for Prometheus. Without any figures those series are missing: 0 would be a claim."""
    yield _gauge("sfn_ready", "Whether /readyz says so.", (), [((), state.is_ready)])
    yield _gauge(
        "sfn_inbox_answers",
        "Whether the inbox answered this scrape in time; what it is asked for is old where it did not.",
        (),
        [((), state.inbox_answers)],
    )
    sizes = [((file,), size) for file, size in state.file_sizes.items()]
    yield _gauge("sfn_inbox_bytes", "Sizes of the inbox's files: the database, its write-ahead log.", ("file",), sizes)
    reached = [((catalog,), catalog in state.reached_catalogs) for catalog in names.catalogs]
    yield _gauge("sfn_catalog_reached", "Whether the catalog has answered since the start.", ("catalog",), reached)
    yield _gauge(
        "sfn_sweep_interval_seconds",
        "From one sweep to the next; missing where none is made but those that are ordered.",
        ("catalog",),
        [((catalog,), seconds) for catalog, seconds in names.swept.items()],
    )
    yield _gauge(
        "sfn_breaker_open",
        "Whether nothing has succeeded with a catalog or a store since its last trouble; a store without a name is one "
        "that is not known yet, of tables never published. Scope process: it lacks descriptors, threads or memory.",
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
    yield _gauge("sfn_pending_tables", "Tables by what they wait for.", ("catalog", "state"), tables.items())
    yield _gauge(
        "sfn_oldest_pending_age_seconds",
        "For how long the table has waited that has waited longest, of those that something was told of, however often "
        "it was tried; 0 without any.",
        ("catalog",),
        [((catalog,), age) for catalog, age in ages.items()],
    )
    yield _gauge("sfn_dead_letters", "Open dead letters, by why.", ("catalog", "reason"), letters.items())
    intents = Counter(dict.fromkeys(names.catalogs, 0))
    for catalog, count in stats.open_intents.items():
        intents[_label(catalog, names)] += count
    yield _gauge(
        "sfn_open_intents",
        "Commits through a gateway whose outcome is not known: the catalog is asked for each, for 35 minutes at most.",
        ("catalog",),
        [((catalog,), count) for catalog, count in intents.items()],
    )
    yield from _missing_gauges(stats, now, names)
    held = [((catalog,), count) for (catalog, state), count in tables.items() if state == HELD_STATE]
    description = "Tables that the drop limit holds until an operator releases them."
    yield _gauge("sfn_tables_on_hold", description, ("catalog",), held)
    limit_reached = [((catalog,), catalog in stats.limit_reached) for catalog in names.catalogs]
    yield _gauge(
        "sfn_drop_limit_reached",
        "Whether the catalog's drop limit is reached: it holds tables, or would.",
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
        "Tables with a live file that the catalog does not show any more, before and while their drop is held.",
        ("catalog",),
        [((catalog,), count) for catalog, count in counts.items()],
    )
    yield _gauge(
        "sfn_oldest_missing_age_seconds",
        "For how long the first of these tables has been missing; 0 without any.",
        ("catalog",),
        [((catalog,), age) for catalog, age in ages.items()],
    )


def _open_breakers(state: ServiceState, names: LabelNames) -> dict[tuple[str, str], bool]:
    known = {(ErrorScope.CATALOG.value, name): False for name in names.catalogs}
    known |= {(ErrorScope.STORE.value, name): False for name in names.stores.values()}
    known[ErrorScope.PROCESS.value, ""] = False
    for breaker in state.breakers:
        # More slots than one: something succeeded since. One that nobody asks any more may stay half open for ever.
        if breaker.allowed_probes <= 1:
            of_catalog = breaker.scope is ErrorScope.CATALOG
            name = _label(breaker.name, names) if of_catalog else names.stores.get(breaker.name, "")
            known[breaker.scope.value, name] = True
    return known


def _with_zeros(
    counts: Mapping[tuple[str, str], int], known: Iterable[tuple[str, str]], names: LabelNames
) -> dict[tuple[str, str], int]:
    """Counts with a 0 for whatever is known to have none, and one catalog for those that are not configured."""
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


# ── scrape: One look at everything

INBOX_TIMEOUT: Final = 1.0
"""Seconds that the inbox may take: a scrape has 10 s, and may be the only one who tells that a disk hangs."""


@dataclass(frozen=True, slots=True)
class ScrapeSources:
    """Whom a scrape asks. But for the first one nothing of it may wait.

    Attributes:
        stats: the inbox in numbers; an `SfnError` is no answer.
        files: those of the inbox; one that is not there has no bytes.
        is_ready: whether the process wants traffic.
        reached_catalogs: which catalogs have answered.
        breakers: those that are not closed.
    """

    stats: Callable[[], Awaitable[ScrapedStats]]
    files: Mapping[str, Path]
    is_ready: Callable[[], bool]
    reached_catalogs: Callable[[], Collection[str]]
    breakers: Callable[[], Collection[ScrapedBreaker]]


@dataclass(frozen=True, slots=True)
class Exposition:
    """What a scrape gets.

    Attributes:
        media_type: a value of `Content-Type`.
        content: the text.
    """

    media_type: str
    content: bytes


class Scrape:
    """Answers scrapes, whatever hangs.

    Args:
        registry: what was counted.
        sources: what is read at that moment.
        names: the configured names.
        clock: the wall clock.
        inbox_timeout: seconds that the inbox is waited for; then what it said last is what there is.
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
        """The metrics in the format that the client likes best.

        Args:
            accept: its `Accept` header, may be empty.
        """
        await self._ask()
        # In a thread: where there are many catalogs the text takes longer to write than a request may wait.
        return await anyio.to_thread.run_sync(self._write, accept, self._state(), limiter=self._writing)

    async def _ask(self) -> None:
        """Ask the inbox. Who came while it was being asked shares the next answer: a flood asks one at a time."""
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
                # Only of a disk that just answered: this call can't be given up.
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
    """How a page is written, and its media type.

    Args:
        accept: a header, whatever it says.
    """
    try:
        return choose_encoder(accept)
    except TypeError:
        # The library's answer to a version that is no number.
        return choose_encoder("")


class _ScrapeCollector:
    """Implements the library's `Collector`: what was counted, then how things stand."""

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
