"""What is counted and timed of the worker: tables that are published, and sweeps."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

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
            "sfn_fenced_writes_total",
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
        self._withheld = last("withheld", "Namespaces that the last complete sweep could not list")
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
