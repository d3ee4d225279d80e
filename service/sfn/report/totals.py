"""How many tables of a slice, or of a run, stand how: what a snapshot says of its rows, so that nobody counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sfn.report.columns import Entry, Standing

FINE: Final = frozenset({Standing.CURRENT, Standing.LEFT_ALONE, Standing.UNWRITTEN})
"""States that call for nothing."""
UNSEEN: Final = frozenset({Standing.UNKNOWN, Standing.WITHHELD, Standing.UNLISTED})

_COUNTS: Final = {name: f"sfn.{name}" for name in ("tables", "differing", "unseen", "unchanged", "lacking", "untold")}
_LAG: Final = "sfn.worst-lag-seconds"


@dataclass(frozen=True, slots=True)
class Totals:
    """Of some rows.

    Attributes:
        tables: all of them.
        differing: that something is the matter with.
        unseen: that, or the files of which, could not be looked at; namespaces are among them.
        lacking: that lack files of their current snapshot.
        untold: of which the service was to be told, and could not be.
        unchanged: of which the catalog said no more than that.
        worst_lag_seconds: None where nothing is late, or nobody can tell how late.
    """

    tables: int = 0
    differing: int = 0
    unseen: int = 0
    unchanged: int = 0
    lacking: int = 0
    untold: int = 0
    worst_lag_seconds: float | None = None

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Totals:
        """Those of rows."""
        return cls(
            len(entries),
            sum(entry.state not in FINE | UNSEEN for entry in entries),
            sum(entry.error is not None for entry in entries),
            sum(entry.unchanged for entry in entries),
            sum(bool(entry.deep) for entry in entries),
            0,
            max((entry.lag_seconds for entry in entries if entry.lag_seconds is not None), default=None),
        )

    @classmethod
    def said(cls, summary: Mapping[str, str]) -> Totals:
        """Those that a snapshot's summary says."""
        counts = {name: int(summary.get(key, 0)) for name, key in _COUNTS.items()}
        return cls(**counts, worst_lag_seconds=float(summary[_LAG]) if _LAG in summary else None)

    def summary(self) -> dict[str, str]:
        """As a snapshot's summary says them."""
        lag = {} if self.worst_lag_seconds is None else {_LAG: f"{self.worst_lag_seconds:.3f}"}
        return {key: str(getattr(self, name)) for name, key in _COUNTS.items()} | lag

    def __add__(self, other: Totals) -> Totals:
        lags = [lag for lag in (self.worst_lag_seconds, other.worst_lag_seconds) if lag is not None]
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return Totals(**counts, worst_lag_seconds=max(lags, default=None))
