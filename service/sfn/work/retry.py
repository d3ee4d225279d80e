"""When a table's own trouble is tried again: pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


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
    max_attempts: int = 100

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
        factor: int = 2 ** min(attempt - 1, 32)
        pause = min(self.cap, self.base * factor)
        return now + pause / 2 + pause / 2 * jitter
