"""Builders of stores: configured stores, and stores opened with vended credentials."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final, Protocol

from sfn.catalogs import VendedCredential
from sfn.errors import ErrorScope, Permanent
from sfn.extras import install_command
from sfn.mounts import MOUNTS, mounts, mounts_of
from sfn.settings.root import Settings
from sfn.settings.sections import StoreSettings
from sfn.sfnfile.locations import is_below, scheme_of, store_prefix
from sfn.storage import ObjectClient, ObjectStore, PrefixRouter
from sfn.storage.local import LocalStore
from sfn.storage.remote_store import HttpPool, RemoteStore, StoreService
from sfn.worker.catalog_sources import OpenStore


@dataclass(frozen=True, slots=True)
class StoreClient:
    """A client of an object store's API, with one identity.

    Attributes:
        client: client for requests.
        endpoint: URL of the API; None for the provider's own.
        impossible_etag: well-formed etag that no object has.
    """

    client: ObjectClient
    endpoint: str | None
    impossible_etag: str


class StoreClientFactory(Protocol):
    """A factory of clients for one provider, which share state such as connections."""

    def build(self, settings: StoreSettings, vended: Mapping[str, str]) -> StoreClient:
        """Build a client with the configured credentials, or with vended ones.

        Args:
            settings: section that covers the location, or defaults.
            vended: vended credentials, by Iceberg's names; empty for the configured ones.

        Raises:
            KeyError: the vended credentials lack that key.
        """
        ...


class HttpPools:
    """Connection pools, one for each file of trusted certificates."""

    def __init__(self) -> None:
        self._pools: dict[Path | None, HttpPool] = {}

    def pool_for(self, settings: StoreSettings) -> HttpPool:
        """Return the pool for a section's `ca_file`."""
        return self._pools.setdefault(settings.ca_file, HttpPool(settings.ca_file))

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.close()


_EXTRAS: Final = {"s3": "s3", "abfss": "azure", "gs": "gcs"}


class RemoteStores:
    """A factory of remote stores, which closes them together. Stores on one service share what is known about it.

    Args:
        configured: sections `stores.NAME`, by name.
    """

    def __init__(self, configured: Mapping[str, StoreSettings]) -> None:
        self._configured, self._pools = configured, HttpPools()
        self._makers: dict[str, StoreClientFactory] = {}
        self._services: dict[tuple[str, str | None, bool], StoreService] = {}
        self._stores: list[RemoteStore] = []

    def store(self, name: str) -> RemoteStore:
        """Return the store of a section.

        Raises:
            Permanent: scope store; the packages for it are not installed.
        """
        settings = self._configured[name]
        store = self._store(f"stores.{name}.prefix", settings.scheme, settings, {})
        self._stores.append(store)
        return store

    def open_vended(self, credential: VendedCredential, location: str) -> RemoteStore:
        """Return the store of a location, with vended credentials.

        The section that covers the location, if any, provides the endpoint where the catalog does not.

        Raises:
            Permanent: scope table; the credentials are for another kind of store. Scope store; the packages for it are
                not installed.
        """
        covering = [one for one in self._configured.values() if is_below(location, one.prefix)]
        settings = max(covering, key=lambda one: len(one.prefix), default=StoreSettings(prefix=location.rstrip("/")))
        scheme = scheme_of(location)
        try:
            return self._store(location, scheme, settings, credential.config)
        except KeyError as error:
            raise Permanent(
                location,
                scope=ErrorScope.TABLE,
                expected=f"credentials for {scheme}: from the catalog",
                found=f"credentials without {error.args[0]}",
                remedy="check which kind of store the catalog vends credentials for",
            ) from error

    async def close(self) -> None:
        """Close all connections."""
        for store in self._stores:
            await store.close()
        await self._pools.close()

    def _store(self, where: str, scheme: str, settings: StoreSettings, vended: Mapping[str, str]) -> RemoteStore:
        client = self._maker(where, scheme).build(settings, vended)
        unsafe = settings.unsafe_unconditional_writes
        service = self._services.setdefault(
            (scheme, client.endpoint, unsafe), StoreService(client.impossible_etag, unsafe=unsafe)
        )
        return RemoteStore(client.client, service, of_one_table=bool(vended))

    def _maker(self, where: str, scheme: str) -> StoreClientFactory:
        if scheme not in self._makers:
            try:
                self._makers[scheme] = _build_factory(scheme, self._pools)
            except ModuleNotFoundError as error:
                raise Permanent(
                    where,
                    scope=ErrorScope.STORE,
                    expected=f"the packages that {scheme}: needs",
                    found=f"no module {error.name}",
                    remedy=install_command(_EXTRAS[scheme]),
                ) from error
        return self._makers[scheme]


def _build_factory(scheme: str, pools: HttpPools) -> StoreClientFactory:
    match scheme:
        case "s3":
            from sfn.app.storage_s3 import S3ClientFactory

            return S3ClientFactory(pools)
        case "gs":
            from sfn.app.storage_gcs import GcsClientFactory

            return GcsClientFactory(pools)
        case "abfss":
            from sfn.app.storage_azure import AzureClientFactory

            return AzureClientFactory(pools)
        case _:
            raise ValueError(f"expected a scheme with a store: {', '.join(_EXTRAS)}, found {scheme}")


@dataclass(frozen=True, slots=True)
class StoreRegistry:
    """The stores of one process.

    Attributes:
        stores: configured stores, by canonical prefix.
        open_vended: opens other stores with vended credentials.
    """

    stores: Mapping[str, ObjectStore]
    open_vended: OpenStore


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[StoreRegistry]:
    """Build the configured stores, and close their connections in the end.

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
    """Yield the mounts of stores with locks that other hosts do not see: store, mount point, option. Blocks.

    Args:
        settings: all settings.
        table: file with the list of mounts.
    """
    known = mounts(table)
    for name, one in settings.stores.items():
        if one.scheme == "file":
            # Unlike `Path.resolve`, this raises no error for a circle of symbolic links.
            folder = PurePath(os.path.realpath(one.prefix.removeprefix("file://") or "/"))
            for mount in mounts_of(folder, known):
                if mount.local_locks is not None:
                    yield name, mount.point, mount.local_locks


def _build_store(name: str, settings: StoreSettings, remotes: RemoteStores, bounds: Collection[str]) -> ObjectStore:
    if settings.scheme == "file":
        return LocalStore(settings.prefix, bounds=bounds, links_to=settings.links_to)
    return remotes.store(name)


_STORE_NAME = "report"


@asynccontextmanager
async def open_store(location: str, stores: Mapping[str, StoreSettings]) -> AsyncIterator[ObjectStore]:
    """Open the store of a canonical location, and close it in the end.

    Args:
        location: canonical location.
        stores: configured stores, by name.

    Raises:
        SfnError: the packages for the store are not installed.
    """
    if not any(is_below(location, one.prefix) for one in stores.values()):
        # The prefix is above the directory, because the directory may not exist yet.
        stores = {_STORE_NAME: StoreSettings(prefix=store_prefix(location))}
    async with open_stores(Settings(stores=stores)) as registry:
        yield PrefixRouter(registry.stores).store_for(location)
