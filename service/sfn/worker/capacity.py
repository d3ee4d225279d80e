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
from typing import Final, TypeAlias
from urllib.parse import quote

import structlog

from sfn.clock import Clock
from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import Capacity, ConcurrencyGroup, Priority
from sfn.errors import ErrorScope, ExternalError, Transient
from sfn.storage import ObjectStore, StoreRouter
from sfn.storage.object_store import DenialReach, PermissionTracker
from sfn.worker.retry import bounded_retry_after

# ── lanes: Slots and breakers

_Key: TypeAlias = tuple[ErrorScope, str, str]
"""What a breaker belongs to: its scope, and the name of a catalog or of a store; the other one is empty.

Both are empty for the process.
"""
_PROCESS: _Key = ErrorScope.PROCESS, "", ""

FIRST_PAUSE = timedelta(seconds=0.5)
MAX_PAUSE = timedelta(seconds=1)
"""Short, because it bounds how late the first publish comes after an outage; the probe is a single claim."""


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """The breaker of one catalog or store that had trouble.

    Attributes:
        open_until: open until then.
        pause: how long it was opened for.
        failing_since: since when nothing has succeeded.
        error: the last trouble, in words.
        max_probes: how many claims may run once it is half open.
    """

    open_until: datetime
    pause: timedelta
    failing_since: datetime
    error: str
    max_probes: int = 1


@dataclass(frozen=True, slots=True)
class CircuitBreakerState:
    """A breaker that is not closed, for people.

    Attributes:
        scope: of a catalog, of a store, or of the process.
        name: of that catalog or store; of the catalog, for a store that is not known yet; "" for the process.
        open_until: open until then; half open if that is over.
        allowed_probes: how many claims it lets run; more than one: something has succeeded since the trouble.
        failing_since: when the trouble began.
        error: the last trouble, in words.
    """

    scope: ErrorScope
    name: str
    open_until: datetime
    allowed_probes: int
    failing_since: datetime
    error: str


