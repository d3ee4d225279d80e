"""What the log is told of what anybody can cause as often as they like: who fills it up must not fill the disk."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final

import structlog

LOG_INTERVAL: Final = 1.0
"""Seconds from one record of a kind to the next."""

_log = structlog.stdlib.get_logger(__name__)


class LogThrottle:
    """Lets a record of a kind pass at most once a second.

    Args:
        monotonic: seconds that never run backwards.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._logged_at: dict[Hashable, float] = {}
        self._suppressed: Counter[Hashable] = Counter()

    def allow(self, kind: Hashable) -> int | None:
        """How many of a kind were left out since the last one; None: this one is too."""
        now = self._monotonic()
        logged_at = self._logged_at.get(kind)
        if logged_at is not None and now - logged_at < LOG_INTERVAL:
            self._suppressed[kind] += 1
            return None
        self._logged_at[kind] = now
        return self._suppressed.pop(kind, 0)


class RejectionLog:
    """Tells of refused requests, a status at most once a second.

    Args:
        where: what was asked for.
        throttle: keeps the log small.
    """

    def __init__(self, where: str, throttle: LogThrottle | None = None) -> None:
        self._where = where
        self._throttle = throttle or LogThrottle()

    def log_rejected(self, status: int, why: str, client: str | None) -> None:
        """A request was refused.

        Args:
            status: HTTP status of the answer.
            why: in words of ours, nothing that was sent.
            client: its address, None where the server does not know it.
        """
        suppressed = self._throttle.allow(status)
        if suppressed is not None:
            _log.warning(
                "request refused", where=self._where, status=status, why=why, client=client, left_out=suppressed
            )
