"""For whoever only looks: the catalogs and stores of the settings, and nothing of the service beside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from sfn.clock import SystemClock
from sfn.settings import Settings
from sfn.store.router import Router
from sfn.wiring import places, sources, terms
from sfn.wiring.reached import Vending, vending
from sfn.wiring.sources import Identified
from sfn.work.sources import Source


@dataclass(frozen=True, slots=True)
class Looking:
    """What can be looked at.

    Attributes:
        settings: of the configuration.
        stores: those that are configured.
        catalogs: the adapters, by name.
    """

    settings: Settings
    stores: Router
    catalogs: Mapping[str, Identified]
    _vended: Vending

    async def source(self, name: str) -> Source:
        """A catalog and how its tables are published.

        Raises:
            Trouble: scope catalog; it can't be asked whose its tables are.
        """
        catalog = self.catalogs[name]
        policy = terms.policy(self.settings, name, await catalog.identity())
        return Source(catalog, policy, self._vended(name, catalog))


@asynccontextmanager
async def looking(settings: Settings) -> AsyncIterator[Looking]:
    """All of it, closed in the end; none has been asked anything yet.

    Raises:
        SfnError: the packages of a store or catalog are not installed.
    """
    async with places.shelf(settings) as shelf, AsyncExitStack() as stack:
        stores, clock = Router(shelf.stores), SystemClock()
        catalogs = sources.adapters(settings, clock, stores.part)
        for one in catalogs.values():
            stack.push_async_callback(one.close)
        yield Looking(settings, stores, catalogs, vending(settings, stores, shelf, clock))
