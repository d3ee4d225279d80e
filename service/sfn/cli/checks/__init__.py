"""What `sfn check` looks at: each function yields its findings as it goes, and changes nothing but its probes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, aclosing

import anyio.to_thread

from sfn.admin.schemas import Status
from sfn.cli.checks.catalogs import CatalogCheck
from sfn.cli.checks.facade import facade
from sfn.cli.checks.findings import Finding, doubtful, fine, wrong
from sfn.cli.checks.gateways import advertised, doors
from sfn.cli.checks.parties import parties
from sfn.cli.checks.place import files, inbox, listener
from sfn.cli.checks.pulls import pulls
from sfn.cli.checks.retention import Lag, assumed, observed, outlived
from sfn.cli.checks.stores import root, store
from sfn.clock import SystemClock
from sfn.errors import SfnError
from sfn.settings import Settings
from sfn.settings.roles import ALL, Role
from sfn.store import ObjectStore
from sfn.store.router import PrefixRouter
from sfn.wiring import places, sources
from sfn.wiring.reached import vended_stores_factory


async def findings(
    settings: Settings,
    *,
    thorough: bool,
    running: Callable[[], Status | None] = lambda: None,
    roles: AbstractSet[Role] = ALL,
) -> AsyncIterator[Finding]:
    """Everything, in the order in which a start needs it.

    Args:
        thorough: look at every table.
        running: asks the service how it is, if one runs; may block.
        roles: what the process is to do: what only others do is not looked at.
    """
    lacking: set[str] = set()
    for finding in parties(settings):
        lacking.add(finding.where)
        yield finding
    for finding in files():
        yield finding
    holder, finding = await inbox(settings)
    yield finding
    # Who has a database can't be told from there.
    may_run = holder is not None or settings.inbox.path is None
    standing = await anyio.to_thread.run_sync(running) if may_run else None
    async for finding in _served(settings, roles, is_running=holder is not None or standing is not None):
        yield finding
    now = SystemClock().now()
    lags = {one.name: observed(one, settings, now) for one in standing.catalogs} if standing is not None else {}
    if settings.lacks_stores:
        remedy = 'set one: [stores.NAME] prefix = "/…"'
        yield wrong("stores", SfnError("stores", expected="one at least", found="none", remedy=remedy))
    if closed := await _closed(settings):
        for finding in _left_out(settings, closed):
            yield finding
        return
    async with aclosing(_reached(settings, lacking, lags, thorough=thorough)) as rest:
        async for finding in rest:
            yield finding


async def _served(settings: Settings, roles: AbstractSet[Role], *, is_running: bool) -> AsyncIterator[Finding]:
    """Where it listens, and what comes from elsewhere."""
    for finding in listener(settings, is_running=is_running):
        yield finding
    if Role.GATEWAY in roles:
        for finding in doors(settings, is_running=is_running):
            yield finding
    if Role.FACADE in roles:
        for finding in facade(settings):
            yield finding
    if Role.RECEIVER in roles:
        async for finding in pulls(settings):
            yield finding


async def _closed(settings: Settings) -> Mapping[str, Finding]:
    """The stores that can't be opened, as their packages are missing, each with why."""
    found: dict[str, Finding] = {}
    for name, one in settings.stores.items():
        try:
            async with places.open_stores(settings.model_copy(update={"stores": {name: one}})):
                pass
        except SfnError as error:
            found[name] = wrong(error.where, error)
    return found


def _left_out(settings: Settings, closed: Mapping[str, Finding]) -> Iterator[Finding]:
    """Why stores can't be opened; and all that is not looked at then: without each of them tables have no place."""
    yield from closed.values()
    said = "not looked at: not all of the stores can be opened"
    remedy = f"see to {', '.join(f'stores.{name}' for name in closed)} first, and check again"
    for name in sorted(settings.catalogs.keys() - settings.told):
        yield doubtful(f"catalogs.{name}", said, remedy)
    for name in sorted(settings.stores.keys() - closed.keys()):
        yield doubtful(f"stores.{name}", said, remedy)
    for name, ours in settings.catalogs.items():
        yield from outlived(name, ours)


async def _reached(
    settings: Settings, lacking: AbstractSet[str], lags: Mapping[str, Lag], *, thorough: bool
) -> AsyncGenerator[Finding]:
    """What catalogs and stores say themselves.

    Args:
        lacking: settings of files that can't be read.
        lags: how late the files of catalogs are, as far as a running service says it.
    """
    clock, worst, locations = SystemClock(), assumed(settings), list[str]()
    async with AsyncExitStack() as stack:
        shelf = await stack.enter_async_context(places.open_stores(settings))
        router = PrefixRouter(shelf.stores)
        vended = vended_stores_factory(settings, router, shelf, clock)
        for name, catalog in sources.build_catalogs(settings, clock, router.read_range).items():
            stack.push_async_callback(catalog.close)
            if name in settings.told:
                yield fine(f"catalogs.{name}", "told of by events alone: there is nothing to ask")
                continue
            if any(where.rpartition(".")[0] == f"catalogs.{name}" for where in lacking):
                # It would be refused for that very reason.
                continue
            opened = vended(name, catalog)
            lag = lags.get(name, worst)
            check = CatalogCheck(name, catalog, router, settings, thorough=thorough, lag=lag, vended=opened)
            async for finding in check.findings():
                yield finding
            locations += check.places
            async for finding in advertised(name, catalog, settings):
                yield finding
        async for finding in _kept(settings, shelf.stores, locations):
            yield finding


async def _kept(
    settings: Settings, stores: Mapping[str, ObjectStore], locations: Sequence[str]
) -> AsyncIterator[Finding]:
    """Where files are written, and whether they stay."""
    for name, one in settings.stores.items():
        yield await store(name, one.prefix, stores[one.prefix], locations)
    for name, ours in settings.catalogs.items():
        if ours.root is not None:
            yield await root(name, ours.root, PrefixRouter(stores))
        for finding in outlived(name, ours):
            yield finding
