"""Whether a publish asked any store: one that did not tells nothing of them."""

from __future__ import annotations

from sfn.store import ObjectStore, StoreRouter


class Asked:
    """Notes whether any store is asked.

    Attributes:
        any: one was.
    """

    def __init__(self) -> None:
        self.any = False

    def of(self, stores: StoreRouter) -> StoreRouter:
        """The same stores, seen through this."""
        return _Noted(stores, self)


class _Noted:
    """Implements `StoreRouter`."""

    def __init__(self, stores: StoreRouter, asked: Asked) -> None:
        self._stores, self._asked = stores, asked

    def store_for(self, location: str) -> ObjectStore:
        self._asked.any = True
        return self._stores.store_for(location)
