"""Whether a publish asked any store: one that did not tells nothing of them."""

from __future__ import annotations

from sfn.store import PointerStore, Stores


class Asked:
    """Notes whether any store is asked.

    Attributes:
        any: one was.
    """

    def __init__(self) -> None:
        self.any = False

    def of(self, stores: Stores) -> Stores:
        """The same stores, seen through this."""
        return _Noted(stores, self)


class _Noted:
    """Implements `Stores`."""

    def __init__(self, stores: Stores, asked: Asked) -> None:
        self._stores, self._asked = stores, asked

    def at(self, location: str) -> PointerStore:
        self._asked.any = True
        return self._stores.at(location)
