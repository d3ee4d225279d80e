"""What a sweep has found so far: for whoever waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from sfn.catalog import UnlistedNamespace
from sfn.words import TableName

NAMED: Final = 1_000
"""Tables that a report names; the others are only counted."""


class Course(StrEnum):
    """Where a sweep is."""

    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    STOPPED = "stopped"


class Difference(StrEnum):
    """How a table differs from what was published of it."""

    NEW = "new"
    CHANGED = "changed"
    ABSENT = "absent"
    RENAMED = "renamed"
    """Gone, and found under another name."""
    LEFT_ALONE = "left-alone"
    HELD = "held"
    """Gone, or older than what was published, and the brake holds it."""


@dataclass(slots=True)
class SweepReport:
    """One sweep. Whoever has it sees it change.

    Attributes:
        began_at, ended_at: when; None while it runs.
        course: where it is.
        known: rows of tables that there were before, about as many as there are to look at.
        tables: how many were looked at.
        differed: the first of those that differed, each with how.
        differed_count: how many did.
        withheld: namespaces, dotted, that could not be listed: their tables, and those below, count as present.
        withheld_reason: why the first of them could not be listed; a failure comes before a refusal.
        listing_failed: those of them with a listing that failed; the others are forbidden.
        failed: the first of those tables that could not be looked at.
        failed_count: how many could not.
        error: why it failed.
        missing: tables with a live file that the catalog does not show any more, under whatever name.
        before: the previous sweep of this process, while this one runs. Its findings may be out of date.
    """

    began_at: datetime
    ended_at: datetime | None = None
    course: Course = Course.RUNNING
    known: int = 0
    tables: int = 0
    differed: list[tuple[TableName, Difference]] = field(default_factory=list)
    differed_count: int = 0
    withheld: list[str] = field(default_factory=list)
    withheld_reason: str | None = None
    listing_failed: list[str] = field(default_factory=list)
    failed: list[TableName] = field(default_factory=list)
    failed_count: int = 0
    error: str | None = None
    missing: int = 0
    before: SweepReport | None = None

    def differs(self, table: TableName, how: Difference) -> None:
        """A table differs."""
        self.differed_count += 1
        if len(self.differed) < NAMED:
            self.differed.append((table, how))

    def withholds(self, name: str, found: UnlistedNamespace) -> None:
        """A namespace could not be listed, which is called so."""
        if self.withheld_reason is None or (found.is_failure and not self.listing_failed):
            self.withheld_reason = found.message
        self.withheld.append(name)
        if found.is_failure:
            self.listing_failed.append(name)

    def fails(self, table: TableName) -> None:
        """A table could not be looked at."""
        self.failed_count += 1
        if len(self.failed) < NAMED:
            self.failed.append(table)

    def end(self, course: Course, at: datetime, error: str | None = None) -> None:
        """It runs no more."""
        self.course, self.ended_at, self.error, self.before = course, at, error, None
