"""What the log is told of an inbox in trouble: that it begins, that it changes, that it is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

import structlog

from sfn.clock import Clock
from sfn.errors import Trouble

TOLD_EVERY: Final = timedelta(minutes=1)
"""From one record of a trouble to the next of the same text: a call is tried again every second."""

_log = structlog.stdlib.get_logger(__name__)


class Troubles:
    """Tells the log of calls of the inbox whose trouble nobody else hears of: they are tried again by themselves.

    The first call that works ends the trouble. Where others fail all the same, it is told again after a minute.

    Args:
        clock: the wall clock.
        part: who calls, for the log.
    """

    def __init__(self, clock: Clock, part: str) -> None:
        self._clock, self._part = clock, part
        self._told: dict[str, datetime] = {}
        self._lasts = False

    @contextmanager
    def told(self) -> Iterator[None]:
        """Around one call.

        Raises:
            Trouble: as the call raised it.
        """
        try:
            yield
        except Trouble as trouble:
            self._tell(str(trouble))
            raise
        if self._lasts:
            self._lasts = False
            _log.info("inbox works again", part=self._part)

    def _tell(self, error: str) -> None:
        now = self._clock.now()
        # A clock that was set back must not silence anything for longer.
        self._told = {text: at for text, at in self._told.items() if at <= now < at + TOLD_EVERY}
        if error not in self._told:
            self._told[error] = now
            self._lasts = True
            _log.warning("inbox in trouble", part=self._part, error=error)
