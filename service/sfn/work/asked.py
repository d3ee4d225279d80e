"""Whether a publish asked any store: one that did not tells nothing of them."""

from __future__ import annotations

from sfn.store import PointerStore, Stores


class Asked:
    """Implements `Stores`, and notes whether any is asked.

    Attributes:
        any: one was.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self.any = False

    def at(self, location: str) -> PointerStore:
        self.any = True
        return self._stores.at(location)
