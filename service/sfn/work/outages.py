"""The outages of catalogs and stores, and shortages of this process: what breakers and the log learn of each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

import structlog

from sfn.clock import Clock
from sfn.errors import Scope, Transient, Trouble
from sfn.store.denials import DenialReach, PermissionTracker
from sfn.words import Lane, Subject
from sfn.work.lanes import BreakerState, Lanes

TOLD_EVERY: Final = timedelta(minutes=1)
"""From one record of a catalog or store that is away to the next: what is away is asked every second."""

_ATTEMPT: Final = "attempt"

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _Told:
    """What the log knows of one catalog or store.

    Attributes:
        at: when it was last told that it is away.
        left_out: troubles since then.
        lasts: it was not told since that it works again.
    """

    at: datetime
    left_out: int = 0
    lasts: bool = True


class Outages:
    """Opens and closes breakers, and tells the log that something is away, and that it works again.

    Args:
        lanes: the worker's.
        clock: the wall clock.
    """

    def __init__(self, lanes: Lanes, clock: Clock) -> None:
        self._lanes, self._clock = lanes, clock
        self._told: dict[tuple[Scope, str], _Told] = {}
        self._attempts = PermissionTracker(lambda: clock.now().timestamp())

    def trouble(self, lane: Lane, trouble: Trouble) -> datetime:
        """The lane's catalog or store failed: when to try again."""
        now = self._clock.now()
        breaker = self._lanes.trouble(lane, trouble.scope, now, trouble.retry_after, str(trouble))
        told = self._told.get((breaker.scope, breaker.name))
        # A clock that was set back must not silence anything for longer.
        if told is not None and told.at <= now < told.at + TOLD_EVERY:
            told.left_out += 1
        else:
            self._told[breaker.scope, breaker.name] = _Told(now)
            _log.warning(
                "process short of resources" if breaker.scope is Scope.PROCESS else f"{breaker.scope} away",
                name=breaker.name,
                since=breaker.since.isoformat(),
                error=breaker.error,
                left_out=told.left_out if told is not None else 0,
            )
        return breaker.until

    def shortage(self, subject: Subject, trouble: Trouble) -> Trouble:
        """The trouble of an attempt that ended because this process lacks something.

        Returns:
            The same; or one of scope table, where other attempts succeeded since the table's last one. One table
            that alone takes too much must not hold up all the others.
        """
        self._attempts.note_denied(_ATTEMPT, _place(subject))
        if self._attempts.judge(_ATTEMPT, _place(subject), elsewhere=None) is DenialReach.STORE:
            return trouble
        return Transient(
            trouble.where, scope=Scope.TABLE, expected=trouble.expected, found=trouble.found, remedy=trouble.remedy
        )

    def success(self, lane: Lane, subject: Subject, *, stored: bool) -> None:
        """The lane's catalog answered, and its store where it was asked.

        Args:
            subject: the table or catalog of the attempt.
            stored: the store was asked.
        """
        now = self._clock.now()
        self._attempts.note_permitted(_ATTEMPT, _place(subject))
        for breaker in self._lanes.success(lane, now, stored=stored):
            self._tell_back(breaker, now)

    def _tell_back(self, breaker: BreakerState, now: datetime) -> None:
        told = self._told.get((breaker.scope, breaker.name))
        if told is not None and told.lasts:
            told.lasts = False
            seconds = round((now - breaker.since).total_seconds(), 1)
            _log.info(f"{breaker.scope} works again", name=breaker.name, seconds=seconds)


def _place(subject: Subject) -> str:
    """A key of its own in a folder of its own, as `PermissionTracker` knows them."""
    return f"{quote(str(subject), safe='')}/"
