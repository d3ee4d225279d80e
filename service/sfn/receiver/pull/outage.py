"""What the log is told of a source that is away: it is asked every few seconds, and told of every minute."""

from __future__ import annotations

from datetime import datetime

import structlog

from sfn.clock import Clock
from sfn.receiver.pull import Away
from sfn.work.outages import TOLD_EVERY

_log = structlog.stdlib.get_logger(__name__)


class Outage:
    """Tells that a source is away, and that it works again.

    Args:
        source: its name in the settings.
        clock: the wall clock.
    """

    def __init__(self, source: str, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._since: datetime | None = None
        self._told_at: datetime | None = None
        self._left_out = 0
        self._lasts = False
        self._is_known = False

    def trouble(self, away: Away) -> None:
        """It is away, or still is."""
        now = self._clock.now()
        self._since = self._since or now
        # A clock that was set back must not silence anything for longer.
        if self._told_at is not None and self._told_at <= now < self._told_at + TOLD_EVERY:
            self._left_out += 1
            return
        since, left_out = self._since.isoformat(), self._left_out
        self._told_at, self._left_out, self._lasts = now, 0, True
        _log.warning("pull source away", name=self._source, since=since, error=str(away), left_out=left_out)

    def reached(self) -> None:
        """It lets us in; whether it delivers is not known yet."""
        if not self._is_known:
            self._is_known = True
            _log.info("pull source connected", name=self._source)

    def over(self) -> None:
        """It delivers."""
        since, self._since = self._since, None
        if since is not None and self._lasts:
            self._lasts = False
            seconds = round((self._clock.now() - since).total_seconds(), 1)
            _log.info("pull source works again", name=self._source, seconds=seconds)
