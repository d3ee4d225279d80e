"""How much of what is over an inbox keeps, and in which portions the rest goes: the same for every adapter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

PAGE: Final = 500
"""Rows of the roster that are read at a time."""
PRUNED: Final = 500
"""Events, or dead letters, that are deleted at a time: few, because puts wait for it."""
CLOSED_KEPT: Final = timedelta(days=30)
"""How long a dead letter is kept that was closed."""
TENDED_EVERY: Final = 60.0
"""Seconds."""
AUDIT_KEPT: Final = 10_000
"""Orders that are remembered."""


@dataclass(frozen=True, slots=True)
class Batch:
    """How far an order is that is carried out in several transactions.

    Attributes:
        entry: its id in the audit log.
        count: rows so far.
        last: key of the last of them; they come by key.
        more: whether there may be others.
    """

    entry: int
    count: int = 0
    last: str = ""
    more: bool = True