class CapacityTracker:
    """What is running, and what more may run.

    Args:
        concurrency: tables at a time, over all lanes.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._running: Counter[ConcurrencyGroup] = Counter()
        self._seen: set[ConcurrencyGroup] = set()
        self._breakers: dict[_Key, CircuitBreaker] = {}

    def job_started(self, group: ConcurrencyGroup) -> None:
        """A claim of the lane began."""
        self._running[group] += 1
        if group not in self._seen:
            # What the same rows are claimed from next has the same breakers, before anything was.
            same = (
                () if group.priority is Priority.SWEEP else (Priority.SHORT_LIVED, Priority.LIVE, Priority.BACKGROUND)
            )
            self._seen |= {group, *(replace(group, priority=urgency) for urgency in same)}

    def job_ended(self, group: ConcurrencyGroup) -> None:
        """A claim of the lane ended."""
        self._running[group] -= 1

    def record_failure(
        self, group: ConcurrencyGroup, scope: ErrorScope, now: datetime, retry_after: float | None, error: str = ""
    ) -> CircuitBreakerState:
        """The lane's catalog or store failed, or the process: its breaker, which says when to try again.

        Args:
            retry_after: seconds that the other side asked for.
            error: what went wrong, in words.
        """
        key = (
            _PROCESS
            if scope is ErrorScope.PROCESS
            else _catalog_key(group)
            if scope is ErrorScope.CATALOG
            else _store_key(group)
        )
        old = self._breakers.get(key)
        asked = now + bounded_retry_after(retry_after)
        if old is not None and now < old.open_until:
            new = replace(old, open_until=max(old.open_until, asked), error=error)
        else:
            pause = min(MAX_PAUSE, old.pause * 2) if old is not None else FIRST_PAUSE
            since = old.failing_since if old is not None and old.max_probes == 1 else now
            new = CircuitBreaker(max(now + pause, asked), pause, since, error)
        self._breakers[key] = new
        return _breaker_state(key, new, now)

    def record_success(self, group: ConcurrencyGroup, now: datetime, *, store_used: bool) -> list[CircuitBreakerState]:
        """The lane's catalog answered, and its store where it was asked; what is open does not believe it.

        Args:
            store_used: the store was asked.

        Returns:
            The breakers of what works again, as they were.
        """
        recovered = []
        for key in _breaker_keys(group) if store_used else [_PROCESS, _catalog_key(group)]:
            breaker = self._breakers.get(key)
            # Who was in flight when the trouble came knows less than the trouble.
            if breaker is None or now < breaker.open_until:
                continue
            if breaker.max_probes == 1:
                recovered.append(_breaker_state(key, breaker, now))
            if breaker.max_probes * 2 >= self._concurrency:
                del self._breakers[key]
            else:
                self._breakers[key] = replace(breaker, max_probes=breaker.max_probes * 2)
        return recovered

    def capacity(self, now: datetime) -> Capacity:
        """What may be claimed now."""
        sweeps = sum(count for lane, count in self._running.items() if lane.priority is Priority.SWEEP)
        live = sum(count for lane, count in self._running.items() if lane.is_event_driven)
        short_lived = sum(count for lane, count in self._running.items() if lane.priority is Priority.SHORT_LIVED)
        total = self._concurrency - (sum(self._running.values()) - sweeps)
        per_group = {lane: free for lane in self._seen if (free := self._free_in(lane, now)) is not None}
        most_live = max(1, self._concurrency - 1)
        most_sweeps = max(1, self._concurrency // 4)
        per_catalog = self._capacity_by_catalog(total)
        return Capacity(
            total, most_live - live, most_sweeps - sweeps, per_group, per_catalog, max(1, most_live - 1) - short_lived
        )

    def _capacity_by_catalog(self, free: int) -> dict[str, int]:
        """What each catalog may take of the free slots: one that hangs must leave the others theirs."""
        catalogs = {group.catalog for group in self._seen}
        share = self._concurrency // (2 * max(1, len(catalogs)))
        running: Counter[str] = Counter()
        for group, count in self._running.items():
            running[group.catalog] += count if group.priority is not Priority.SWEEP else 0
        reserved = {catalog: max(0, share - running[catalog]) for catalog in catalogs}
        return {catalog: max(0, free - sum(reserved.values()) + reserved[catalog]) for catalog in catalogs}

    def reopens_at(self, now: datetime) -> datetime | None:
        """When the next open breaker becomes half open."""
        return min(
            (breaker.open_until for breaker in self._breakers.values() if breaker.open_until > now), default=None
        )

    def unclosed_breakers(self, now: datetime) -> list[CircuitBreakerState]:
        """Those that are not closed, by name."""
        return [_breaker_state(key, self._breakers[key], now) for key in sorted(self._breakers)]

    def _free_in(self, group: ConcurrencyGroup, now: datetime) -> int | None:
        """The lane's free slots where a breaker bounds them."""
        bounds = []
        for key in _breaker_keys(group):
            breaker = self._breakers.get(key)
            if breaker is None:
                continue
            alike = [
                other
                for other in self._running
                if key in _breaker_keys(other) and _are_both_sweeps_or_neither(other, group)
            ]
            running = sum(self._running[other] for other in alike)
            bounds.append(0 if now < breaker.open_until else max(0, breaker.max_probes - running))
        return min(bounds, default=None)


def _breaker_state(key: _Key, breaker: CircuitBreaker, now: datetime) -> CircuitBreakerState:
    scope, catalog, store = key
    slots = 0 if now < breaker.open_until else breaker.max_probes
    return CircuitBreakerState(scope, store or catalog, breaker.open_until, slots, breaker.failing_since, breaker.error)


def _are_both_sweeps_or_neither(one: ConcurrencyGroup, other: ConcurrencyGroup) -> bool:
    """Whether both are sweeps, or neither is: a sweep takes minutes, and tables must not wait for it to probe."""
    return (one.priority is Priority.SWEEP) == (other.priority is Priority.SWEEP)


def _breaker_keys(group: ConcurrencyGroup) -> list[_Key]:
    """A sweep asks no store."""
    keys = [_PROCESS, _catalog_key(group)]
    return keys if group.priority is Priority.SWEEP else [*keys, _store_key(group)]


def _catalog_key(group: ConcurrencyGroup) -> _Key:
    return ErrorScope.CATALOG, group.catalog, ""


def _store_key(group: ConcurrencyGroup) -> _Key:
    """One that is not known yet may be any: what it refuses holds up its own catalog, not the others."""
    return ErrorScope.STORE, "" if group.store else group.catalog, group.store


# ── outages: The outages of catalogs and stores

