"""Whether a publish asked any store: one that did not tells nothing of them."""

from __future__ import annotations

from sfn.storage import ObjectStore, StoreRouter


class StoreUsage:
    """Notes whether any store is asked.

    Attributes:
        was_used: one was.
    """

    def __init__(self) -> None:
        self.was_used = False

    def watch(self, stores: StoreRouter) -> StoreRouter:
        """The same stores, seen through this."""
        return _WatchedStores(stores, self)


class _WatchedStores:
    """Implements `StoreRouter`."""

    def __init__(self, stores: StoreRouter, usage: StoreUsage) -> None:
        self._stores, self._usage = stores, usage

    def store_for(self, location: str) -> ObjectStore:
        self._usage.was_used = True
        return self._stores.store_for(location)
