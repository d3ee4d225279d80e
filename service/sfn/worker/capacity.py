"""Capacity of a worker and its circuit breakers, by concurrency group, the log of outages, and the retry policy.

A breaker belongs to one catalog, one store or the process, and bounds every concurrency group of its owner.

    closed      full capacity
    open        no capacity until `open_until`: after 0.5 s, doubling to `MAX_PAUSE`, or after `Retry-After`
    half open   capacity for `max_probes` tables and as many sweeps: 1 at first, doubled by each success until closed
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
from sfn.storage import DenialReach, ObjectStore, PermissionTracker, StoreRouter

# ── Retries of a table or catalog

MAX_RETRY_AFTER: Final = timedelta(minutes=5)
"""Longest wait that the other side can ask for: a wrong date in `Retry-After` must not stop a table for years."""

_MAX_DOUBLINGS: Final = 70
"""Enough doublings to make the shortest pause longer than the longest `timedelta`."""


def bounded_retry_after(seconds: float | None) -> timedelta:
    """Return the requested wait, between zero and `MAX_RETRY_AFTER`.

    Args:
        seconds: seconds that the other side asked to wait, unchecked; None for no request.
    """
    if seconds is None or not seconds > 0:
        return timedelta()
    return timedelta(seconds=min(seconds, MAX_RETRY_AFTER.total_seconds()))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with equal jitter, bounded in pause, attempts and age.

    Attributes:
        base: first pause.
        cap: longest pause.
        budget: longest time from the first failure to the last attempt.
        max_attempts: most attempts.
    """

    base: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(minutes=5)
    budget: timedelta = timedelta(hours=24)
    max_attempts: int = 500

    def pause(self, attempt: int, jitter: float) -> timedelta:
        """Return the pause after a failed attempt.

        Args:
            attempt: number of the attempt, from 1.
            jitter: random number in [0, 1).
        """
        factor: int = 2 ** min(attempt - 1, _MAX_DOUBLINGS)
        # Compare before multiplying: the product may be longer than the longest `timedelta`.
        pause = self.cap if factor > self.cap // self.base else self.base * factor
        return pause / 2 + pause / 2 * jitter

    def next_attempt(self, attempt: int, since: datetime, now: datetime, jitter: float) -> datetime | None:
        """Return the time of the next attempt after a failed one; None when the budget is spent.

        Args:
            attempt: number of the failed attempt, from 1.
            since: start of the first of consecutive failures.
            now: the present.
            jitter: random number in [0, 1).
        """
        if attempt >= self.max_attempts or now - since >= self.budget:
            return None
        return now + self.pause(attempt, jitter)


# ── Capacity and circuit breakers

_Key: TypeAlias = tuple[ErrorScope, str, str]
"""Owner of a breaker: scope, name of the catalog, name of the store. A name that does not apply is empty."""
_PROCESS: _Key = ErrorScope.PROCESS, "", ""

FIRST_PAUSE = timedelta(seconds=0.5)
MAX_PAUSE = timedelta(seconds=1)
"""Longest pause between probes. Short, because it delays the first publish after an outage; a probe is one claim."""


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """A breaker after a failure.

    Attributes:
        open_until: end of the open state.
        pause: duration of the open state.
        failing_since: start of the outage.
        error: text of the last error.
        max_probes: number of claims that may run while the breaker is half open.
    """

    open_until: datetime
    pause: timedelta
    failing_since: datetime
    error: str
    max_probes: int = 1


@dataclass(frozen=True, slots=True)
class CircuitBreakerState:
    """A breaker that is not closed, for operators.

    Attributes:
        scope: catalog, store or process.
        name: name of the catalog or store; of the catalog, if the store is not known yet; "" for the process.
        open_until: end of the open state; in the past if the breaker is half open.
        allowed_probes: number of claims that may run; above one if an attempt has succeeded since the failure.
        failing_since: start of the outage.
        error: text of the last error.
    """

    scope: ErrorScope
    name: str
    open_until: datetime
    allowed_probes: int
    failing_since: datetime
    error: str

    @property
    def is_failing(self) -> bool:
        """True until an attempt succeeds, which allows more probes.

        A half-open breaker without further jobs may stay half open forever, so its state alone says too little.
        """
        return self.allowed_probes <= 1


