"""What the log is told of an inbox in trouble: that it begins, that it changes, that it is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

import structlog

from sfn.clock import Clock
from sfn.errors import ExternalError

LOG_INTERVAL: Final = timedelta(minutes=1)
"""From one record of a trouble to the next of the same text: a call is tried again every second."""

_log = structlog.stdlib.get_logger(__name__)


class InboxErrorLog:
    """Tells the log of calls of the inbox whose trouble nobody else hears of: they are tried again by themselves.

    The first call that works ends the trouble. Where others fail all the same, it is told again after a minute.

    Args:
        clock: the wall clock.
        part: who calls, for the log.
    """

    def __init__(self, clock: Clock, part: str) -> None:
        self._clock, self._part = clock, part
        self._logged_at: dict[str, datetime] = {}
        self._is_failing = False

    @contextmanager
    def log_errors(self) -> Iterator[None]:
        """Around one call.

        Raises:
            Trouble: as the call raised it.
        """
        try:
            yield
        except ExternalError as trouble:
            self._log_error(str(trouble))
            raise
        if self._is_failing:
            self._is_failing = False
            _log.info("inbox works again", part=self._part)

    def _log_error(self, error: str) -> None:
        now = self._clock.now()
        # A clock that was set back must not silence anything for longer.
        self._logged_at = {text: at for text, at in self._logged_at.items() if at <= now < at + LOG_INTERVAL}
        if error not in self._logged_at:
            self._logged_at[error] = now
            self._is_failing = True
            _log.warning("inbox in trouble", part=self._part, error=error)
