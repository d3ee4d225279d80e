"""What a sweep has found so far: for whoever waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from sfn.catalogs import UnlistedNamespace
from sfn.domain.identifiers import TableIdentifier

MAX_LISTED: Final = 1_000
"""Tables that a report names; the others are only counted."""


class SweepPhase(StrEnum):
    """Where a sweep is."""

    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    STOPPED = "stopped"


class SweepDifference(StrEnum):
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
        started_at, ended_at: when; None while it runs.
        phase: where it is.
        known_tables: rows of tables that there were before, about as many as there are to look at.
        tables: how many were looked at.
        differences: the first of those that differed, each with how.
        difference_count: how many did.
        unlisted_namespaces: namespaces, dotted, that could not be listed: their tables, and those below, count as
            present.
        unlisted_reason: why the first of them could not be listed; a failure comes before a refusal.
        listing_failed: those of them with a listing that failed; the others are forbidden.
        failed_tables: the first of those tables that could not be looked at.
        failed_count: how many could not.
        error: why it failed.
        missing_tables: tables with a live file that the catalog does not show any more, under whatever name.
        previous: the previous sweep of this process, while this one runs. Its findings may be out of date.
    """

    started_at: datetime
    ended_at: datetime | None = None
    phase: SweepPhase = SweepPhase.RUNNING
    known_tables: int = 0
    tables: int = 0
    differences: list[tuple[TableIdentifier, SweepDifference]] = field(default_factory=list)
    difference_count: int = 0
    unlisted_namespaces: list[str] = field(default_factory=list)
    unlisted_reason: str | None = None
    listing_failed: list[str] = field(default_factory=list)
    failed_tables: list[TableIdentifier] = field(default_factory=list)
    failed_count: int = 0
    error: str | None = None
    missing_tables: int = 0
    previous: SweepReport | None = None

    def add_difference(self, table: TableIdentifier, how: SweepDifference) -> None:
        """A table differs."""
        self.difference_count += 1
        if len(self.differences) < MAX_LISTED:
            self.differences.append((table, how))

    def add_unlisted(self, name: str, found: UnlistedNamespace) -> None:
        """A namespace could not be listed, which is called so."""
        if self.unlisted_reason is None or (found.is_failure and not self.listing_failed):
            self.unlisted_reason = found.message
        self.unlisted_namespaces.append(name)
        if found.is_failure:
            self.listing_failed.append(name)

    def add_failed(self, table: TableIdentifier) -> None:
        """A table could not be looked at."""
        self.failed_count += 1
        if len(self.failed_tables) < MAX_LISTED:
            self.failed_tables.append(table)

    def finish(self, phase: SweepPhase, at: datetime, error: str | None = None) -> None:
        """It runs no more."""
        self.phase, self.ended_at, self.error, self.previous = phase, at, error, None
