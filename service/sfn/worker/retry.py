"""When a row's own trouble is tried again: pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

MAX_RETRY_AFTER: Final = timedelta(minutes=5)
"""How long we wait because the other side asked for it: a mistaken date must not close a lane for years."""

_DOUBLINGS: Final = 70
"""The shortest pause, doubled so often, is longer than any time that there is."""


def bounded_retry_after(seconds: float | None) -> timedelta:
    """How much of a wish for a pause is heeded.

    Args:
        seconds: seconds that the other side asked us to wait, as it said them: any number at all.
    """
    if seconds is None or not seconds > 0:
        return timedelta()
    return timedelta(seconds=min(seconds, MAX_RETRY_AFTER.total_seconds()))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with equal jitter, bounded in pause, attempts and age.

    Attributes:
        base: the first pause.
        cap: the longest pause.
        budget: how long failures may go on.
        max_attempts: how many.
    """

    base: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(minutes=5)
    budget: timedelta = timedelta(hours=24)
    max_attempts: int = 500

    def pause(self, attempt: int, jitter: float) -> timedelta:
        """The pause after a failed attempt.

        Args:
            attempt: its number, from 1.
            jitter: in [0, 1).
        """
        factor: int = 2 ** min(attempt - 1, _DOUBLINGS)
        # Compared before it is multiplied: the product may be longer than any time that there is.
        pause = self.cap if factor > self.cap // self.base else self.base * factor
        return pause / 2 + pause / 2 * jitter

    def next_attempt(self, attempt: int, since: datetime, now: datetime, jitter: float) -> datetime | None:
        """The next try after a failed one; None when the budget is spent.

        Args:
            attempt: number of the one that failed, from 1.
            since: when the first of the row of failures began.
            now: the present.
            jitter: in [0, 1).
        """
        if attempt >= self.max_attempts or now - since >= self.budget:
            return None
        return now + self.pause(attempt, jitter)
