"""Which configured store holds a location."""

from __future__ import annotations

from collections.abc import Mapping

from sfn.errors import LocationRefused
from sfn.sfnfile.locations import is_below
from sfn.store import ObjectStore


class PrefixRouter:
    """Implements `StoreRouter`.

    Args:
        stores: by canonical prefix (`file://`, `s3://bucket`, `s3://bucket/warehouse`). A prefix holds whole segments,
            and of several the longest holds.
    """

    def __init__(self, stores: Mapping[str, ObjectStore]) -> None:
        self._stores = sorted(stores.items(), key=lambda item: len(item[0]), reverse=True)

    def store_for(self, location: str) -> ObjectStore:
        """The store of a normalised location or key.

        Raises:
            LocationRefused: no prefix fits.
        """
        for prefix, store in self._stores:
            if is_below(location, prefix):
                return store
        known = ", ".join(sorted(prefix for prefix, _ in self._stores)) or "none is configured"
        raise LocationRefused(
            location,
            expected=f"a location below the prefix of a store ({known})",
            found="a location below none",
            remedy="set `[stores.NAME] prefix` so that it covers this location",
        )

    async def read_range(self, key: str, start: int, length: int) -> bytes | None:
        """As `ObjectStore.part`, of whichever store holds the key.

        Raises:
            LocationRefused: none does.
        """
        return await self.store_for(key).read_range(key, start, length)
