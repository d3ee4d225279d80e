"""One store for one place, of the configured ones or made for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from sfn.pointer.location import below, store_of
from sfn.settings import Settings, StoreSettings
from sfn.store import PointerStore
from sfn.store.router import Router
from sfn.wiring.places import shelf

_NAME = "report"


@asynccontextmanager
async def opened(location: str, stores: Mapping[str, StoreSettings]) -> AsyncIterator[PointerStore]:
    """The store of a canonical location; closed in the end.

    Args:
        stores: the configured ones, by name.

    Raises:
        SfnError: its packages are not installed.
    """
    if not any(below(location, one.prefix) for one in stores.values()):
        # Not the directory alone, which need not be there yet.
        stores = {_NAME: StoreSettings(prefix=store_of(location))}
    async with shelf(Settings(stores=stores)) as places:
        yield Router(places.stores).at(location)
