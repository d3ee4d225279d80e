"""Statistics of the inbox, for metrics and operators, and the rules by which the drop limit counts tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sfn.domain.identifiers import JobKey, normal_uuid
from sfn.domain.jobs import BackwardStep, StepKind

STAT_STATES: Final = ("due", "scheduled", "retrying", "leased", "dead", "held")
"""States in which the job of a table is counted.

    due        a notification waits to be processed
    scheduled  the job waits for its next refresh
    retrying   the last attempt failed
    leased     a worker has the job
    dead       there is an open dead letter; an event, an operator or a late recheck makes the job due
    held       the drop limit holds the job
"""


@dataclass(frozen=True, slots=True)
class MissingTableStats:
    """Tables of one catalog that have a live file, and that the catalog does not show any more.

    Attributes:
        count: number of tables.
        since: when the first of them was found missing.
    """

    count: int
    since: datetime


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Counts of jobs, dead letters and intents. A catalog without any may be missing in each mapping.

    Attributes:
        tables: number of table jobs, by catalog and state (`STAT_STATES`).
        oldest_due: by catalog, the start of the longest wait of a job with unprocessed notifications, including its
            retries but not deliberate pauses. A dead job counts from the time when its letter was opened.
        dead_letters: number of open dead letters, by catalog and reason; the catalog of an undecodable request is "".
        limit_reached: catalogs with a reached drop limit: it holds tables, or would hold the next step.
        open_intents: number of gateway commits with unknown outcome, by catalog.
        oldest_intent: by catalog, the start of the schedule of the oldest intent.
        missing: by catalog, the tables with a live file that the catalog does not show any more.
        unapplied: accepted messages that are not part of these counts yet.
        oldest_unapplied: when the oldest of them arrived.
        queued: messages of this process that wait for the disk.
        oldest_queued: when the oldest of them arrived.
    """

    tables: Mapping[tuple[str, str], int]
    oldest_due: Mapping[str, datetime]
    dead_letters: Mapping[tuple[str, str], int]
    limit_reached: frozenset[str]
    open_intents: Mapping[str, int] = field(default_factory=dict)
    oldest_intent: Mapping[str, datetime] = field(default_factory=dict)
    missing: Mapping[str, MissingTableStats] = field(default_factory=dict)
    unapplied: int = 0
    oldest_unapplied: datetime | None = None
    queued: int = 0
    oldest_queued: datetime | None = None


def earliest_by_catalog(one: Mapping[str, datetime], other: Mapping[str, datetime]) -> dict[str, datetime]:
    """Return the earlier of two times for each catalog."""
    return {
        catalog: min(at for at in (one.get(catalog), other.get(catalog)) if at is not None)
        for catalog in one.keys() | other.keys()
    }


def catalogs_over_limit(tables: Mapping[tuple[str, str], int], limit_reached: Collection[str]) -> frozenset[str]:
    """Return the catalogs with a reached drop limit, including those where a sweep holds tables.

    A sweep that finds too many tables missing holds them without counting steps.

    Args:
        tables: see `QueueStats.tables`.
        limit_reached: the catalogs in which no further step is allowed.
    """
    return frozenset(limit_reached) | {
        catalog for (catalog, state), count in tables.items() if state == "held" and count
    }


@dataclass(frozen=True, slots=True)
class DropLimitState:
    """State of the drop limit of one catalog.

    Attributes:
        limit_reached: True if the limit holds tables, or allows no step until an operator releases it or a sweep stays
            within the limit.
        steps: drops and rollbacks within the window.
        limit: number of drops that pass.
        live_tables: tables of the catalog with a live file; the limit is a fraction of them.
    """

    limit_reached: bool
    steps: int
    limit: int
    live_tables: int


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table under one of its names.

    Attributes:
        name: the name.
        uuid: the table's uuid, normalised; None or empty if unknown.
        is_renamed: an event or a sweep reported that the table of this name has another name now.
    """

    name: JobKey
    uuid: str | None
    is_renamed: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "uuid", normal_uuid(self.uuid))


def dropped_table(subject: JobKey, step: BackwardStep, *, is_renamed: bool) -> NamedTable | None:
    """Return the table that a step drops; None for a step that drops none.

    Args:
        subject: name of the table with the changed files.
        step: the step.
        is_renamed: see `NamedTable`.
    """
    return NamedTable(subject, step.uuid, is_renamed) if step.kind is StepKind.DROP else None


def without_old_names(found: Iterable[NamedTable]) -> list[NamedTable]:
    """Return the names without those that a rename left, if another name belongs to that table only.

    An equal uuid does not prove a rename: two names may be registered for one metadata file, and each of them counts. A
    name of several tables, as after a swap of names, belongs to none of them only.
    """
    names = list(found)
    if not any(one.is_renamed for one in names):
        return names
    uuids: defaultdict[JobKey, set[str | None]] = defaultdict(set)
    for one in names:
        uuids[one.name].add(one.uuid)
    alone: defaultdict[str | None, list[NamedTable]] = defaultdict(list)
    for one in names:
        if one.uuid and len(uuids[one.name]) == 1:
            alone[one.uuid].append(one)
    # If a table has only old names, the first one stays.
    first = {uuid: min((one.is_renamed, str(one.name)) for one in there) for uuid, there in alone.items()}
    return [
        one
        for one in names
        if not one.is_renamed or one.uuid not in first or first[one.uuid] >= (one.is_renamed, str(one.name))
    ]


def is_already_counted(drop: NamedTable | None, drops: Iterable[NamedTable]) -> bool:
    """Return True if a step drops a table that was already counted as dropped under another name.

    Args:
        drop: the table that the step drops; None for a step that drops none.
        drops: the drops that were allowed.
    """
    if drop is None or not drop.uuid:
        return False
    others = list(drops)
    return len(without_old_names([*others, drop])) <= len(without_old_names(others))


def counted_steps(steps: int, drops: Collection[NamedTable]) -> int:
    """Return how many of the allowed steps count.

    Args:
        steps: number of allowed steps.
        drops: the tables that these steps drop.

    """
    return steps - len(drops) + len(without_old_names(drops))
