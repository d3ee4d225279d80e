"""For whoever only looks: the catalogs and stores of the settings, and nothing of the service beside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from sfn.clock import SystemClock
from sfn.settings import Settings
from sfn.storage import PrefixRouter
from sfn.wiring import places, sources, terms
from sfn.wiring.reached import VendedStoresFactory, vended_stores_factory
from sfn.wiring.sources import IdentifiedCatalog
from sfn.worker.catalog_sources import ConnectedCatalog


@dataclass(frozen=True, slots=True)
class ReadOnlyConnections:
    """What can be looked at.

    Attributes:
        settings: of the configuration.
        stores: those that are configured.
        catalogs: the adapters, by name.
    """

    settings: Settings
    stores: PrefixRouter
    catalogs: Mapping[str, IdentifiedCatalog]
    _vending: VendedStoresFactory

    async def connect(self, name: str) -> ConnectedCatalog:
        """A catalog and how its tables are published.

        Raises:
            Trouble: scope catalog; it can't be asked whose its tables are.
        """
        catalog = self.catalogs[name]
        policy = terms.publish_policy(self.settings, name, await catalog.identity())
        return ConnectedCatalog(catalog, policy, self._vending(name, catalog))


@asynccontextmanager
async def open_read_only(settings: Settings) -> AsyncIterator[ReadOnlyConnections]:
    """All of it, closed in the end; none has been asked anything yet.

    Raises:
        SfnError: the packages of a store or catalog are not installed.
    """
    async with places.open_stores(settings) as registry, AsyncExitStack() as stack:
        stores, clock = PrefixRouter(registry.stores), SystemClock()
        catalogs = sources.build_catalogs(settings, clock, stores.read_range)
        for one in catalogs.values():
            stack.push_async_callback(one.close)
        yield ReadOnlyConnections(settings, stores, catalogs, vended_stores_factory(settings, stores, registry, clock))
