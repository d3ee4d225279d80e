"""Stores on object stores: of the settings, and of what catalogs vend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfn.domain.catalog_answer import VendedCredential
from sfn.errors import ErrorScope, Permanent
from sfn.settings import StoreSettings
from sfn.sfnfile.locations import is_below, scheme_of
from sfn.storage.object_store import RemoteStore, StoreService
from sfn.wiring.making import HttpPools, StoreClientFactory

_EXTRAS: Final = {"s3": "s3", "abfss": "azure", "gs": "gcs"}


class RemoteStores:
    """Makes stores; those on one service have what is known of it in common. Closed together.

    Args:
        configured: the sections `stores.NAME`, by name.
    """

    def __init__(self, configured: Mapping[str, StoreSettings]) -> None:
        self._configured, self._pools = configured, HttpPools()
        self._makers: dict[str, StoreClientFactory] = {}
        self._services: dict[tuple[str, str | None, bool], StoreService] = {}
        self._stores: list[RemoteStore] = []

    def store(self, name: str) -> RemoteStore:
        """The store of one section.

        Raises:
            Permanent: scope store: the packages that speak to it are not installed.
        """
        settings = self._configured[name]
        store = self._store(f"stores.{name}.prefix", settings.scheme, settings, {})
        self._stores.append(store)
        return store

    def open_vended(self, credential: VendedCredential, location: str) -> RemoteStore:
        """The store of a location, as whom a catalog vended it for; where it answers, a section may say that covers it.

        Raises:
            Permanent: scope table: what was vended opens another kind of store; scope store: the packages that speak
                to it are not installed.
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
                found=f"some without {error.args[0]}",
                remedy="see with which kind of store the catalog vends them for",
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
                    remedy=f"pip install '.[{_EXTRAS[scheme]}]'",
                ) from error
        return self._makers[scheme]


def _build_factory(scheme: str, pools: HttpPools) -> StoreClientFactory:
    match scheme:
        case "s3":
            from sfn.wiring.on_s3 import S3ClientFactory

            return S3ClientFactory(pools)
        case "gs":
            from sfn.wiring.on_gcs import GcsClientFactory

            return GcsClientFactory(pools)
        case _:
            from sfn.wiring.on_azure import AzureClientFactory

            return AzureClientFactory(pools)
