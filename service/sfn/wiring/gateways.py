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

from sfn.body_memory import BodyMemory
from sfn.errors import Broken
from sfn.gateway.app import Application, alone, before
from sfn.gateway.commits import Commits, Noting, OnInboxFailure
from sfn.gateway.debts import Debts
from sfn.gateway.fields import Front
from sfn.gateway.proxy import Proxy, Terms
from sfn.gateway.reach import Reach
from sfn.gateway.upstream import Terms as UpstreamTerms
from sfn.gateway.upstream import Upstream
from sfn.inbox import Intake
from sfn.settings import CatalogSettings, GatewaySettings, Settings
from sfn.telemetry.passing import Gateways
from sfn.watched import Watched
from sfn.words import Subject

_ID_BYTES: Final = 16


BackgroundTask: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


def _without_gateways(application: Application) -> Application:
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
    application: Application


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

    with_gateways: Callable[[Application], Application] = _without_gateways
    proxies: tuple[Proxy, ...] = ()
    listeners: tuple[GatewayListener, ...] = ()
    background_tasks: tuple[BackgroundTask, ...] = ()
    shutdown_tasks: tuple[BackgroundTask, ...] = ()


def build_gateways(
    settings: Settings | None,
    inbox: Intake,
    is_relevant: Callable[[Subject], bool],
    on_broken: Callable[[Broken], None],
    metrics: Gateways,
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
    debts, background_tasks = Debts(inbox), list[BackgroundTask]()
    proxies: dict[str, Proxy] = {}
    for name, one in settings.gateway.items():
        watched = None if one.ca_file is None else _watch_authorities(name, one.ca_file)
        if watched is not None:
            background_tasks.append(watched.watch)
        upstream = Upstream(name, _upstream_terms(one), partial(_current_authorities, watched))
        terms, failing = (
            Terms(one.upstream.rstrip("/"), _public_address(one), one.body_limit),
            OnInboxFailure(one.on_inbox_failure),
        )
        noting = Noting(f"gateway.{name}", failing, partial(secrets.token_hex, _ID_BYTES))
        commits = Commits(noting, inbox, debts, on_broken, metrics.of(name))
        catalog_routing = _catalog_routing(settings, name, is_relevant)
        proxies[name] = Proxy(upstream, commits, catalog_routing, terms, metrics.of(name), memory)
    listeners = [
        GatewayListener(name, one.host, one.port, alone(proxies[name]))
        for name, one in settings.gateway.items()
        if one.host is not None
    ]
    return GatewaySet(
        partial(before, proxies),
        tuple(proxies.values()),
        tuple(listeners),
        (debts.pay, *background_tasks),
        (debts.pay_at_last,),
    )


def _upstream_terms(gateway: GatewaySettings) -> UpstreamTerms:
    return UpstreamTerms(
        gateway.upstream.rstrip("/"),
        gateway.timeout.total_seconds(),
        gateway.connections,
        gateway.idle.total_seconds(),
    )


def _catalog_routing(settings: Settings, name: str, is_relevant: Callable[[Subject], bool]) -> Reach:
    behind = settings.behind(name)
    return Reach(
        catalog=behind.get(""),
        catalogs={unquote(prefix): catalog for prefix, catalog in behind.items() if prefix},
        matters=is_relevant,
        asks_for_credentials=all(_needs_credentials(settings.catalogs[catalog]) for catalog in behind.values()),
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


def _public_address(gateway: GatewaySettings) -> Front | None:
    if gateway.public_url is None:
        return None
    parts = urlsplit(gateway.public_url)
    return Front(parts.scheme, parts.netloc, parts.path.rstrip("/"))


def _watch_authorities(name: str, file: Path) -> Watched[ssl.SSLContext]:
    return Watched(f"authorities of gateway {name}", (file,), partial(_read_authorities, file))


def _read_authorities(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except (ssl.SSLError, OSError) as error:
        found = error.strerror or type(error).__name__
        raise Broken(str(file), expected="a file of PEM certificates", found=found) from error


def _current_authorities(watched: Watched[ssl.SSLContext] | None) -> ssl.SSLContext | bool:
    return True if watched is None else watched.in_force
