"""What one catalog's tables are published by: the settings, as plain values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from typing import Final

from sfn.pointer.naming import IDENTIFIER, MAIN, Naming, dotted
from sfn.pointer.site import Placement, Site, below_root
from sfn.words import Table, TableName

MOST_COMMITS: Final = 900
"""Files of a table's commits that stay whatever their age: with its head they are one page of a listing."""


class OnDrop(StrEnum):
    """What becomes of the files of a table that was dropped."""

    TOMBSTONE = "tombstone"
    DELETE = "delete"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Interest:
    """Which tables are published: globs over the encoded dotted name, `*` within a level, `**` across; exclude wins."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def covers(self, table: TableName) -> bool:
        """Whether the table gets files."""
        if not self.include and not self.exclude:
            return True
        name = dotted(table.namespace, table.name)
        if any(_pattern(glob).fullmatch(name) for glob in self.exclude):
            return False
        return not self.include or any(_pattern(glob).fullmatch(name) for glob in self.include)

    def leaves_out(self, namespace: tuple[str, ...]) -> bool:
        """Whether `exclude` covers whatever may lie in a namespace, at any depth."""
        start = dotted(namespace, "")
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
        keep: with a file for each commit, how many of the newest stay at least.
        keep_for: and how old the others get, as far as there are no more than `MOST_COMMITS`.
        allowed: canonical prefixes that locations must lie below; empty for any.
        swept: sweeps of this catalog are made, so an absence waits for one.
        sweep_every: how often.
        told: nobody can ask this catalog: what was told of its tables is the truth.
        interest: which tables.
        retired: none any more: what is ours goes.
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
    branches: tuple[str, ...] = (MAIN,)
    keep: int = 100
    keep_for: timedelta = timedelta(hours=24)
    allowed: tuple[str, ...] = ()
    swept: bool = True
    sweep_every: timedelta = timedelta(minutes=15)
    told: bool = False
    interest: Interest = field(default_factory=Interest)
    retired: bool = False
    adopted: tuple[TableName, str] | None = None
    writer: str = "iceberg-sfn"

    def site(self, name: TableName, place: str) -> Site:
        """Where the files of a table lie.

        Args:
            place: the table's canonical location.
        """
        if self.placement is Placement.ROOT:
            place = below_root(self.root, name.namespace, name.name)
        return Site(place, self.naming, self.placement)

    @property
    def has_refs(self) -> bool:
        """Whether other branches than `main` may have files."""
        return self.naming.has_refs and any(glob != MAIN for glob in self.branches)

    def refs(self, table: Table) -> dict[str, int]:
        """The heads of a table's branches that have a file, beside `main`."""
        if not self.has_refs:
            return {}
        return {ref: head for ref, head in table.branches if any(fnmatchcase(ref, glob) for glob in self.branches)}

    @property
    def pause(self) -> timedelta:
        """How long to wait for what another row must do first, or a replica must hear of."""
        return max(self.replica_lag, timedelta(seconds=1))

    @property
    def long_pause(self) -> timedelta:
        """How long to wait for what may take as long as an absence, or may never come."""
        return max(self.pause, self.absence_delay / 10)


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*)", glob)
    return re.compile("".join({"**": ".*", "*": "[^.]*"}.get(part) or re.escape(part) for part in parts))
