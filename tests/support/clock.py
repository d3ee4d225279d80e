"""A clock that is set by hand, and a source of jitter that is always the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(slots=True)
class HandClock:
    """A clock that is set by hand.

    Attributes:
        at: the present.
    """

    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def turn(self, seconds: float) -> datetime:
        """So much later."""
        self.at += timedelta(seconds=seconds)
        return self.at


class EvenChance:
    """Implements `RandomSource`: a half, each time."""

    def random(self) -> float:
        return 0.5
