"""All checks of `sfn check` in their order (`run_checks`), with the checks of the facade and of pull sources."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, aclosing
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import anyio.to_thread
import httpx

from sfn.admin.schemas import ServiceStatus
from sfn.app import catalogs, storage
from sfn.app.catalogs import vended_stores_factory
from sfn.app.endpoints import build_pull_server
from sfn.cli.check_catalogs import CatalogCheck, Lag, assumed_lag, is_local_host, observed_lag, refresh_findings
from sfn.cli.check_config import (
    CheckFinding,
    advertised_findings,
    container_findings,
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
from sfn.settings.environment import isolated_container
from sfn.settings.root import ALL_ROLES, Role, Settings, pull_origin_name
from sfn.settings.sections import PullSettings
from sfn.storage import ObjectStore, PrefixRouter
from sfn.telemetry import tracing
from sfn.telemetry.tracing import TracingOptions

_WHERE: Final = "facade"
_COLLECTOR_TIMEOUT: Final = 5.0
"""Seconds."""


def facade_findings(settings: Settings) -> Iterator[CheckFinding]:
    """Yield what the facade shows, and who can read it; nothing if it is off."""
    facade = settings.facade
    if not facade.is_on:
        return
    roots = ", ".join(facade.roots or (one.prefix for one in settings.stores.values()))
    yield ok_finding(_WHERE, f"at /iceberg of the listener: tables below {roots}")
    if settings.listener.is_loopback:
        return
    host = settings.listener.host
    if facade.open:
        text = f"open: anyone who can reach {host} may read the metadata of all tables"
        yield warning_finding(_WHERE, text, "set facade.token_file instead of facade.open")
    elif settings.listener.scheme == "http":
        text = f"{host} is reachable from other machines, and readers' tokens travel in clear text"
        yield warning_finding(
            _WHERE, text, "set listener.tls_certificate_file and tls_key_file, or put a proxy before it"
        )


async def pull_findings(settings: Settings) -> AsyncIterator[CheckFinding]:
    """Yield the state of each pull source. No event is fetched, and no consumer is created."""
    for name, one in settings.pull.items():
        for finding in _settings_findings(name, one, settings):
            yield finding
        try:
            yield ok_finding(f"pull.{name}", await build_pull_server(name, one).probe())
        except SfnError as error:
            yield error_finding(error.where, error)


def _settings_findings(name: str, pull: PullSettings, settings: Settings) -> Iterator[CheckFinding]:
    # A `.creds` file is not sent: it signs a challenge of the server.
    sends_secret = pull.token_file is not None or pull.password_file is not None
    is_here = all(is_local_host(urlsplit(one).hostname or "") for one in pull.servers)
    if sends_secret and not pull.is_encrypted and not is_here:
        yield warning_finding(
            f"pull.{name}.servers", "a secret may be sent without TLS", "use tls:// for each, or set ca_file"
        )
    event_only = sorted(
        settings.event_only_catalogs.intersection(settings.catalogs_of(pull_origin_name(name)).values())
    )
    if event_only and pull.stream is None:
        catalogs = ", ".join(event_only)
        text = f"events are lost while the listener is down, and no catalog can be queried for {catalogs}"
        yield warning_finding(f"pull.{name}.stream", text, "have JetStream store the events: set stream and durable")


async def traces_findings(options: TracingOptions) -> AsyncIterator[CheckFinding]:
    """Yield whether the collector accepts traces; nothing without a collector in the settings.

    It is sent none: a message of OTLP without spans has no bytes.
    """
    if options.endpoint is None:
        return
    where, url = "telemetry.traces_endpoint", tracing.collector_url(options.endpoint)
    shown = urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2], query="").geturl()
    remedy = "start the collector, or correct the URL: it is the one of OTLP over HTTP, by default port 4318"
    try:
        tracing.require_packages()
        trust = True if options.ca_file is None else ssl.create_default_context(cafile=options.ca_file)
        async with httpx.AsyncClient(timeout=_COLLECTOR_TIMEOUT, trust_env=False, verify=trust) as client:
            answer = await client.post(url, headers={**options.headers, "content-type": "application/x-protobuf"})
    except SfnError as error:
        yield error_finding(where, error)
    except (httpx.HTTPError, OSError) as error:
        text = f"no traces are recorded: {shown} does not answer ({type(error).__name__})"
        yield warning_finding(where, text, remedy)
    else:
        if answer.is_success:
            yield ok_finding(where, f"{shown} accepts traces")
        else:
            denied = answer.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
            text = f"no traces are recorded: {shown} answers with status {answer.status_code}"
            yield warning_finding(where, text, "correct telemetry.traces_headers" if denied else remedy)


async def run_checks(
    settings: Settings,
    *,
    thorough: bool,
    running: Callable[[], ServiceStatus | None] = lambda: None,
    roles: AbstractSet[Role] = ALL_ROLES,
) -> AsyncIterator[CheckFinding]:
    """Yield all findings, in the order in which a start needs the checked parts.

    Args:
        settings: the configuration.
        thorough: True to check every table.
        running: returns the state of a running service, or None; may block.
        roles: the roles of the process; parts of other roles are not checked.
    """
    unreadable: set[str] = set()
    for finding in secret_findings(settings):
        unreadable.add(finding.where)
        yield finding
    for finding in file_limit_findings():
        yield finding
    holder, finding = await inbox_finding(settings)
    yield finding
    # A lock shows who uses an inbox file. A database does not show it, so a service may run.
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
    async for finding in traces_findings(settings.telemetry.tracing):
        yield finding
    if settings.lacks_stores:
        remedy = 'set one: [stores.NAME] prefix = "/…"'
        yield error_finding("stores", SfnError("stores", expected="at least one", found="none", remedy=remedy))
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
    """Yield findings about the addresses, and about the parts that the roles select."""
    for finding in listener_findings(settings, is_running=is_running):
        yield finding
    for finding in container_findings(settings, roles, isolated_container()):
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
    """Return the errors of stores that cannot be opened, such as for a missing package, by store."""
    found: dict[str, CheckFinding] = {}
    for name, one in settings.stores.items():
        try:
            async with storage.open_stores(settings.model_copy(update={"stores": {name: one}})):
                pass
        except SfnError as error:
            found[name] = error_finding(error.where, error)
    return found


def _skipped_findings(settings: Settings, closed: Mapping[str, CheckFinding]) -> Iterator[CheckFinding]:
    """Yield the errors of stores that cannot be opened, and warnings for the checks that need all stores."""
    yield from closed.values()
    text = "not checked: not all stores can be opened"
    remedy = f"fix {', '.join(f'stores.{name}' for name in closed)} first, and check again"
    for name in sorted(settings.catalogs.keys() - settings.event_only_catalogs):
        yield warning_finding(f"catalogs.{name}", text, remedy)
    for name in sorted(settings.stores.keys() - closed.keys()):
        yield warning_finding(f"stores.{name}", text, remedy)
    for name, catalog in settings.catalogs.items():
        yield from refresh_findings(name, catalog)


async def _catalog_findings(
    settings: Settings, unreadable: AbstractSet[str], lags: Mapping[str, Lag], *, thorough: bool
) -> AsyncGenerator[CheckFinding]:
    """Yield the findings about catalogs and stores.

    Args:
        settings: the configuration.
        unreadable: settings that name files that cannot be read.
        lags: the lag of catalogs that a running service knows.
        thorough: True to check every table.
    """
    clock, worst, locations = SystemClock(), assumed_lag(settings), list[str]()
    async with AsyncExitStack() as stack:
        store_registry = await stack.enter_async_context(storage.open_stores(settings))
        router = PrefixRouter(store_registry.stores)
        vended = vended_stores_factory(settings, router, store_registry, clock)
        for name, catalog in catalogs.build_catalogs(settings, clock, router.read_range).items():
            stack.push_async_callback(catalog.close)
            if name in settings.event_only_catalogs:
                yield ok_finding(f"catalogs.{name}", "an event-only catalog: there is nothing to query")
                continue
            if any(where.rpartition(".")[0] == f"catalogs.{name}" for where in unreadable):
                # The catalog would reject the listener without this secret, which is reported already.
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
    """Yield the findings about stores, root folders and refreshes."""
    for name, one in settings.stores.items():
        yield await store_finding(name, one.prefix, stores[one.prefix], locations)
    for name, catalog in settings.catalogs.items():
        if catalog.root is not None:
            yield await root_finding(name, catalog.root, PrefixRouter(stores))
        for finding in refresh_findings(name, catalog):
            yield finding
