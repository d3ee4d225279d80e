"""Time and chance as arguments: the only module that asks the system for either."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall clock time."""

    def now(self) -> datetime:
        """The present moment, aware, in UTC."""
        ...


class Chance(Protocol):
    """A source of jitter."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class SystemChance:
    """The machine's pseudo-random numbers; nothing secret rests on them."""

    def random(self) -> float:
        return random.random()  # noqa: S311 - jitter, not a secret