class CapacityTracker:
    """The running claims of a worker, its breakers, and the capacity that they leave.

    Args:
        concurrency: most tables at a time, over all concurrency groups.
    """

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._running: Counter[ConcurrencyGroup] = Counter()
        self._seen: set[ConcurrencyGroup] = set()
        self._breakers: dict[_Key, CircuitBreaker] = {}

    def job_started(self, group: ConcurrencyGroup) -> None:
        """Count the start of a claim."""
        self._running[group] += 1
        if group not in self._seen:
            # The same jobs may be claimed with another priority next, and the breakers apply to them as well.
            same = (
                () if group.priority is Priority.SWEEP else (Priority.SHORT_LIVED, Priority.LIVE, Priority.BACKGROUND)
            )
            self._seen |= {group, *(replace(group, priority=priority) for priority in same)}

    def job_ended(self, group: ConcurrencyGroup) -> None:
        """Count the end of a claim."""
        self._running[group] -= 1

    def record_failure(
        self, group: ConcurrencyGroup, scope: ErrorScope, now: datetime, retry_after: float | None, error: str = ""
    ) -> CircuitBreakerState:
        """Open the breaker of the group's catalog or store, or of the process.

        Args:
            group: concurrency group of the failed attempt.
            scope: what failed.
            now: the present.
            retry_after: seconds that the other side asked to wait.
            error: text of the error.

        Returns:
            The breaker, which has the time of the next probe.
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
        """Record that the group's catalog answered, and its store if it was used. Open breakers stay open.

        Args:
            group: concurrency group of the attempt.
            now: the present.
            store_used: True if the attempt used the store.

        Returns:
            The breakers with a first success after the outage, as they were before.
        """
        recovered = []
        for key in _breaker_keys(group) if store_used else [_PROCESS, _catalog_key(group)]:
            breaker = self._breakers.get(key)
            # The attempt may have started before the failure, so its success proves nothing.
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
        """Return what may be claimed now."""
        sweeps = sum(count for group, count in self._running.items() if group.priority is Priority.SWEEP)
        live = sum(count for group, count in self._running.items() if group.is_event_driven)
        short_lived = sum(count for group, count in self._running.items() if group.priority is Priority.SHORT_LIVED)
        total = self._concurrency - (sum(self._running.values()) - sweeps)
        per_group = {group: free for group in self._seen if (free := self._free_in(group, now)) is not None}
        most_live = max(1, self._concurrency - 1)
        most_sweeps = max(1, self._concurrency // 4)
        per_catalog = self._capacity_by_catalog(total)
        return Capacity(
            total, most_live - live, most_sweeps - sweeps, per_group, per_catalog, max(1, most_live - 1) - short_lived
        )

    def _capacity_by_catalog(self, free: int) -> dict[str, int]:
        """Return the capacity of each catalog: one that hangs must not use the share of the others."""
        catalogs = {group.catalog for group in self._seen}
        share = self._concurrency // (2 * max(1, len(catalogs)))
        running: Counter[str] = Counter()
        for group, count in self._running.items():
            running[group.catalog] += count if group.priority is not Priority.SWEEP else 0
        reserved = {catalog: max(0, share - running[catalog]) for catalog in catalogs}
        return {catalog: max(0, free - sum(reserved.values()) + reserved[catalog]) for catalog in catalogs}

    def reopens_at(self, now: datetime) -> datetime | None:
        """Return when the next open breaker becomes half open; None if none is open."""
        return min(
            (breaker.open_until for breaker in self._breakers.values() if breaker.open_until > now), default=None
        )

    def unclosed_breakers(self, now: datetime) -> list[CircuitBreakerState]:
        """Return the breakers that are not closed, by scope and name."""
        return [_breaker_state(key, self._breakers[key], now) for key in sorted(self._breakers)]

    def _free_in(self, group: ConcurrencyGroup, now: datetime) -> int | None:
        """Return the capacity that breakers leave for a group; None if no breaker bounds the group."""
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
    probes = 0 if now < breaker.open_until else breaker.max_probes
    return CircuitBreakerState(
        scope, store or catalog, breaker.open_until, probes, breaker.failing_since, breaker.error
    )


def _are_both_sweeps_or_neither(one: ConcurrencyGroup, other: ConcurrencyGroup) -> bool:
    """Return True if both groups are sweeps or neither is: a sweep takes minutes, and must not delay table probes."""
    return (one.priority is Priority.SWEEP) == (other.priority is Priority.SWEEP)


def _breaker_keys(group: ConcurrencyGroup) -> list[_Key]:
    """Return the owners of the group's breakers; a sweep uses no store."""
    keys = [_PROCESS, _catalog_key(group)]
    return keys if group.priority is Priority.SWEEP else [*keys, _store_key(group)]


