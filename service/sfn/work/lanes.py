"""Slots and breakers: how much work each lane may have running. Pure: state in, numbers out.

A breaker belongs to one catalog or one store, and so to every lane of it.

    closed      every slot
    open        no slot until `until`: 0.5 s, doubling to `LONGEST`
    half open   `width` slots: 1 at first, doubled by each success, until it is closed again
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sfn.errors import Scope
from sfn.words import Lane, Slots, Urgency

FIRST = timedelta(seconds=0.5)
LONGEST = timedelta(seconds=1)
"""Short, because it bounds how late the first publish comes after an outage; the probe is a single claim."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """The breaker of one catalog or store that had trouble.

    Attributes:
        until: open until then.
        pause: how long it was opened for.
        width: how many claims may run once it is half open.
    """

    until: datetime
    pause: timedelta
    width: int = 1


class Lanes:
    """What is running, and what more may run.

    Args:
        concurrency: tables at a time, over all lanes.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._running: Counter[Lane] = Counter()
        self._seen: set[Lane] = set()
        self._breakers: dict[tuple[Scope, str], Breaker] = {}

    def started(self, lane: Lane) -> None:
        """A claim of the lane began."""
        self._running[lane] += 1
        self._seen.add(lane)

    def ended(self, lane: Lane) -> None:
        """A claim of the lane ended."""
        self._running[lane] -= 1

    def trouble(self, lane: Lane, scope: Scope, now: datetime, retry_after: float | None) -> datetime:
        """The lane's catalog or store failed: when to try again.

        Args:
            retry_after: seconds that the other side asked for.
        """
        key = (scope, lane.catalog if scope is Scope.CATALOG else lane.store)
        old = self._breakers.get(key)
        if old is not None and now < old.until:
            return old.until
        pause = min(LONGEST, old.pause * 2) if old is not None else FIRST
        until = now + max(pause, timedelta(seconds=retry_after or 0))
        self._breakers[key] = Breaker(until, pause)
        return until

    def success(self, lane: Lane) -> None:
        """The lane's catalog and store answered."""
        for key in _keys(lane):
            breaker = self._breakers.get(key)
            if breaker is None:
                continue
            if breaker.width * 2 >= self._concurrency:
                del self._breakers[key]
            else:
                self._breakers[key] = replace(breaker, width=breaker.width * 2)

    def slots(self, now: datetime) -> Slots:
        """What may be claimed now."""
        sweeps = sum(count for lane, count in self._running.items() if lane.urgency is Urgency.SWEEP)
        live = sum(count for lane, count in self._running.items() if lane.urgency is Urgency.LIVE)
        total = self._concurrency - (sum(self._running.values()) - sweeps)
        named = {lane: free for lane in self._seen if (free := self._free(lane, now)) is not None}
        most_live = max(1, self._concurrency - 1)
        most_sweeps = max(1, self._concurrency // 4)
        return Slots(total=total, live=most_live - live, sweeps=most_sweeps - sweeps, named=named)

    def reopens_at(self, now: datetime) -> datetime | None:
        """When the next open breaker becomes half open."""
        return min((breaker.until for breaker in self._breakers.values() if breaker.until > now), default=None)

    def is_open(self, lane: Lane, now: datetime) -> bool:
        """Whether nothing of the lane may run now."""
        return any(now < breaker.until for _, breaker in self._of(lane))

    def _of(self, lane: Lane) -> Iterable[tuple[tuple[Scope, str], Breaker]]:
        return [(key, self._breakers[key]) for key in _keys(lane) if key in self._breakers]

    def _free(self, lane: Lane, now: datetime) -> int | None:
        """The lane's free slots where a breaker bounds them."""
        bounds = []
        for (scope, name), breaker in self._of(lane):
            running = sum(count for other, count in self._running.items() if (scope, name) in _keys(other))
            bounds.append(0 if now < breaker.until else max(0, breaker.width - running))
        return min(bounds, default=None)


def _keys(lane: Lane) -> list[tuple[Scope, str]]:
    return [(Scope.CATALOG, lane.catalog), (Scope.STORE, lane.store)]
