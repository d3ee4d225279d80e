"""How much of what is over an inbox keeps, and in which portions the rest goes: the same for every adapter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

INDEX_PAGE_SIZE: Final = 500
"""Rows of the roster that are read at a time."""
PRUNE_BATCH_SIZE: Final = 500
"""Events, or dead letters, that are deleted at a time: few, because puts wait for it."""
CLOSED_LETTER_RETENTION: Final = timedelta(days=30)
"""How long a dead letter is kept that was closed."""
MAINTENANCE_INTERVAL: Final = 60.0
"""Seconds."""
MAX_AUDIT_ENTRIES: Final = 10_000
"""Orders that are remembered."""


@dataclass(frozen=True, slots=True)
class CommandProgress:
    """How far an order is that is carried out in several transactions.

    Attributes:
        audit_id: its id in the audit log.
        count: rows so far.
        last_key: key of the last of them; they come by key.
        has_more: whether there may be others.
    """

    audit_id: int
    count: int = 0
    last_key: str = ""
    has_more: bool = True
