"""One store for one place, of the configured ones or made for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from sfn.settings import Settings, StoreSettings
from sfn.sfnfile.locations import is_below, store_prefix
from sfn.storage import ObjectStore, PrefixRouter
from sfn.wiring.places import open_stores

_STORE_NAME = "report"


@asynccontextmanager
async def open_store(location: str, stores: Mapping[str, StoreSettings]) -> AsyncIterator[ObjectStore]:
    """The store of a canonical location; closed in the end.

    Args:
        stores: the configured ones, by name.

    Raises:
        SfnError: its packages are not installed.
    """
    if not any(is_below(location, one.prefix) for one in stores.values()):
        # Not the directory alone, which need not be there yet.
        stores = {_STORE_NAME: StoreSettings(prefix=store_prefix(location))}
    async with open_stores(Settings(stores=stores)) as registry:
        yield PrefixRouter(registry.stores).store_for(location)
