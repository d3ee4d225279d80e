"""The inbox in numbers: what a scrape and an operator see of all rows together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sfn.domain.identifiers import JobKey, normal_uuid
from sfn.domain.jobs import BackwardStep, StepKind

# ── figures: The inbox in numbers

STAT_STATES: Final = ("due", "scheduled", "retrying", "leased", "dead", "held")
"""What a table's row may be counted as.

    due        something was told of it, and it waits for its turn
    scheduled  only time asks for its next look
    retrying   its last attempt failed
    leased     it is being looked at
    dead       given up, until an event, an operator, or many hours
    held       the brake holds it
"""


@dataclass(frozen=True, slots=True)
class MissingTableStats:
    """Tables of one catalog that have a live file, and that the catalog does not show any more.

    Attributes:
        count: how many.
        since: when the first of them was first seen missing.
    """

    count: int
    since: datetime


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How many of what.

    Attributes:
        tables: rows of tables, by catalog and state (`STAT_STATES`); a pair without any may be missing.
        oldest_due: by catalog, since when the row waits that has waited longest of those that something was told of,
            however often it was tried; what waits on purpose does not count. A table that was given up counts from when
            its open letter was opened. Missing: none does.
        dead_letters: open dead letters, by catalog and reason; the catalog of a request that nobody understood is "".
        limit_reached: catalogs whose brake is on: it holds tables, or would hold the next step.
        open_intents: commits through a gateway whose outcome is not known, by catalog; missing where there is none.
        oldest_intent: by catalog, from when the asks for the oldest of them are counted.
        missing: by catalog, the tables with a live file that the catalog does not show any more.
    """

    tables: Mapping[tuple[str, str], int]
    oldest_due: Mapping[str, datetime]
    dead_letters: Mapping[tuple[str, str], int]
    limit_reached: frozenset[str]
    open_intents: Mapping[str, int] = field(default_factory=dict)
    oldest_intent: Mapping[str, datetime] = field(default_factory=dict)
    missing: Mapping[str, MissingTableStats] = field(default_factory=dict)


def earliest_by_catalog(one: Mapping[str, datetime], other: Mapping[str, datetime]) -> dict[str, datetime]:
    """The earlier moment of each catalog."""
    return {
        catalog: min(at for at in (one.get(catalog), other.get(catalog)) if at is not None)
        for catalog in one.keys() | other.keys()
    }


def catalogs_over_limit(tables: Mapping[tuple[str, str], int], limit_reached: Collection[str]) -> frozenset[str]:
    """The catalogs whose brake is on. A sweep that finds too many tables gone has them held without tripping it.

    Args:
        tables: as in `Figures`.
        limit_reached: the catalogs whose steps ask for leave in vain.
    """
    return frozenset(limit_reached) | {
        catalog for (catalog, state), count in tables.items() if state == "held" and count
    }


@dataclass(frozen=True, slots=True)
class DropLimitState:
    """One catalog's brake.

    Attributes:
        limit_reached: it is on: it holds tables, or lets nothing pass until it is released or a sweep is calm.
        steps: drops and steps back within its window.
        limit: how many drops it lets pass.
        live_tables: tables of its catalog that have a live file, of which the limit is a part.
    """

    limit_reached: bool
    steps: int
    limit: int
    live_tables: int


# ── names: Count tables


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table under one of its names.

    Attributes:
        name: the name.
        uuid: the table's uuid in its one spelling; None or empty where it is not known.
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
        subject: the name whose files the step changes.
        step: the step.
        is_renamed: see `NamedTable`.
    """
    return NamedTable(subject, step.uuid, is_renamed) if step.kind is StepKind.DROP else None


def without_old_names(found: Iterable[NamedTable]) -> list[NamedTable]:
    """Leave out the names that a table left by a rename, where another name stands for that table alone.

    An equal uuid alone proves no rename: two names may be registered for one metadata file, and each of them counts.
    A name that stands for several tables, as after a swap of names, stands for none of them alone.
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
    # Of old names only, the first one stays.
    first = {uuid: min((one.is_renamed, str(one.name)) for one in there) for uuid, there in alone.items()}
    return [
        one
        for one in names
        if not one.is_renamed or one.uuid not in first or first[one.uuid] >= (one.is_renamed, str(one.name))
    ]


def is_already_counted(drop: NamedTable | None, drops: Iterable[NamedTable]) -> bool:
    """Return whether a step drops a table whose drop under another name was allowed and counted.

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
        steps: how many steps were allowed.
        drops: those of them that drop a table.
    """
    return steps - len(drops) + len(without_old_names(drops))
