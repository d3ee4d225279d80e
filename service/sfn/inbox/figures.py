"""The inbox in numbers: what a scrape and an operator see of all rows together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

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