def _catalog_key(group: ConcurrencyGroup) -> _Key:
    return ErrorScope.CATALOG, group.catalog, ""


def _store_key(group: ConcurrencyGroup) -> _Key:
    """Return the owner of the store's breaker; an unknown store is counted by catalog, not to stop other catalogs."""
    return ErrorScope.STORE, "" if group.store else group.catalog, group.store


LOG_INTERVAL: Final = timedelta(minutes=1)
"""Pause between two records of one outage: there is a probe every second."""

_ATTEMPT_ACTION: Final = "attempt"

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _LoggedOutage:
    """An outage as it was logged.

    Attributes:
        logged_at: time of the last record.
        suppressed: number of failures since then.
        is_ongoing: True until the recovery is logged.
    """

    logged_at: datetime
    suppressed: int = 0
    is_ongoing: bool = True


class CircuitBreakers:
    """The circuit breakers of a worker, with a log of outages and recoveries.

    Args:
        capacity: the capacity of the worker.
        clock: the wall clock.
    """

    def __init__(self, capacity: CapacityTracker, clock: Clock) -> None:
        self._capacity, self._clock = capacity, clock
        self._logged: dict[tuple[ErrorScope, str], _LoggedOutage] = {}
        self._attempts = PermissionTracker(lambda: clock.now().timestamp())

    def record_failure(self, group: ConcurrencyGroup, error: ExternalError) -> datetime:
        """Record a failure of the group's catalog or store, or of the process; return the time of the next probe."""
        now = self._clock.now()
        breaker = self._capacity.record_failure(group, error.scope, now, error.retry_after, str(error))
        logged = self._logged.get((breaker.scope, breaker.name))
        # If the clock was set back, records are not suppressed for longer.
        if logged is not None and logged.logged_at <= now < logged.logged_at + LOG_INTERVAL:
            logged.suppressed += 1
        else:
            self._logged[breaker.scope, breaker.name] = _LoggedOutage(now)
            _log.warning(
                "process short of resources" if breaker.scope is ErrorScope.PROCESS else f"{breaker.scope} unreachable",
                **_owner_field(breaker),
                since=breaker.failing_since.isoformat(),
                error=breaker.error,
                suppressed=logged.suppressed if logged is not None else 0,
            )
        return breaker.open_until

    def narrow_shortage(self, subject: JobKey, error: ExternalError) -> ExternalError:
        """Narrow a shortage of the process to the table if other attempts succeeded since the table's last attempt.

        One table that needs too much must not stop all others.

        Returns:
            The same error, or one with scope table.
        """
        self._attempts.note_denied(_ATTEMPT_ACTION, _attempt_key(subject))
        if self._attempts.judge(_ATTEMPT_ACTION, _attempt_key(subject), elsewhere=None) is DenialReach.STORE:
            return error
        return Transient(
            error.where, scope=ErrorScope.TABLE, expected=error.expected, found=error.found, remedy=error.remedy
        )

    def record_success(self, group: ConcurrencyGroup, subject: JobKey, *, store_used: bool) -> None:
        """Record that the group's catalog answered, and its store if it was used.

        Args:
            group: concurrency group of the attempt.
            subject: the table or catalog of the attempt.
            store_used: True if the attempt used the store.
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
            _log.info(f"{breaker.scope} recovered", **_owner_field(breaker), seconds=seconds)


def _owner_field(breaker: CircuitBreakerState) -> dict[str, str]:
    """Return the field of a log record that names the catalog or store of a breaker; none for the process."""
    return {} if breaker.scope is ErrorScope.PROCESS else {breaker.scope.value: breaker.name}


def _attempt_key(subject: JobKey) -> str:
    """Return a key for `PermissionTracker`, which expects a separate folder per subject."""
    return f"{quote(str(subject), safe='')}/"


class StoreUsage:
    """A record of whether an attempt used any store.

    Attributes:
        was_used: True once a store was used.
    """

    def __init__(self) -> None:
        self.was_used = False

    def watch(self, stores: StoreRouter) -> StoreRouter:
        """Return a router to the same stores that records their use."""
        return _WatchedStores(stores, self)


class _WatchedStores:
    """A `StoreRouter` that records its use."""

    def __init__(self, stores: StoreRouter, usage: StoreUsage) -> None:

        self._stores, self._usage = stores, usage

    def store_for(self, location: str) -> ObjectStore:
        self._usage.was_used = True
        return self._stores.store_for(location)
