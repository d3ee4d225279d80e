"""What is counted and timed of the worker: tables that are published, and sweeps."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sfn.words import Cause, Dead, Done, Later, Reason, Released, Retry, Swept

NOT_CONFIGURED: Final = ""
"""The catalog's label of what belongs to no configured one: rows of one that was, and requests nobody understood."""
UNDECODABLE: Final = "undecodable"
"""The reason of a dead letter that is no table's."""
REASONS: Final = tuple(reason.value for reason in Reason if reason.value != UNDECODABLE)
"""Why a table may be a dead letter."""

_ENDINGS: Final = (
    (Done.label, ""),
    (Later.label, ""),
    *((Retry.label, cause.value) for cause in (Cause.TABLE, Cause.DEFECT)),
    *((Released.label, cause.value) for cause in (Cause.CATALOG, Cause.STORE, Cause.INBOX, Cause.PROCESS, Cause.STOP)),
    *((Dead.label, reason) for reason in REASONS),
)
_SWEEPS: Final = (Swept.label, Retry.label, Released.label)
_PUBLISH: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_STALENESS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14_400)


class Work:
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
            buckets=_PUBLISH,
        )
        self._staleness = Histogram(
            "sfn_staleness_seconds",
            "From a commit (last-updated-ms) until its pointer was written; without the first pointer of each table, "
            "whose last commit may be years old.",
            ("catalog",),
            registry=registry,
            buckets=_STALENESS,
        )
        self._expired = Counter(
            "sfn_lease_expirations_total",
            "Leases that ran out, those too that the process before this one left behind.",
            registry=registry,
        )
        self._fenced = Counter(
            "sfn_fenced_writes_total",
            "Attempts of which nothing was taken, as their lease was lost: another one, or an operator, has the row.",
            registry=registry,
        )
        self.sweeps = Sweeps(registry, catalogs)
        for catalog in catalogs:
            for outcome, error_class in _ENDINGS:
                self._attempts.labels(catalog, outcome, error_class)
            for histogram in (self._durations, self._staleness):
                histogram.labels(catalog)

    def ended(self, catalog: str, outcome: str, error_class: str) -> None:
        """An attempt of a table ended.

        Args:
            catalog: whose table it is.
            outcome: its name, such as `done`.
            error_class: a dead letter's reason, else the value of a `Cause`; empty where nothing was in the way.
        """
        self._attempts.labels(_label(catalog, self._catalogs), outcome, error_class).inc()

    def seen_through(self, catalog: str, seconds: float) -> None:
        """An attempt of a table saw it through, in that time."""
        self._durations.labels(_label(catalog, self._catalogs)).observe(seconds)

    def pointed(self, catalog: str, seconds: float) -> None:
        """A table's files name a commit that is that old."""
        self._staleness.labels(_label(catalog, self._catalogs)).observe(seconds)

    def expired(self, leases: int) -> None:
        """So many leases ran out."""
        self._expired.inc(leases)

    def fenced(self) -> None:
        """Nothing of an attempt was taken: its lease was lost."""
        self._fenced.inc()


class Sweeps:
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
        self._withheld = last("withheld", "Namespaces that the last complete sweep could not list")
        self._differing = last("differing", "Tables that the last complete sweep found to differ from their files")
        for catalog in catalogs:
            for outcome in _SWEEPS:
                self._attempts.labels(catalog, outcome)
            for gauge in (self._end, self._duration, self._tables, self._withheld, self._differing):
                gauge.labels(catalog)

    def ended(self, catalog: str, outcome: str) -> None:
        """An attempt to sweep a catalog ended."""
        self._attempts.labels(_label(catalog, self._catalogs), outcome).inc()

    def complete(self, catalog: str, swept: Swept, at: datetime, seconds: float) -> None:
        """A sweep is complete.

        Args:
            catalog: which was swept.
            swept: what it says.
            at: when it ended.
            seconds: how long it took.
        """
        label = _label(catalog, self._catalogs)
        self._end.labels(label).set(at.timestamp())
        self._duration.labels(label).set(seconds)
        self._tables.labels(label).set(swept.tables)
        self._withheld.labels(label).set(len(swept.withheld))
        self._differing.labels(label).set(swept.differing)


def _label(catalog: str, configured: Collection[str]) -> str:
    return catalog if catalog in configured else NOT_CONFIGURED
