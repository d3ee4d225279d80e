"""The clock and the source of jitter, passed as arguments. Only this module reads either from the system."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, Protocol

_SHORT: Final = 10.0
"""Seconds below which a time has a fraction."""
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


def format_ago(at: datetime, now: datetime) -> str:
    """Return a time relative to now, such as `45 s ago` or `in 45 s`."""
    return f"in {format_duration(at - now)}" if at > now else f"{format_duration(now - at)} ago"


def format_since(at: datetime, now: datetime) -> str:
    """Return a time in UTC, without the date if that is today."""
    at = at.astimezone(UTC)
    return f"{at:%H:%M:%S} UTC" if at.date() == now.date() else f"{at:%F %H:%M:%S} UTC"


def format_seconds(seconds: float) -> str:
    """Return a short time, such as `0.24 s` or `3 min 20 s`."""
    return f"{seconds:.2g} s" if seconds < _SHORT else format_duration(timedelta(seconds=seconds))
