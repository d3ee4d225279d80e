"""What the log is told of what anybody can cause as often as they like: who fills it up must not fill the disk."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final

import structlog

TOLD_EVERY: Final = 1.0
"""Seconds from one record of a kind to the next."""

_log = structlog.stdlib.get_logger(__name__)


class Seldom:
    """Lets a record of a kind pass at most once a second.

    Args:
        monotonic: seconds that never run backwards.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._passed_at: dict[Hashable, float] = {}
        self._left_out: Counter[Hashable] = Counter()

    def passing(self, kind: Hashable) -> int | None:
        """How many of a kind were left out since the last one; None: this one is too."""
        now = self._monotonic()
        passed_at = self._passed_at.get(kind)
        if passed_at is not None and now - passed_at < TOLD_EVERY:
            self._left_out[kind] += 1
            return None
        self._passed_at[kind] = now
        return self._left_out.pop(kind, 0)


class Refusals:
    """Tells of refused requests, a status at most once a second.

    Args:
        where: what was asked for.
        seldom: keeps the log small.
    """

    def __init__(self, where: str, seldom: Seldom | None = None) -> None:
        self._where = where
        self._seldom = seldom or Seldom()

    def tell(self, status: int, why: str, client: str | None) -> None:
        """A request was refused.

        Args:
            status: HTTP status of the answer.
            why: in words of ours, nothing that was sent.
            client: its address, None where the server does not know it.
        """
        left_out = self._seldom.passing(status)
        if left_out is not None:
            _log.warning("request refused", where=self._where, status=status, why=why, client=client, left_out=left_out)
