"""Iceberg's metrics reports, which clients send to their catalog: of no concern.

    {"report-type": "commit-report", "table-name": …, …}

One of a commit leaves before a transaction is committed, and nobody knows whether it will be.
"""

from __future__ import annotations

from typing import Final

from sfn.dialects.event import Event
from sfn.words import Notification

REPORT_TYPES: Final = frozenset({"commit-report", "scan-report"})


def is_metrics_report(event: Event) -> bool:
    """Whether it is a report."""
    report_type = event.content.get("report-type")
    return event.data_at is None and isinstance(report_type, str) and report_type in REPORT_TYPES


def decode_metrics_report(_event: Event) -> tuple[Notification, ...]:
    """None."""
    return ()
