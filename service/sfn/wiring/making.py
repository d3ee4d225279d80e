"""What it takes to make stores on one kind of service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sfn.settings import StoreSettings
from sfn.storage import ObjectClient
from sfn.storage.object_store import HttpPool


@dataclass(frozen=True, slots=True)
class StoreClient:
    """Requests to a service as one principal.

    Attributes:
        client: the requests.
        endpoint: of the service, None for its own.
        impossible_etag: a tag in its form that no object has.
    """

    client: ObjectClient
    endpoint: str | None
    impossible_etag: str


class StoreClientFactory(Protocol):
    """One kind of service; what its stores share is kept here."""

    def build(self, settings: StoreSettings, vended: Mapping[str, str]) -> StoreClient:
        """Requests by settings, or where something is vended as whom that says.

        Args:
            settings: of the section that covers a location, or of none.
            vended: by Iceberg's names; empty for nothing.

        Raises:
            KeyError: what is vended lacks that key.
        """
        ...


class HttpPools:
    """Connections, by whose certificates are trusted."""

    def __init__(self) -> None:
        self._pools: dict[Path | None, HttpPool] = {}

    def pool_for(self, settings: StoreSettings) -> HttpPool:
        """The pool that a section's stores share with others."""
        return self._pools.setdefault(settings.ca_file, HttpPool(settings.ca_file))

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.close()
