"""What it takes to make stores on one kind of service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sfn.settings import StoreSettings
from sfn.store.objects import Objects
from sfn.store.pool import Pool


@dataclass(frozen=True, slots=True)
class Made:
    """Requests to a service as one principal.

    Attributes:
        objects: the requests.
        endpoint: of the service, None for its own.
        made_up: a tag in its form that no object has.
    """

    objects: Objects
    endpoint: str | None
    made_up: str


class Maker(Protocol):
    """One kind of service; what its stores share is kept here."""

    def made(self, settings: StoreSettings, vended: Mapping[str, str]) -> Made:
        """Requests by settings, or where something is vended as whom that says.

        Args:
            settings: of the section that covers a location, or of none.
            vended: by Iceberg's names; empty for nothing.

        Raises:
            KeyError: what is vended lacks that key.
        """
        ...


class Pools:
    """Connections, by whose certificates are trusted."""

    def __init__(self) -> None:
        self._pools: dict[Path | None, Pool] = {}

    def of(self, settings: StoreSettings) -> Pool:
        """The pool that a section's stores share with others."""
        return self._pools.setdefault(settings.ca_file, Pool(settings.ca_file))

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.close()
