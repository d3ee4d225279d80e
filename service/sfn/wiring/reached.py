"""The catalogs that were reached, each with its policy and with what opens its tables' places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import anyio
import structlog

from sfn.catalogs import CredentialVendor
from sfn.clock import Clock
from sfn.inbox import CatalogAdmin, TableIndex
from sfn.inbox.admin import recorded_owner
from sfn.settings import Settings
from sfn.storage import StoreRouter
from sfn.wiring.places import StoreRegistry
from sfn.wiring.sources import IdentifiedCatalog
from sfn.wiring.terms import publish_policy
from sfn.worker.catalog_sources import ConnectedCatalog, VendedStores

if TYPE_CHECKING:
    # It brings FastAPI, which whoever only looks does not wait for.
    from sfn.admin.operators import RetiredCatalogs

VendedStoresFactory: TypeAlias = Callable[[str, IdentifiedCatalog], VendedStores | None]
"""By its name and its adapter, what opens the places of a catalog's tables; None for the configured stores."""

_log = structlog.stdlib.get_logger(__name__)


def vended_stores_factory(
    settings: Settings, stores: StoreRouter, registry: StoreRegistry, clock: Clock
) -> VendedStoresFactory:
    """What opens places, as the settings say."""

    def vended(name: str, catalog: IdentifiedCatalog) -> VendedStores | None:
        if settings.catalogs[name].vended_credentials and isinstance(catalog, CredentialVendor):
            return VendedStores(catalog, stores, registry.open_vended, clock, settings.catalogs[name].root or "")
        return None

    return vended


class LazyCatalogRegistry:
    """Implements `Sources`: a catalog's policy is complete once it was reached, as the catalog says who it is.

    Nothing is published for a catalog before: its claims end as trouble of the catalog, which costs no attempt.

    Args:
        settings: all of them.
        catalogs: the adapters, by name.
        retirement: which catalogs retired.
        custody, roster: remember whose their files are.
        vended: what opens the places of a catalog's tables, where it says it.
    """

    def __init__(
        self,
        settings: Settings,
        catalogs: Mapping[str, IdentifiedCatalog],
        retirement: RetiredCatalogs,
        catalog_admin: CatalogAdmin,
        table_index: TableIndex,
        vended: VendedStoresFactory = lambda _name, _catalog: None,
    ) -> None:
        self._settings, self._catalogs, self._retirement = settings, catalogs, retirement
        self._catalog_admin, self._table_index, self._vended = catalog_admin, table_index, vended
        self._sources: dict[str, ConnectedCatalog] = {}
        self._recording: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    async def get(self, catalog: str) -> ConnectedCatalog | None:
        source = self._sources.get(catalog)
        found = self._catalogs.get(catalog)
        if source is None and found is not None:
            source = await self._connect(catalog, found)
        if source is not None and self.is_retired(catalog):
            return replace(source, policy=replace(source.policy, is_retired=True))
        return source

    def is_retired(self, catalog: str) -> bool:
        return catalog in self._retirement.names

    def catalog_ids(self) -> dict[str, str]:
        """The `catalog_id` of each catalog that was reached."""
        return {catalog: source.policy.catalog_id for catalog, source in self._sources.items()}

    async def _connect(self, catalog: str, found: IdentifiedCatalog) -> ConnectedCatalog:
        catalog_id = await found.identity()
        source = ConnectedCatalog(
            found, publish_policy(self._settings, catalog, catalog_id), self._vended(catalog, found)
        )
        # Many ask at once, and all rows are read to know whose the files are.
        async with self._recording[catalog]:
            if catalog not in self._sources:
                owner = await recorded_owner(catalog, catalog_id, self._catalog_admin, self._table_index)
                _log.info("catalog reached", catalog=catalog, catalog_id=catalog_id)
                if owner != catalog_id:
                    remedy = f"sfn adopt {catalog} --from {owner}"
                    _log.warning("catalog changed", catalog=catalog, catalog_id=catalog_id, files=owner, remedy=remedy)
            return self._sources.setdefault(catalog, source)
