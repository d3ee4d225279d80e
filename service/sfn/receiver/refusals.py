"""What the log is told of requests that anybody can send: who fills it up must not fill the disk."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

TOLD_EVERY: Final = 1.0
"""Seconds from one record of a status to the next."""

_log = structlog.stdlib.get_logger(__name__)


class Refusals:
    """Tells of refused requests, a status at most once a second.

    Args:
        monotonic: seconds that never run backwards.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._told_at: dict[int, float] = {}
        self._left_out: Counter[int] = Counter()

    def tell(self, status: int, why: str, client: str | None) -> None:
        """A request was refused.

        Args:
            status: HTTP status of the answer.
            why: in words of ours, nothing that was sent.
            client: its address, None where the server does not know it.
        """
        now = self._monotonic()
        told_at = self._told_at.get(status)
        if told_at is not None and now - told_at < TOLD_EVERY:
            self._left_out[status] += 1
            return
        self._told_at[status] = now
        _log.warning("request refused", status=status, why=why, client=client, left_out=self._left_out.pop(status, 0))
