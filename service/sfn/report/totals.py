"""How many tables of a slice, or of a run, stand how: what a snapshot says of its rows, so that nobody counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sfn.report.columns import AuditState, ReportRow

FINE_STATES: Final = frozenset({AuditState.CURRENT, AuditState.SKIPPED, AuditState.UNWRITTEN})
"""States that call for nothing."""
UNCHECKED_STATES: Final = frozenset({AuditState.UNKNOWN, AuditState.WITHHELD, AuditState.UNLISTED})

_COUNT_KEYS: Final = {
    name: f"sfn.{name}"
    for name in ("tables", "differing", "unchecked", "unchanged", "with_missing_files", "unnotified")
}
_LAG_KEY: Final = "sfn.worst-lag-seconds"


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Of some rows.

    Attributes:
        tables: all of them.
        differing: that something is the matter with.
        unchecked: that, or the files of which, could not be looked at; namespaces are among them.
        with_missing_files: that lack files of their current snapshot.
        unnotified: of which the service was to be told, and could not be.
        unchanged: of which the catalog said no more than that.
        worst_lag_seconds: None where nothing is late, or nobody can tell how late.
    """

    tables: int = 0
    differing: int = 0
    unchecked: int = 0
    unchanged: int = 0
    with_missing_files: int = 0
    unnotified: int = 0
    worst_lag_seconds: float | None = None

    @classmethod
    def of_rows(cls, entries: Sequence[ReportRow]) -> RunTotals:
        """Those of rows."""
        return cls(
            len(entries),
            sum(entry.state not in FINE_STATES | UNCHECKED_STATES for entry in entries),
            sum(entry.error is not None for entry in entries),
            sum(entry.unchanged for entry in entries),
            sum(bool(entry.deep) for entry in entries),
            0,
            max((entry.lag_seconds for entry in entries if entry.lag_seconds is not None), default=None),
        )

    @classmethod
    def from_summary(cls, summary: Mapping[str, str]) -> RunTotals:
        """Those that a snapshot's summary says."""
        counts = {name: int(summary.get(key, 0)) for name, key in _COUNT_KEYS.items()}
        return cls(**counts, worst_lag_seconds=float(summary[_LAG_KEY]) if _LAG_KEY in summary else None)

    def summary(self) -> dict[str, str]:
        """As a snapshot's summary says them."""
        lag = {} if self.worst_lag_seconds is None else {_LAG_KEY: f"{self.worst_lag_seconds:.3f}"}
        return {key: str(getattr(self, name)) for name, key in _COUNT_KEYS.items()} | lag

    def __add__(self, other: RunTotals) -> RunTotals:
        lags = [lag for lag in (self.worst_lag_seconds, other.worst_lag_seconds) if lag is not None]
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNT_KEYS}
        return RunTotals(**counts, worst_lag_seconds=max(lags, default=None))
