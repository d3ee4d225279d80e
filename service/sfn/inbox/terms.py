"""The inbox's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class InboxConfig:
    """What every adapter is told.

    Attributes:
        lease: how long a claim lasts unless renewed.
        retry_cap: the longest pause of a retry.
        max_crashes: leases that may run out in a row before a row counts as poison.
        max_drops: drops and steps back an hour that pass, by catalog. Where it is missing the greater of 10 and 1 % of
            the tables pass, and of drops fewer than half of the tables, or a single one.
        drop_limit_window: how far back the brake counts.
        stores: canonical prefixes of locations, each a store with lanes and a breaker of its own.
        poison_pause: until a row that counts as poison is looked at again.
        event_only_catalogs: catalogs that nobody can ask: what hints tell of their tables is kept until it was heard.
    """

    lease: timedelta = timedelta(seconds=30)
    retry_cap: timedelta = timedelta(minutes=5)
    max_crashes: int = 5
    max_drops: Mapping[str, int] = field(default_factory=dict)
    drop_limit_window: timedelta = timedelta(hours=1)
    poison_pause: timedelta = timedelta(hours=8)
    stores: tuple[str, ...] = ()
    event_only_catalogs: frozenset[str] = frozenset()

    def max_steps(self, catalog: str, live: int) -> int:
        """Return how many drops and steps back pass in an hour.

        Args:
            catalog: the catalog's name.
            live: how many tables of the catalog have a live file.
        """
        return self.max_drops.get(catalog, max(10, live // 100))

    def max_drops_of(self, catalog: str, tables: int) -> int:
        """Return how many tables may disappear in an hour: fewer than half of them, or a single one.

        A configured `max_drops` replaces this rule as well.

        Args:
            catalog: the catalog's name.
            tables: the tables that have a live file now, and those that were dropped within the hour.
        """
        return self.max_drops.get(catalog, max(1, (tables - 1) // 2))

    def allowed_drops(self, catalog: str, live: int, dropped: int = 0) -> int:
        """Return how many tables may disappear, within an hour or in one sweep.

        Args:
            catalog: the catalog's name.
            live: how many tables of the catalog have a live file.
            dropped: how many others were dropped within the hour.
        """
        return min(self.max_steps(catalog, live), self.max_drops_of(catalog, live + dropped))