LOG_INTERVAL: Final = timedelta(minutes=1)
"""From one record of a catalog or store that is away to the next: what is away is asked every second."""

_ATTEMPT_ACTION: Final = "attempt"

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _LoggedOutage:
    """What the log knows of one catalog or store.

    Attributes:
        logged_at: when it was last told that it is away.
        suppressed: troubles since then.
        is_ongoing: it was not told since that it works again.
    """

    logged_at: datetime
    suppressed: int = 0
    is_ongoing: bool = True


class CircuitBreakers:
    """Opens and closes breakers, and tells the log that something is away, and that it works again.

    Args:
        lanes: the worker's.
        clock: the wall clock.
    """

    def __init__(self, capacity: CapacityTracker, clock: Clock) -> None:
        self._capacity, self._clock = capacity, clock
        self._logged: dict[tuple[ErrorScope, str], _LoggedOutage] = {}
        self._attempts = PermissionTracker(lambda: clock.now().timestamp())

    def record_failure(self, group: ConcurrencyGroup, error: ExternalError) -> datetime:
        """The lane's catalog or store failed: when to try again."""
        now = self._clock.now()
        breaker = self._capacity.record_failure(group, error.scope, now, error.retry_after, str(error))
        logged = self._logged.get((breaker.scope, breaker.name))
        # A clock that was set back must not silence anything for longer.
        if logged is not None and logged.logged_at <= now < logged.logged_at + LOG_INTERVAL:
            logged.suppressed += 1
        else:
            self._logged[breaker.scope, breaker.name] = _LoggedOutage(now)
            _log.warning(
                "process short of resources" if breaker.scope is ErrorScope.PROCESS else f"{breaker.scope} away",
                name=breaker.name,
                since=breaker.failing_since.isoformat(),
                error=breaker.error,
                left_out=logged.suppressed if logged is not None else 0,
            )
        return breaker.open_until

    def narrow_shortage(self, subject: JobKey, error: ExternalError) -> ExternalError:
        """The trouble of an attempt that ended because this process lacks something.

        Returns:
            The same; or one of scope table, where other attempts succeeded since the table's last one. One table
            that alone takes too much must not hold up all the others.
        """
        self._attempts.note_denied(_ATTEMPT_ACTION, _attempt_key(subject))
        if self._attempts.judge(_ATTEMPT_ACTION, _attempt_key(subject), elsewhere=None) is DenialReach.STORE:
            return error
        return Transient(
            error.where, scope=ErrorScope.TABLE, expected=error.expected, found=error.found, remedy=error.remedy
        )

    def record_success(self, group: ConcurrencyGroup, subject: JobKey, *, store_used: bool) -> None:
        """The lane's catalog answered, and its store where it was asked.

        Args:
            subject: the table or catalog of the attempt.
            store_used: the store was asked.
        """
        now = self._clock.now()
        self._attempts.note_permitted(_ATTEMPT_ACTION, _attempt_key(subject))
        for breaker in self._capacity.record_success(group, now, store_used=store_used):
            self._log_recovered(breaker, now)

    def _log_recovered(self, breaker: CircuitBreakerState, now: datetime) -> None:
        logged = self._logged.get((breaker.scope, breaker.name))
        if logged is not None and logged.is_ongoing:
            logged.is_ongoing = False
            seconds = round((now - breaker.failing_since).total_seconds(), 1)
            _log.info(f"{breaker.scope} works again", name=breaker.name, seconds=seconds)


def _attempt_key(subject: JobKey) -> str:
    """A key of its own in a folder of its own, as `PermissionTracker` knows them."""
    return f"{quote(str(subject), safe='')}/"


# ── asked: Whether a publish asked any store


class StoreUsage:
    """Notes whether any store is asked.

    Attributes:
        was_used: one was.
    """

    def __init__(self) -> None:
        self.was_used = False

    def watch(self, stores: StoreRouter) -> StoreRouter:
        """The same stores, seen through this."""
        return _WatchedStores(stores, self)


class _WatchedStores:
    """Implements `StoreRouter`."""

    def __init__(self, stores: StoreRouter, usage: StoreUsage) -> None:
        self._stores, self._usage = stores, usage

    def store_for(self, location: str) -> ObjectStore:
        self._usage.was_used = True
        return self._stores.store_for(location)
