"""From the settings to the stores."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath

from sfn.mounts import MOUNTS, mounts, mounts_of
from sfn.settings import Settings, StoreSettings
from sfn.storage import ObjectStore
from sfn.storage.local import LocalStore
from sfn.wiring.remote import RemoteStores
from sfn.worker.catalog_sources import OpenStore


@dataclass(frozen=True, slots=True)
class StoreRegistry:
    """The stores of one process.

    Attributes:
        stores: those that are configured, by canonical prefix.
        open_vended: opens others, with what a catalog vends.
    """

    stores: Mapping[str, ObjectStore]
    open_vended: OpenStore


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[StoreRegistry]:
    """The stores; their connections are closed in the end.

    Raises:
        SfnError: a store's packages are not installed.
    """
    remotes = RemoteStores(settings.stores)
    try:
        bounds = [place for catalog in settings.catalogs.values() for place in catalog.allowed_locations]
        stores = {one.prefix: _build_store(name, one, remotes, bounds) for name, one in settings.stores.items()}
        yield StoreRegistry(stores, remotes.open_vended)
    finally:
        await remotes.close()


def local_locks(settings: Settings, table: Path = MOUNTS) -> Iterator[tuple[str, str, str]]:
    """Yield the mounts of stores whose locks hold on one host alone: store, mount point, option. Blocks.

    Args:
        table: the list of mounts.
    """
    known = mounts(table)
    for name, one in settings.stores.items():
        if one.scheme == "file":
            # Unlike `ColumnPath.resolve`, no error where links lead in a circle.
            folder = PurePath(os.path.realpath(one.prefix.removeprefix("file://") or "/"))
            for mount in mounts_of(folder, known):
                if mount.local_locks is not None:
                    yield name, mount.point, mount.local_locks


def _build_store(name: str, settings: StoreSettings, remotes: RemoteStores, bounds: Collection[str]) -> ObjectStore:
    if settings.scheme == "file":
        return LocalStore(settings.prefix, bounds=bounds, links_to=settings.links_to)
    return remotes.store(name)
