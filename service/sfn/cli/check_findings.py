"""What `sfn check` checks: the facade, sources of events, and everything else in its order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, aclosing
from typing import Final
from urllib.parse import urlsplit

import anyio.to_thread

from sfn.admin.schemas import ServiceStatus
from sfn.app import catalogs, storage
from sfn.app.catalogs import vended_stores_factory
from sfn.app.endpoints import build_pull_server
from sfn.cli.check_catalogs import CatalogCheck, Lag, assumed_lag, is_local_host, observed_lag, refresh_findings
from sfn.cli.check_config import (
    CheckFinding,
    advertised_findings,
    error_finding,
    file_limit_findings,
    gateway_findings,
    inbox_finding,
    listener_findings,
    ok_finding,
    root_finding,
    secret_findings,
    store_finding,
    warning_finding,
)
from sfn.clock import SystemClock
from sfn.errors import SfnError
from sfn.settings.model import ALL_ROLES, Role, Settings, pull_origin_name
from sfn.settings.sections import PullSettings
from sfn.storage import ObjectStore, PrefixRouter

# ── facade: The facade

_WHERE: Final = "facade"


def facade_findings(settings: Settings) -> Iterator[CheckFinding]:
    """What a reader gets; nothing where there is none."""
    ours = settings.facade
    if not ours.is_on:
        return
    roots = ", ".join(ours.roots or (one.prefix for one in settings.stores.values()))
    yield ok_finding(_WHERE, f"below /iceberg of the listener: tables below {roots}")
    if settings.listener.is_loopback:
        return
    host = settings.listener.host
    if ours.open:
        text = f"open: everybody who reaches {host} may read all tables' metadata"
        yield warning_finding(_WHERE, text, "set facade.token_file instead of facade.open")
    elif settings.listener.scheme == "http":
        text = f"{host} is reached from elsewhere, and readers' tokens travel in clear text"
        yield warning_finding(
            _WHERE, text, "set listener.tls_certificate_file and tls_key_file, or put a proxy before it"
        )


# ── pulls: Sources of events


async def pull_findings(settings: Settings) -> AsyncIterator[CheckFinding]:
    """Each source; nothing is fetched, and nothing made."""
    for name, one in settings.pull.items():
        for finding in _settings_findings(name, one, settings):
            yield finding
        try:
            yield ok_finding(f"pull.{name}", await build_pull_server(name, one).probe())
        except SfnError as error:
            yield error_finding(error.where, error)


def _settings_findings(name: str, pull: PullSettings, settings: Settings) -> Iterator[CheckFinding]:
    # What is in a file `.creds` is shown to nobody: it signs what the server makes up.
    shown = pull.token_file is not None or pull.password_file is not None
    is_here = all(is_local_host(urlsplit(one).hostname or "") for one in pull.servers)
    if shown and not pull.is_encrypted and not is_here:
        yield warning_finding(
            f"pull.{name}.servers", "a secret may be sent without TLS", "use tls:// for each, or set ca_file"
        )
    event_only = sorted(
        settings.event_only_catalogs.intersection(settings.catalogs_of(pull_origin_name(name)).values())
    )
    if event_only and pull.stream is None:
        text = f"what is published while nobody fetches it is lost, and nobody can be asked of {', '.join(event_only)}"
        yield warning_finding(f"pull.{name}.stream", text, "have JetStream keep it: set stream and durable")


# ── checks: What `sfn check` looks at


async def run_checks(
    settings: Settings,
    *,
    thorough: bool,
    running: Callable[[], ServiceStatus | None] = lambda: None,
    roles: AbstractSet[Role] = ALL_ROLES,
) -> AsyncIterator[CheckFinding]:
    """Everything, in the order in which a start needs it.

    Args:
        thorough: look at every table.
        running: asks the service how it is, if one runs; may block.
        roles: what the process is to do: what only others do is not looked at.
    """
    unreadable: set[str] = set()
    for finding in secret_findings(settings):
        unreadable.add(finding.where)
        yield finding
    for finding in file_limit_findings():
        yield finding
    holder, finding = await inbox_finding(settings)
    yield finding
    # Who has a database can't be told from there.
    may_run = holder is not None or settings.inbox.path is None
    service_status = await anyio.to_thread.run_sync(running) if may_run else None
    async for finding in _listener_findings(
        settings, roles, is_running=holder is not None or service_status is not None
    ):
        yield finding
    now = SystemClock().now()
    lags = (
        {one.name: observed_lag(one, settings, now) for one in service_status.catalogs}
        if service_status is not None
        else {}
    )
    if settings.lacks_stores:
        remedy = 'set one: [stores.NAME] prefix = "/…"'
        yield error_finding("stores", SfnError("stores", expected="one at least", found="none", remedy=remedy))
    if closed := await _unopened_stores(settings):
        for finding in _skipped_findings(settings, closed):
            yield finding
        return
    async with aclosing(_catalog_findings(settings, unreadable, lags, thorough=thorough)) as rest:
        async for finding in rest:
            yield finding


async def _listener_findings(
    settings: Settings, roles: AbstractSet[Role], *, is_running: bool
) -> AsyncIterator[CheckFinding]:
    """Where it listens, and what comes from elsewhere."""
    for finding in listener_findings(settings, is_running=is_running):
        yield finding
    if Role.GATEWAY in roles:
        for finding in gateway_findings(settings, is_running=is_running):
            yield finding
    if Role.FACADE in roles:
        for finding in facade_findings(settings):
            yield finding
    if Role.RECEIVER in roles:
        async for finding in pull_findings(settings):
            yield finding


async def _unopened_stores(settings: Settings) -> Mapping[str, CheckFinding]:
    """The stores that can't be opened, as their packages are missing, each with why."""
    found: dict[str, CheckFinding] = {}
    for name, one in settings.stores.items():
        try:
            async with storage.open_stores(settings.model_copy(update={"stores": {name: one}})):
                pass
        except SfnError as error:
            found[name] = error_finding(error.where, error)
    return found


