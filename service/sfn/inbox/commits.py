"""What a transaction of an inbox is told as, and what its callers are told to wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sfn.errors import ErrorScope, Transient

RETRY_AFTER: Final = 1.0
"""Seconds that a caller should wait after a transaction that was not taken."""


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """One transaction that is on disk.

    Attributes:
        calls: how many calls it answers.
        messages: how many notes it took in.
        may_make_due: something may have fallen due by it.
        seconds: how long it ran.
    """

    calls: int
    messages: int
    may_make_due: bool
    seconds: float


def queue_full_error(where: str, limit: int, waiting: int, more: int, remedy: str) -> Transient:
    """The refusal of a put where too many notes wait already.

    Args:
        limit: how many may.
        waiting: how many do.
        more: how many the put has.
    """
    return Transient(
        where,
        scope=ErrorScope.INBOX,
        expected=f"at most {limit} notes that wait for the disk",
        found=f"{waiting} and {more} more",
        remedy=remedy,
        retry_after=RETRY_AFTER,
    )
