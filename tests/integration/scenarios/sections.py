"""The one catalog, followed in each naming and placement, by namespaces of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sfn.sfnfile.naming import NAMINGS, Naming, Placement
from tests.integration.scenarios.service import Followed


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the configuration.

    Attributes:
        naming: what files are called.
        placement: where they lie.
        warehouse: where the catalog puts tables.
        expires: whether tombstones go as soon as they may.
    """

    naming: Naming
    placement: Placement
    warehouse: Path
    expires: bool = False

    @property
    def name(self) -> str:
        """By which events speak of it, and with which its namespaces begin."""
        if self.expires:
            return f"{self.naming.setting}-expiring"
        return self.naming.setting if self.placement is Placement.INSIDE else f"{self.naming.setting}-{self.placement}"

    @property
    def catalog_id(self) -> str:
        """By which its files speak of it."""
        return f"catalog-of-{self.name}"

    @property
    def root(self) -> Path:
        """Where files lie that lie below a root."""
        return self.warehouse / "pointers" / self.name

    def followed(self, told: str) -> Followed:
        """How the service is told of it.

        Args:
            told: the line that says where the catalog is.
        """
        lines = [
            told,
            f'catalog_id = "{self.catalog_id}"',
            f'include = ["{self.name}_*.**"]',
            f'naming = "{self.naming.setting}"',
            f'placement = "{self.placement}"',
            'replica_lag = "200ms"',
            'absence_delay = "1s"',
            'min_publish_interval = "0s"',
            "max_drops = 1000000",
            *(['expire_after = "2s"'] if self.expires else []),
        ]
        return Followed(self.name, [*lines, *self._branches(), *self._root()])

    def _branches(self) -> Sequence[str]:
        return ['branches = ["main", "release-*"]'] if self.naming.has_branch_files else []

    def _root(self) -> Sequence[str]:
        return [f'root = "{self.root}"'] if self.placement is Placement.ROOT else []


def founded(warehouse: Path) -> list[Section]:
    """All of them, with the roots that they need: a service makes none, as one that is missing may be a lost mount."""
    all_of_them = [Section(naming, placement, warehouse) for placement in Placement for naming in NAMINGS.values()]
    all_of_them += [Section(naming, Placement.INSIDE, warehouse, expires=True) for naming in NAMINGS.values()]
    for section in all_of_them:
        section.root.mkdir(parents=True)
    return all_of_them
