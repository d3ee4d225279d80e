"""Retry policy of a table or catalog."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

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
