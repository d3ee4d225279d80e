"""What the log is told of a source that is away: it is asked every few seconds, and told of every minute."""

from __future__ import annotations

from datetime import datetime

import structlog

from sfn.clock import Clock
from sfn.receiver.pull import SourceUnavailable
from sfn.worker.capacity import LOG_INTERVAL

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
        self._logged_at: datetime | None = None
        self._suppressed = 0
        self._lasts = False
        self._is_known = False

    def on_unavailable(self, error: SourceUnavailable) -> None:
        """It is away, or still is."""
        now = self._clock.now()
        self._since = self._since or now
        # A clock that was set back must not silence anything for longer.
        if self._logged_at is not None and self._logged_at <= now < self._logged_at + LOG_INTERVAL:
            self._suppressed += 1
            return
        since, suppressed = self._since.isoformat(), self._suppressed
        self._logged_at, self._suppressed, self._lasts = now, 0, True
        _log.warning("pull source away", name=self._source, since=since, error=str(error), left_out=suppressed)

    def on_connected(self) -> None:
        """It lets us in; whether it delivers is not known yet."""
        if not self._is_known:
            self._is_known = True
            _log.info("pull source connected", name=self._source)

    def on_recovered(self) -> None:
        """It delivers."""
        since, self._since = self._since, None
        if since is not None and self._lasts:
            self._lasts = False
            seconds = round((self._clock.now() - since).total_seconds(), 1)
            _log.info("pull source works again", name=self._source, seconds=seconds)
