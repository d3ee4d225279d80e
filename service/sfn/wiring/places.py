"""From the settings to the stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sfn.settings import Settings, StoreSettings
from sfn.store import PointerStore
from sfn.store.local import LocalStore
from sfn.wiring.remote import Remotes
from sfn.work.vended import Opened


@dataclass(frozen=True, slots=True)
class Shelf:
    """The stores of one process.

    Attributes:
        stores: those that are configured, by canonical prefix.
        granted: opens others, with what a catalog vends.
    """

    stores: Mapping[str, PointerStore]
    granted: Opened


@asynccontextmanager
async def shelf(settings: Settings) -> AsyncIterator[Shelf]:
    """The stores; their connections are closed in the end.

    Raises:
        SfnError: a store's packages are not installed.
    """
    remotes = Remotes(settings.stores)
    try:
        bounds = [place for catalog in settings.catalogs.values() for place in catalog.allowed_locations]
        stores = {one.prefix: _store(name, one, remotes, bounds) for name, one in settings.stores.items()}
        yield Shelf(stores, remotes.granted)
    finally:
        await remotes.close()


def _store(name: str, settings: StoreSettings, remotes: Remotes, bounds: Collection[str]) -> PointerStore:
    if settings.scheme == "file":
        return LocalStore(settings.prefix, bounds=bounds, links_to=settings.links_to)
    return remotes.store(name)
