"""What one catalog's tables are published by: the settings, as plain values."""

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
"""Files of a table's commits that stay whatever their age: with its head they are one page of a listing."""


class OnDrop(StrEnum):
    """What becomes of the files of a table that was dropped."""

    TOMBSTONE = "tombstone"
    DELETE = "delete"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Which tables are published: globs over the encoded dotted name, `*` within a level, `**` across; exclude wins."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def covers(self, table: TableIdentifier) -> bool:
        """Whether the table gets files."""
        if not self.include and not self.exclude:
            return True
        name = dotted_name(table.namespace, table.name)
        if any(_pattern(glob).fullmatch(name) for glob in self.exclude):
            return False
        return not self.include or any(_pattern(glob).fullmatch(name) for glob in self.include)

    def excludes_namespace(self, namespace: tuple[str, ...]) -> bool:
        """Whether `exclude` covers whatever may lie in a namespace, at any depth."""
        start = dotted_name(namespace, "")
        # What ends in `**` and matches how all those names begin matches all of them.
        return any(glob.endswith("**") and _pattern(glob).fullmatch(start) for glob in self.exclude)


@dataclass(frozen=True, slots=True)
class Policy:
    """How one catalog's tables are published.

    Attributes:
        catalog_id: which catalog the files say they belong to.
        replica_lag: how long an answer of the catalog may be behind, with the clock skew of our hosts.
        absence_delay: how long a table must be absent before it counts as dropped.
        expire_after: how long a tombstone stays.
        refresh_after: how long a file goes unwritten.
        min_publish_interval: from one publish of a table to the next.
        on_drop: what becomes of a dropped table's files.
        version_hint: whether to keep `version-hint.text`.
        naming: what the files are called.
        placement: which folder they lie in.
        root: with `Placement.ROOT`, the canonical folder below which each table has one.
        branches: globs of the branches that have files, where the naming gives them any; `main` always has.
        keep_commits: with a file for each commit, how many of the newest stay at least.
        keep_commits_for: and how old the others get, as far as there are no more than `MAX_COMMIT_FILES`.
        allowed_locations: canonical prefixes that locations must lie below; empty for any.
        is_swept: sweeps of this catalog are made, so an absence waits for one.
        sweep_every: how often.
        event_only: nobody can ask this catalog: what was told of its tables is the truth.
        table_filter: which tables.
        is_retired: none any more: what is ours goes.
        adopted: a row, and the `catalog_id` whose files under that row's identifier count as the row's own.
        writer: what documents say wrote them.
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
        """Where the files of a table lie.

        Args:
            location: the table's canonical location.
        """
        if self.placement is Placement.ROOT:
            location = folder_below_root(self.root, name.namespace, name.name)
        return FileLayout(location, self.naming, self.placement)

    @property
    def has_branch_files(self) -> bool:
        """Whether other branches than `main` may have files."""
        return self.naming.has_branch_files and any(glob != MAIN_BRANCH for glob in self.branches)

    def branch_heads(self, table: Table) -> dict[str, int]:
        """The heads of a table's branches that have a file, beside `main`."""
        if not self.has_branch_files:
            return {}
        return {ref: head for ref, head in table.branches if any(fnmatchcase(ref, glob) for glob in self.branches)}

    @property
    def recheck_delay(self) -> timedelta:
        """How long to wait for what another row must do first, or a replica must hear of."""
        return max(self.replica_lag, timedelta(seconds=1))

    @property
    def long_recheck_delay(self) -> timedelta:
        """How long to wait for what may take as long as an absence, or may never come."""
        return max(self.recheck_delay, self.absence_delay / 10)


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*)", glob)
    return re.compile("".join({"**": ".*", "*": "[^.]*"}.get(part) or re.escape(part) for part in parts))
