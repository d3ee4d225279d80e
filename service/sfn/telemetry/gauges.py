"""What is read when somebody asks for the metrics: how things stand at that moment. No large table is scanned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from prometheus_client.core import GaugeMetricFamily

from sfn.errors import ErrorScope
from sfn.telemetry.work import NOT_CONFIGURED, REASONS, UNDECODABLE

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
    yield _gauge("sfn_held_tables", "Tables that the brake holds until an operator releases it.", ("catalog",), held)
    limit_reached = [((catalog,), catalog in stats.limit_reached) for catalog in names.catalogs]
    yield _gauge(
        "sfn_brake_tripped",
        "Whether the catalog's brake is on: it holds tables, or would.",
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
