"""From the settings to the gateways."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from sfn.concurrency import WatchedFiles
from sfn.domain.identifiers import JobKey
from sfn.errors import FatalError
from sfn.gateway.commits import CommitRecorder, IntentOptions, OnInboxFailure, OwedSweeps
from sfn.gateway.connection import PublicAddress
from sfn.gateway.proxy import GatewayApplication, GatewayOptions, Proxy, mount_gateways, standalone_gateway
from sfn.gateway.routes import CatalogMapping
from sfn.gateway.upstream import UpstreamOptions as UpstreamTerms
from sfn.gateway.upstream import UpstreamPool
from sfn.inbox import InboxWriter
from sfn.limits import BodyMemory
from sfn.settings import CatalogSettings, GatewaySettings, Settings
from sfn.telemetry.passing import GatewayMetrics

_ID_BYTES: Final = 16


BackgroundTask: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


def _without_gateways(application: GatewayApplication) -> GatewayApplication:
    return application


@dataclass(frozen=True, slots=True)
class GatewayListener:
    """A gateway that has a listener of its own.

    Attributes:
        name: the gateway's.
        host: the address to bind.
        port: 0 is any free one.
        application: what answers there.
    """

    name: str
    host: str
    port: int
    application: GatewayApplication


@dataclass(frozen=True, slots=True)
class GatewaySet:
    """All gateways of a process.

    Attributes:
        with_gateways: puts those that are below the listener's path before its other routes.
        proxies: somebody closes them.
        listeners: those with a listener of their own.
        background_tasks: what somebody has to run for ever.
        shutdown_tasks: what somebody has to run once no request is under way any more.
    """

    with_gateways: Callable[[GatewayApplication], GatewayApplication] = _without_gateways
    proxies: tuple[Proxy, ...] = ()
    listeners: tuple[GatewayListener, ...] = ()
    background_tasks: tuple[BackgroundTask, ...] = ()
    shutdown_tasks: tuple[BackgroundTask, ...] = ()


def build_gateways(
    settings: Settings | None,
    inbox: InboxWriter,
    is_relevant: Callable[[JobKey], bool],
    on_broken: Callable[[FatalError], None],
    metrics: GatewayMetrics,
    memory: BodyMemory,
) -> GatewaySet:
    """The gateways as the settings say.

    Args:
        settings: None where this process is none.
        is_relevant: whether what is told of a table matters.
        memory: for the bodies of all gateways' clients.

    Raises:
        Broken: a file of authorities can't be used now.
    """
    if settings is None or not settings.gateway:
        return GatewaySet()
    debts, background_tasks = OwedSweeps(inbox), list[BackgroundTask]()
    proxies: dict[str, Proxy] = {}
    for name, one in settings.gateway.items():
        watched = None if one.ca_file is None else _watch_authorities(name, one.ca_file)
        if watched is not None:
            background_tasks.append(watched.watch)
        upstream = UpstreamPool(name, _upstream_terms(one), partial(_current_authorities, watched))
        terms, failing = (
            GatewayOptions(one.upstream.rstrip("/"), _public_address(one), one.body_limit),
            OnInboxFailure(one.on_inbox_failure),
        )
        noting = IntentOptions(f"gateway.{name}", failing, partial(secrets.token_hex, _ID_BYTES))
        commits = CommitRecorder(noting, inbox, debts, on_broken, metrics.get(name))
        catalog_routing = _catalog_routing(settings, name, is_relevant)
        proxies[name] = Proxy(upstream, commits, catalog_routing, terms, metrics.get(name), memory)
    listeners = [
        GatewayListener(name, one.host, one.port, standalone_gateway(proxies[name]))
        for name, one in settings.gateway.items()
        if one.host is not None
    ]
    return GatewaySet(
        partial(mount_gateways, proxies),
        tuple(proxies.values()),
        tuple(listeners),
        (debts.run, *background_tasks),
        (debts.put_at_shutdown,),
    )


def _upstream_terms(gateway: GatewaySettings) -> UpstreamTerms:
    return UpstreamTerms(
        gateway.upstream.rstrip("/"),
        gateway.timeout.total_seconds(),
        gateway.connections,
        gateway.idle.total_seconds(),
    )


def _catalog_routing(settings: Settings, name: str, is_relevant: Callable[[JobKey], bool]) -> CatalogMapping:
    behind = settings.catalogs_behind(name)
    return CatalogMapping(
        catalog=behind.get(""),
        catalogs={unquote(prefix): catalog for prefix, catalog in behind.items() if prefix},
        is_published=is_relevant,
        requires_credentials=all(_needs_credentials(settings.catalogs[catalog]) for catalog in behind.values()),
    )


def _needs_credentials(catalog: CatalogSettings) -> bool:
    """Whether we need credentials to ask a catalog; then nobody changes anything there without."""
    credentials = (catalog.token, catalog.token_file, catalog.credential, catalog.credential_file, catalog.auth)
    named = {header.lower() for header in catalog.headers}
    return (
        "authorization" in named
        or "@" in urlsplit(catalog.uri or "").netloc
        or any(one is not None for one in credentials)
    )


def _public_address(gateway: GatewaySettings) -> PublicAddress | None:
    if gateway.public_url is None:
        return None
    parts = urlsplit(gateway.public_url)
    return PublicAddress(parts.scheme, parts.netloc, parts.path.rstrip("/"))


def _watch_authorities(name: str, file: Path) -> WatchedFiles[ssl.SSLContext]:
    return WatchedFiles(f"authorities of gateway {name}", (file,), partial(_read_authorities, file))


def _read_authorities(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except (ssl.SSLError, OSError) as error:
        found = error.strerror or type(error).__name__
        raise FatalError(str(file), expected="a file of PEM certificates", found=found) from error


def _current_authorities(watched: WatchedFiles[ssl.SSLContext] | None) -> ssl.SSLContext | bool:
    return True if watched is None else watched.current
