"""The clock and the source of jitter, passed as arguments. Only this module reads either from the system."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, Protocol

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


class Clock(Protocol):
    """A wall clock."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        ...


class RandomSource(Protocol):
    """A source of jitter."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class SystemRandomSource:
    """The machine's pseudo-random numbers; not for secrets."""

    def random(self) -> float:
        return random.random()  # noqa: S311 - jitter, not a secret


def format_duration(time: timedelta) -> str:
    """Format a duration with its two largest units: `45 s`, `3 h 20 min`."""
    left = max(0, round(time.total_seconds()))
    for (unit, seconds), (lesser, its) in pairwise(_UNITS):
        if left >= seconds:
            rest = left % seconds // its
            return f"{left // seconds} {unit} {rest} {lesser}" if rest else f"{left // seconds} {unit}"
    return f"{left} s"
