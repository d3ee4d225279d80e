"""What `sfn check` looks at: each function yields its findings as it goes, and changes nothing but its probes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from sfn import sources, wiring
from sfn.cli.checks.catalogs import CatalogCheck
from sfn.cli.checks.findings import Finding
from sfn.cli.checks.parties import parties
from sfn.cli.checks.place import inbox, listener
from sfn.cli.checks.stores import store
from sfn.clock import SystemClock
from sfn.settings import Settings
from sfn.store.router import Router


async def findings(settings: Settings, *, thorough: bool) -> AsyncIterator[Finding]:
    """Everything, in the order in which a start needs it.

    Args:
        thorough: look into every namespace.
    """
    for finding in parties(settings):
        yield finding
    holder, finding = await inbox(settings)
    yield finding
    for finding in listener(settings, holder):
        yield finding
    stores = wiring.stores_of(settings)
    places: list[str] = []
    async with AsyncExitStack() as stack:
        for name, catalog in sources.adapters(settings, SystemClock()).items():
            stack.push_async_callback(catalog.close)
            check = CatalogCheck(name, catalog, Router(stores), settings, thorough=thorough)
            async for finding in check.findings():
                yield finding
            places += check.places
    for name, one in settings.stores.items():
        yield await store(name, one.prefix, stores[one.prefix], places)
