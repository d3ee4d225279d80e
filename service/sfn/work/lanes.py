"""Slots and breakers: how much work each lane may have running. Pure: state in, numbers out.

A breaker belongs to one catalog or one store, and so to every lane of it; or to the process, and so to all lanes.

    closed      every slot
    open        no slot until `until`: 0.5 s, doubling to `MAX_CACHE_LIFETIME`, or as long as the other side asks for
    half open   `width` slots for tables and as many for sweeps: 1 at first, doubled by each success, until it is closed
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from sfn.errors import Scope
from sfn.words import Lane, Slots, Urgency
from sfn.work.retry import heeded

_Key: TypeAlias = tuple[Scope, str, str]
"""What a breaker belongs to: its scope, and the name of a catalog or of a store; the other one is empty.

Both are empty for the process.
"""
_PROCESS: _Key = Scope.PROCESS, "", ""

FIRST = timedelta(seconds=0.5)
LONGEST = timedelta(seconds=1)
"""Short, because it bounds how late the first publish comes after an outage; the probe is a single claim."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """The breaker of one catalog or store that had trouble.

    Attributes:
        until: open until then.
        pause: how long it was opened for.
        since: since when nothing has succeeded.
        error: the last trouble, in words.
        width: how many claims may run once it is half open.
    """

    until: datetime
    pause: timedelta
    since: datetime
    error: str
    width: int = 1


@dataclass(frozen=True, slots=True)
class BreakerState:
    """A breaker that is not closed, for people.

    Attributes:
        scope: of a catalog, of a store, or of the process.
        name: of that catalog or store; of the catalog, for a store that is not known yet; "" for the process.
        until: open until then; half open if that is over.
        slots: how many claims it lets run; more than one: something has succeeded since the trouble.
        since: when the trouble began.
        error: the last trouble, in words.
    """

    scope: Scope
    name: str
    until: datetime
    slots: int
    since: datetime
    error: str


class Lanes:
    """What is running, and what more may run.

    Args:
        concurrency: tables at a time, over all lanes.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._running: Counter[Lane] = Counter()
        self._seen: set[Lane] = set()
        self._breakers: dict[_Key, Breaker] = {}

    def started(self, lane: Lane) -> None:
        """A claim of the lane began."""
        self._running[lane] += 1
        if lane not in self._seen:
            # What the same rows are claimed from next has the same breakers, before anything was.
            same = () if lane.urgency is Urgency.SWEEP else (Urgency.SHORT_LIVED, Urgency.LIVE, Urgency.CHORE)
            self._seen |= {lane, *(replace(lane, urgency=urgency) for urgency in same)}

    def ended(self, lane: Lane) -> None:
        """A claim of the lane ended."""
        self._running[lane] -= 1

    def trouble(
        self, lane: Lane, scope: Scope, now: datetime, retry_after: float | None, error: str = ""
    ) -> BreakerState:
        """The lane's catalog or store failed, or the process: its breaker, which says when to try again.

        Args:
            retry_after: seconds that the other side asked for.
            error: what went wrong, in words.
        """
        key = _PROCESS if scope is Scope.PROCESS else _catalog(lane) if scope is Scope.CATALOG else _store(lane)
        old = self._breakers.get(key)
        asked = now + heeded(retry_after)
        if old is not None and now < old.until:
            new = replace(old, until=max(old.until, asked), error=error)
        else:
            pause = min(LONGEST, old.pause * 2) if old is not None else FIRST
            since = old.since if old is not None and old.width == 1 else now
            new = Breaker(max(now + pause, asked), pause, since, error)
        self._breakers[key] = new
        return _state(key, new, now)

    def success(self, lane: Lane, now: datetime, *, stored: bool) -> list[BreakerState]:
        """The lane's catalog answered, and its store where it was asked; what is open does not believe it.

        Args:
            stored: the store was asked.

        Returns:
            The breakers of what works again, as they were.
        """
        back = []
        for key in _keys(lane) if stored else [_PROCESS, _catalog(lane)]:
            breaker = self._breakers.get(key)
            # Who was in flight when the trouble came knows less than the trouble.
            if breaker is None or now < breaker.until:
                continue
            if breaker.width == 1:
                back.append(_state(key, breaker, now))
            if breaker.width * 2 >= self._concurrency:
                del self._breakers[key]
            else:
                self._breakers[key] = replace(breaker, width=breaker.width * 2)
        return back

    def slots(self, now: datetime) -> Slots:
        """What may be claimed now."""
        sweeps = sum(count for lane, count in self._running.items() if lane.urgency is Urgency.SWEEP)
        live = sum(count for lane, count in self._running.items() if lane.is_told)
        first = sum(count for lane, count in self._running.items() if lane.urgency is Urgency.SHORT_LIVED)
        total = self._concurrency - (sum(self._running.values()) - sweeps)
        named = {lane: free for lane in self._seen if (free := self._free(lane, now)) is not None}
        most_live = max(1, self._concurrency - 1)
        most_sweeps = max(1, self._concurrency // 4)
        beside = self._beside_others(total)
        return Slots(total, most_live - live, most_sweeps - sweeps, named, beside, max(1, most_live - 1) - first)

    def _beside_others(self, free: int) -> dict[str, int]:
        """What each catalog may take of the free slots: one that hangs must leave the others theirs."""
        catalogs = {lane.catalog for lane in self._seen}
        share = self._concurrency // (2 * max(1, len(catalogs)))
        running: Counter[str] = Counter()
        for lane, count in self._running.items():
            running[lane.catalog] += count if lane.urgency is not Urgency.SWEEP else 0
        kept = {catalog: max(0, share - running[catalog]) for catalog in catalogs}
        return {catalog: max(0, free - sum(kept.values()) + kept[catalog]) for catalog in catalogs}

    def reopens_at(self, now: datetime) -> datetime | None:
        """When the next open breaker becomes half open."""
        return min((breaker.until for breaker in self._breakers.values() if breaker.until > now), default=None)

    def breakers(self, now: datetime) -> list[BreakerState]:
        """Those that are not closed, by name."""
        return [_state(key, self._breakers[key], now) for key in sorted(self._breakers)]

    def _free(self, lane: Lane, now: datetime) -> int | None:
        """The lane's free slots where a breaker bounds them."""
        bounds = []
        for key in _keys(lane):
            breaker = self._breakers.get(key)
            if breaker is None:
                continue
            alike = [other for other in self._running if key in _keys(other) and _alike(other, lane)]
            running = sum(self._running[other] for other in alike)
            bounds.append(0 if now < breaker.until else max(0, breaker.width - running))
        return min(bounds, default=None)


def _state(key: _Key, breaker: Breaker, now: datetime) -> BreakerState:
    scope, catalog, store = key
    slots = 0 if now < breaker.until else breaker.width
    return BreakerState(scope, store or catalog, breaker.until, slots, breaker.since, breaker.error)


def _alike(one: Lane, other: Lane) -> bool:
    """Whether both are sweeps, or neither is: a sweep takes minutes, and tables must not wait for it to probe."""
    return (one.urgency is Urgency.SWEEP) == (other.urgency is Urgency.SWEEP)


def _keys(lane: Lane) -> list[_Key]:
    """A sweep asks no store."""
    asked = [_PROCESS, _catalog(lane)]
    return asked if lane.urgency is Urgency.SWEEP else [*asked, _store(lane)]


def _catalog(lane: Lane) -> _Key:
    return Scope.CATALOG, lane.catalog, ""


def _store(lane: Lane) -> _Key:
    """One that is not known yet may be any: what it refuses holds up its own catalog, not the others."""
    return Scope.STORE, "" if lane.store else lane.catalog, lane.store
