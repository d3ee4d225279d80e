"""The settings by which one catalog's tables are published, as plain values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from typing import Final

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.sfnfile.naming import IDENTIFIER, MAIN_BRANCH, FileLayout, Naming, Placement, dotted_name, folder_below_root

MAX_COMMIT_FILES: Final = 900
"""Most commit files of a table, whatever their age: with the head they fit into one page of a listing."""


class OnDrop(StrEnum):
    """The treatment of a dropped table's files."""

    TOMBSTONE = "tombstone"
    DELETE = "delete"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Which tables are published, by globs over the encoded dotted name.

    `*` matches within a level, `**` across levels; `exclude` wins over `include`.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def covers(self, table: TableIdentifier) -> bool:
        """Return whether the table gets files."""
        if not self.include and not self.exclude:
            return True
        name = dotted_name(table.namespace, table.name)
        if any(_pattern(glob).fullmatch(name) for glob in self.exclude):
            return False
        return not self.include or any(_pattern(glob).fullmatch(name) for glob in self.include)

    def excludes_namespace(self, namespace: tuple[str, ...]) -> bool:
        """Return whether `exclude` covers everything in a namespace, at any depth."""
        start = dotted_name(namespace, "")
        # A glob that ends in `**` and matches the common start of these names matches all of them.
        return any(glob.endswith("**") and _pattern(glob).fullmatch(start) for glob in self.exclude)


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of one catalog.

    Attributes:
        catalog_id: the id of the catalog in its SFN files.
        replica_lag: how long an answer of the catalog may be behind, including the clock skew of our hosts.
        absence_delay: how long a table must be missing before it counts as dropped.
        expire_after: how long a tombstone stays.
        refresh_after: the longest time between two writes of a file.
        min_publish_interval: the shortest time between two publishes of a table.
        on_drop: the treatment of a dropped table's files.
        version_hint: write `version-hint.text`.
        naming: the names of the files.
        placement: the folder of the files.
        root: with `Placement.ROOT`, the canonical folder with one folder per table.
        branches: globs of the branches that get files, if the naming has branch files; `main` always does.
        keep_commits: with commit files, how many of the newest stay at least.
        keep_commits_for: the age up to which the other commit files stay, at most `MAX_COMMIT_FILES`.
        allowed_locations: canonical prefixes; every location must be below one. Empty allows all.
        is_swept: the catalog is swept, so a missing table waits for a sweep.
        sweep_every: the time between two sweeps.
        event_only: the catalog cannot be queried; events are the source of truth.
        table_filter: the tables that are published.
        is_retired: no table is published any more; our files are removed.
        adopted: a table, and the other `catalog_id`: files with that id and the table's identifier count as the table's
            own.
        writer: the value of `writer` in documents.
    """

    catalog_id: str
    replica_lag: timedelta = timedelta(seconds=60)
    absence_delay: timedelta = timedelta(minutes=10)
    expire_after: timedelta = timedelta(days=7)
    refresh_after: timedelta = timedelta(hours=8)
    min_publish_interval: timedelta = timedelta(seconds=1)
    on_drop: OnDrop = OnDrop.TOMBSTONE
    version_hint: bool = True
    naming: Naming = IDENTIFIER
    placement: Placement = Placement.INSIDE
    root: str = ""
    branches: tuple[str, ...] = (MAIN_BRANCH,)
    keep_commits: int = 100
    keep_commits_for: timedelta = timedelta(hours=24)
    allowed_locations: tuple[str, ...] = ()
    is_swept: bool = True
    sweep_every: timedelta = timedelta(minutes=15)
    event_only: bool = False
    table_filter: TableFilter = field(default_factory=TableFilter)
    is_retired: bool = False
    adopted: tuple[TableIdentifier, str] | None = None
    writer: str = "iceberg-sfn"

    def layout(self, name: TableIdentifier, location: str) -> FileLayout:
        """Return the layout of a table's files.

        Args:
            location: the table's canonical location.
        """
        if self.placement is Placement.ROOT:
            location = folder_below_root(self.root, name.namespace, name.name)
        return FileLayout(location, self.naming, self.placement)

    def publishes(self, name: TableIdentifier) -> bool:
        """Return whether a table of this name gets files."""
        return not self.is_retired and self.table_filter.covers(name)

    @property
    def has_branch_files(self) -> bool:
        """True if other branches than `main` may have files."""
        return self.naming.has_branch_files and any(glob != MAIN_BRANCH for glob in self.branches)

    def branch_heads(self, table: Table) -> dict[str, int]:
        """Return the head snapshots of the branches with a file, without `main`."""
        if not self.has_branch_files:
            return {}
        return {ref: head for ref, head in table.branches if any(fnmatchcase(ref, glob) for glob in self.branches)}

    @property
    def recheck_delay(self) -> timedelta:
        """The delay before a check that waits for another job or for a replica."""
        return max(self.replica_lag, timedelta(seconds=1))

    @property
    def long_recheck_delay(self) -> timedelta:
        """The delay before a check that waits for something as slow as a missing table, or that may never come."""
        return max(self.recheck_delay, self.absence_delay / 10)


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*)", glob)
    return re.compile("".join({"**": ".*", "*": "[^.]*"}.get(part) or re.escape(part) for part in parts))
