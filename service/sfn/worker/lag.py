"""`LagHistory`: how long after its commit each change was published, over the last hour, by catalog."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

HOUR: Final = timedelta(hours=1)
_MINUTES: Final = 60
_GROWTH: Final = 1.15
"""Ratio of the bounds of two neighbouring classes: a quantile is at most so much too great."""
_FIRST: Final = 0.001
"""Upper bound of the first class, in seconds."""
_LOG_GROWTH: Final = math.log(_GROWTH)


@dataclass(frozen=True, slots=True)
class LagSummary:
    """The lag of the publishes in a span of time, in seconds.

    Attributes:
        count: number of publishes.
        p50, p95: half, and 95 %, of them were at most so late; at most 15 % too great.
        worst: the greatest lag.
    """

    count: int
    p50: float
    p95: float
    worst: float


@dataclass(slots=True)
class _Minute:
    """The publishes of one minute.

    Attributes:
        number: minutes since 1970.
        counts: their number, by class of the lag.
        worst: the greatest lag.
    """

    number: int
    counts: dict[int, int]
    worst: float = 0.0


class LagHistory:
    """The lag of publishes in this process. A minute takes some hundred bytes, whatever the number of publishes."""

    def __init__(self) -> None:
        self._minutes: defaultdict[str, deque[_Minute]] = defaultdict(lambda: deque(maxlen=_MINUTES))

    @property
    def catalogs(self) -> Sequence[str]:
        """The catalogs with a publish since the start."""
        return tuple(self._minutes)

    def observe(self, catalog: str, seconds: float, now: datetime) -> None:
        """Add a publish of a catalog's table."""
        number = _minute(now)
        minutes = self._minutes[catalog]
        if not minutes or minutes[-1].number < number:
            minutes.append(_Minute(number, {}))
        latest = minutes[-1]
        kind = _class_of(seconds)
        latest.counts[kind] = latest.counts.get(kind, 0) + 1
        latest.worst = max(latest.worst, seconds)

    def summary(self, catalog: str, now: datetime) -> LagSummary | None:
        """Return the lag of the last hour; None if nothing was published."""
        return _summarised(self._since(catalog, now))

    def by_minute(self, catalog: str, now: datetime) -> Sequence[LagSummary | None]:
        """Return the lag of each of the last 60 minutes, the oldest first; None for a minute without a publish."""
        known = {one.number: one for one in self._since(catalog, now)}
        last = _minute(now)
        return [
            _summarised([known[number]] if number in known else []) for number in range(last - _MINUTES + 1, last + 1)
        ]

    def _since(self, catalog: str, now: datetime) -> list[_Minute]:
        oldest = _minute(now) - _MINUTES
        return [one for one in self._minutes.get(catalog, ()) if one.number > oldest]


def _minute(at: datetime) -> int:
    return int(at.timestamp() // 60)


def _class_of(seconds: float) -> int:
    """Return the class of a lag: the number of the smallest bound that is not below it."""
    if seconds <= _FIRST:
        return 0
    return math.ceil(math.log(seconds / _FIRST) / _LOG_GROWTH)


def _summarised(minutes: Iterable[_Minute]) -> LagSummary | None:
    counts: defaultdict[int, int] = defaultdict(int)
    worst = 0.0
    for minute in minutes:
        worst = max(worst, minute.worst)
        for kind, count in minute.counts.items():
            counts[kind] += count
    total = sum(counts.values())
    if not total:
        return None
    p50, p95 = (min(_quantile(counts, total, share), worst) for share in (0.5, 0.95))
    return LagSummary(total, p50, p95, worst)


def _quantile(counts: dict[int, int], total: int, share: float) -> float:
    """Return the upper bound of the class that has the quantile."""
    left = share * total
    for kind in sorted(counts):
        left -= counts[kind]
        if left <= 0:
            return _FIRST * _GROWTH**kind
    return math.inf
