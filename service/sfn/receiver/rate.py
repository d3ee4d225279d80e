"""How often a sender may ask: a token bucket each."""

from __future__ import annotations

from typing import Final

_MINUTE: Final = 60.0
_AT_ONCE: Final = 10
"""The part of a minute's requests that may come at once is one by this."""


class RateLimit:
    """So many requests a minute, and a tenth of them at once.

    A sender that was silent may so catch up for six seconds. With a whole minute's worth at once twice the limit would
    pass in the minute after a silence; so it is a tenth more at most.

    Args:
        per_minute: the limit, at least 1.

    Attributes:
        per_minute: as it was given.
    """

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._each = _MINUTE / per_minute
        self._most = max(1.0, per_minute / _AT_ONCE)
        self._left = self._most
        self._at: float | None = None

    def seconds_to_wait(self, now: float) -> float | None:
        """Seconds until a request may come; None: this one may, and is counted.

        Args:
            now: seconds of a clock that never runs backwards.
        """
        gained = 0.0 if self._at is None else (now - self._at) / self._each
        self._left, self._at = min(self._most, self._left + gained), now
        if self._left < 1:
            return (1 - self._left) * self._each
        self._left -= 1
        return None
