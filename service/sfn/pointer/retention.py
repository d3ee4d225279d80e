"""How long a superseded metadata file stays where commits delete the older ones: a pointer must be replaced by then."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sfn.words import Table

SHORT_LIFETIME: Final = timedelta(hours=1)
"""A table whose metadata files live shorter goes before others: so long takes a backlog of 100,000 tables, at thirty a
second, after a catalog or store was away."""
_MIN_COMMITS: Final = 10
"""Commits from which it is told how often others come: fewer may be those that made the table."""


def metadata_lifetime(table: Table) -> timedelta | None:
    """From when a metadata file is superseded until a commit deletes it, if commits come as often as they last did.

    Each of the newest `versions_kept` is still there. The times are the writers', and their clocks may differ: what
    makes no sense tells nothing.

    Returns:
        None where none is deleted, or the log tells too little.
    """
    max_versions, log = table.previous_versions_max, table.log_times
    commits = min(len(log), max_versions or 0)
    if max_versions is None or commits < min(max_versions, _MIN_COMMITS):
        return None
    began, ended = log[-commits], table.last_updated_ms
    if not 0 < began < ended:
        return None
    return timedelta(milliseconds=ended - began) * (max_versions / commits)


def is_short_lived(table: Table) -> bool:
    """Whether a pointer to its metadata is soon one to nothing, and must not wait behind a backlog."""
    lives = metadata_lifetime(table)
    return lives is not None and lives < SHORT_LIFETIME
