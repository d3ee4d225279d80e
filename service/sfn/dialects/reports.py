"""Iceberg's metrics reports, which clients send to their catalog: of no concern.

    {"report-type": "commit-report", "table-name": …, …}

One of a commit leaves before a transaction is committed, and nobody knows whether it will be.
"""

from __future__ import annotations

from typing import Final

from sfn.dialects.event import Event
from sfn.words import Hint

TYPES: Final = frozenset({"commit-report", "scan-report"})


def recognises(event: Event) -> bool:
    """Whether it is a report."""
    told = event.content.get("report-type")
    return event.data_at is None and isinstance(told, str) and told in TYPES


def hints(_event: Event) -> tuple[Hint, ...]:
    """None."""
    return ()