def _skipped_findings(settings: Settings, closed: Mapping[str, CheckFinding]) -> Iterator[CheckFinding]:
    """Why stores can't be opened; and all that is not looked at then: without each of them tables have no place."""
    yield from closed.values()
    said = "not looked at: not all of the stores can be opened"
    remedy = f"see to {', '.join(f'stores.{name}' for name in closed)} first, and check again"
    for name in sorted(settings.catalogs.keys() - settings.event_only_catalogs):
        yield warning_finding(f"catalogs.{name}", said, remedy)
    for name in sorted(settings.stores.keys() - closed.keys()):
        yield warning_finding(f"stores.{name}", said, remedy)
    for name, ours in settings.catalogs.items():
        yield from refresh_findings(name, ours)


async def _catalog_findings(
    settings: Settings, unreadable: AbstractSet[str], lags: Mapping[str, Lag], *, thorough: bool
) -> AsyncGenerator[CheckFinding]:
    """What catalogs and stores say themselves.

    Args:
        unreadable: settings of files that can't be read.
        lags: how late the files of catalogs are, as far as a running service says it.
    """
    clock, worst, locations = SystemClock(), assumed_lag(settings), list[str]()
    async with AsyncExitStack() as stack:
        store_registry = await stack.enter_async_context(storage.open_stores(settings))
        router = PrefixRouter(store_registry.stores)
        vended = vended_stores_factory(settings, router, store_registry, clock)
        for name, catalog in catalogs.build_catalogs(settings, clock, router.read_range).items():
            stack.push_async_callback(catalog.close)
            if name in settings.event_only_catalogs:
                yield ok_finding(f"catalogs.{name}", "told of by events alone: there is nothing to ask")
                continue
            if any(where.rpartition(".")[0] == f"catalogs.{name}" for where in unreadable):
                # It would be refused for that very reason.
                continue
            opened = vended(name, catalog)
            lag = lags.get(name, worst)
            check = CatalogCheck(name, catalog, router, settings, thorough=thorough, lag=lag, vended=opened)
            async for finding in check.findings():
                yield finding
            locations += check.table_locations
            async for finding in advertised_findings(name, catalog, settings):
                yield finding
        async for finding in _store_findings(settings, store_registry.stores, locations):
            yield finding


async def _store_findings(
    settings: Settings, stores: Mapping[str, ObjectStore], locations: Sequence[str]
) -> AsyncIterator[CheckFinding]:
    """Where files are written, and whether they stay."""
    for name, one in settings.stores.items():
        yield await store_finding(name, one.prefix, stores[one.prefix], locations)
    for name, ours in settings.catalogs.items():
        if ours.root is not None:
            yield await root_finding(name, ours.root, PrefixRouter(stores))
        for finding in refresh_findings(name, ours):
            yield finding
