"""The inbox's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Terms:
    """What every adapter is told.

    Attributes:
        lease: how long a claim lasts unless renewed.
        cap: the longest pause of a retry.
        crashes: leases that may run out in a row before a row counts as poison.
        max_drops: steps back an hour that the brake allows, by catalog; missing for the greater of 10 and 1 %.
        brake_window: how far back the brake counts.
        stores: canonical prefixes of locations, each a store with lanes and a breaker of its own.
        poison_pause: until a row that counts as poison is looked at again.
        told: catalogs that nobody can ask: what hints tell of their tables is kept until it was heard.
    """

    lease: timedelta = timedelta(seconds=30)
    cap: timedelta = timedelta(minutes=5)
    crashes: int = 5
    max_drops: Mapping[str, int] = field(default_factory=dict)
    brake_window: timedelta = timedelta(hours=1)
    poison_pause: timedelta = timedelta(hours=8)
    stores: tuple[str, ...] = ()
    told: frozenset[str] = frozenset()

    def allowance(self, catalog: str, live: int) -> int:
        """Steps back an hour, and absences a sweep, that are let pass.

        Args:
            live: how many tables of the catalog have a live file.
        """
        return self.max_drops.get(catalog, max(10, live // 100))
