"""The outages of catalogs and stores, and shortages of this process: what breakers and the log learn of each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

import structlog

from sfn.clock import Clock
from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import ConcurrencyGroup
from sfn.errors import ErrorScope, ExternalError, Transient
from sfn.storage.object_store import DenialReach, PermissionTracker
from sfn.work.lanes import CapacityTracker, CircuitBreakerState

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
