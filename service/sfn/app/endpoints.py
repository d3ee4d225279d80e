"""From the settings to who is let in: senders, operators, readers, whose each token is, and what we show to them."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from sfn.clock import Clock, SystemClock
from sfn.concurrency import WatchedFiles
from sfn.domain.identifiers import JobKey
from sfn.errors import FatalError, SfnError
from sfn.facade import TableSource
from sfn.facade.app import Facade, FacadeApplication, FacadeOptions, mount_facade
from sfn.facade.discovery import ScannedTables, folder_scans
from sfn.facade.metadata_files import StoreFiles, open_tree
from sfn.facade.tables import FacadeInbox, PublishedTables, TableLoader
from sfn.formats.event import Sender
from sfn.gateway.commits import CommitRecorder, IntentOptions, OnInboxFailure, OwedSweeps
from sfn.gateway.connection import PublicAddress
from sfn.gateway.proxy import GatewayApplication, GatewayOptions, Proxy, mount_gateways, standalone_gateway
from sfn.gateway.routes import CatalogMapping
from sfn.gateway.upstream import UpstreamOptions as UpstreamTerms
from sfn.gateway.upstream import UpstreamPool
from sfn.http.events import EventFilter, IngestService
from sfn.http.secrets import AuthScheme, PartyTokens, WatchedTokenFile
from sfn.http.senders import OPERATORS_PARTY, Keyring, OperatorAuth, Senders, anonymous_senders
from sfn.http.server import Certificate
from sfn.inbox import InboxWriter
from sfn.limits import BodyMemory
from sfn.pull import PullServer
from sfn.pull.source import PullOptions, PullSource
from sfn.reader.files import FileReader
from sfn.settings.model import Settings, pull_origin_name
from sfn.settings.sections import CatalogSettings, GatewaySettings, PullSettings
from sfn.settings.service import FacadeSettings
from sfn.sfnfile.locations import scheme_of
from sfn.storage import StoreRouter
from sfn.telemetry.logs import RejectionLog
from sfn.telemetry.metrics import FacadeMetrics, GatewayMetrics, Metrics

# ── admission: From the settings to who is let in

READERS_PARTY: Final = "facade"
"""What those who read through the facade are called in a keyring: as their section in the settings."""
METRICS_PARTY: Final = "telemetry"
"""What those who read the metrics are called in a keyring: as their section in the settings."""


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Who is let in.

    Attributes:
        senders: who may send events.
        operators: who may operate the service; None where nobody may.
        readers: whether an `Authorization` header opens the facade; None where nobody need show one.
        scrapers: whether an `Authorization` header opens the metrics; None where they are open to everybody.
        files: of tokens, for somebody to watch.
    """

    senders: Senders
    operators: OperatorAuth | None
    readers: Callable[[bytes | None], bool] | None
    scrapers: Callable[[bytes | None], bool] | None
    files: tuple[WatchedTokenFile, ...] = ()


def build_access_control(settings: Settings, clock: Clock) -> AccessControl:
    """Who is let in, by the tokens that are there now and by those that their files will hold.

    Args:
        settings: all of them.
        clock: says whether a signature is of now.

    Raises:
        Broken: a file of tokens can't be read, or two parties have the same token.
    """
    authenticated = {name: one for name, one in settings.senders.items() if one.scheme is not AuthScheme.NONE}
    parties = {
        _party_of_sender(name): _load_tokens(one.secrets, one.secrets_file, one.scheme)
        for name, one in authenticated.items()
    }
    admin = settings.admin
    if admin.token is not None or admin.token_file is not None:
        parties[OPERATORS_PARTY] = _load_tokens({} if admin.token is None else {"token": admin.token}, admin.token_file)
    facade = settings.facade
    if facade.has_token:
        parties[READERS_PARTY] = _load_tokens(
            {} if facade.token is None else {"token": facade.token}, facade.token_file
        )
    telemetry = settings.telemetry
    if telemetry.metrics_token is not None or telemetry.metrics_token_file is not None:
        named = {} if telemetry.metrics_token is None else {"metrics_token": telemetry.metrics_token}
        parties[METRICS_PARTY] = _load_tokens(named, telemetry.metrics_token_file)
    keyring = Keyring(parties)
    return AccessControl(
        _build_senders(settings, keyring, clock) if settings.senders else anonymous_senders(settings.catalogs),
        OperatorAuth(keyring, RejectionLog(OPERATORS_PARTY)) if OPERATORS_PARTY in parties else None,
        partial(_is_token_of, keyring, READERS_PARTY) if READERS_PARTY in parties else None,
        partial(_is_token_of, keyring, METRICS_PARTY) if METRICS_PARTY in parties else None,
        tuple(tokens.file for tokens in parties.values() if tokens.file is not None),
    )


def load_certificate(settings: Settings) -> Certificate | None:
    """What the listener shows; None without TLS.

    Raises:
        Broken: its files can't be used now.
    """
    chain, key = settings.listener.tls_certificate_file, settings.listener.tls_key_file
    return None if chain is None or key is None else Certificate(chain, key)


def _is_token_of(keyring: Keyring, party: str, authorization: bytes | None) -> bool:
    owner = keyring.owner_of(authorization)
    return owner is not None and owner[0] == party


def _build_senders(settings: Settings, keyring: Keyring, clock: Clock) -> Senders:
    known = {name: Sender(name, settings.catalogs_of(name), one.dialect) for name, one in settings.senders.items()}
    authenticated = [name for name, one in settings.senders.items() if one.scheme is not AuthScheme.NONE]
    return Senders(
        keyring,
        {_party_of_sender(name): known[name] for name in authenticated},
        next((known[name] for name in known if name not in authenticated), None),
        signing={
            _party_of_sender(name): how
            for name in authenticated
            if (how := settings.senders[name].signature_scheme) is not None
        },
        rates={name: one.rate_limit for name, one in settings.senders.items() if one.rate_limit is not None},
        clock=clock,
    )


def _party_of_sender(sender: str) -> str:
    return f"senders.{sender}"


def _load_tokens(
    named: Mapping[str, SecretStr], file: Path | None, scheme: AuthScheme = AuthScheme.BEARER
) -> PartyTokens:
    secrets = {name: secret.get_secret_value() for name, secret in named.items()}
    return PartyTokens(secrets, None if file is None else WatchedTokenFile(file, scheme), scheme)


# ── facades: From the settings

STANDALONE_CATALOG: Final = "sfn"
"""What the catalog of a facade over folders is called."""

LISTING_LIFETIME: Final = 30.0
"""Seconds for which what a walk found is kept: it may take long."""
MISSING_LIFETIME: Final = 5.0
"""Seconds after which a table that was not found is looked for by another one."""


def build_facade(
    settings: Settings | None,
    inbox: FacadeInbox,
    stores: StoreRouter,
    admits: Callable[[bytes | None], bool] | None,
    readers: FacadeMetrics,
    on_broken: Callable[[FatalError], None],
) -> Callable[[FacadeApplication], FacadeApplication]:
    """Puts the facade before a listener's other routes, as the settings say.

    Args:
        settings: None where this process is none.
        admits: whether an `Authorization` header opens it; None where nobody need show one.
        on_broken: told when a request finds that the inbox can't be trusted any more.
    """
    if settings is None or not settings.facade.is_on:
        return _without_facade
    facade_settings = settings.facade
    roots = facade_settings.roots or tuple(one.prefix for one in settings.stores.values())
    trees = {root: _files_of(root, stores) for root in roots}
    tables_by_catalog = {name: PublishedTables(inbox, name, trees) for name in settings.catalogs}
    terms = FacadeOptions(
        tables_by_catalog, trees if facade_settings.directories else {}, admits, readers.count_answer, on_broken
    )
    return partial(mount_facade, Facade(terms, TableLoader(SystemClock(), facade_settings.metadata_limit)))


@dataclass(frozen=True, slots=True)
class FacadeFolders:
    """What a facade without a service shows.

    Attributes:
        roots: canonical locations of folders.
        options: what fsspec's driver is given.
        tables: the tables of its catalog; None: those that a walk through the folders finds.
        directories: tables may be called by their directories.
        admits: as of `Terms`.
        metadata_limit: as of the settings.
    """

    roots: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tables: TableSource | None = None
    directories: bool = True
    admits: Callable[[bytes | None], bool] | None = None
    metadata_limit: int = FacadeSettings.model_fields["metadata_limit"].default


@dataclass(frozen=True, slots=True)
class FolderFacade:
    """A facade that needs neither a catalog nor an inbox.

    Attributes:
        facade: what answers.
        ready: returns once its tables are known, with the reason where none can be.
    """

    facade: Facade
    ready: Callable[[], Awaitable[Exception | None]]


def facade_over_folders(folders: FacadeFolders, counted: Callable[[int], None]) -> FolderFacade:
    """A facade over folders.

    Args:
        counted: told of each answer's status.
    """
    trees = {root: open_tree(root, folders.options) for root in folders.roots}
    index = ScannedTables(folder_scans(trees), LISTING_LIFETIME, MISSING_LIFETIME)
    tables, ready = (index, index.wait_until_listed) if folders.tables is None else (folders.tables, _always_ready)
    terms = FacadeOptions({STANDALONE_CATALOG: tables}, trees if folders.directories else {}, folders.admits, counted)
    return FolderFacade(Facade(terms, TableLoader(SystemClock(), folders.metadata_limit)), ready)


async def _always_ready() -> None:
    return None


def _files_of(root: str, stores: StoreRouter) -> FileReader:
    """Files of this machine are opened as a facade opens them, not as the service's own: links lead nowhere else."""
    return open_tree(root, {}) if scheme_of(root) == "file" else StoreFiles(root, stores)


def _without_facade(application: FacadeApplication) -> FacadeApplication:
    return application


# ── gateways: From the settings to the gateways

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


# ── pulls: From the settings to the sources that events are fetched from


class CheckableServer(PullServer, Protocol):
    """A source's server that can be tried."""

    async def probe(self) -> str:
        """What is there, tried without taking anything away from whoever fetches.

        Raises:
            Away: not what is needed.
        """
        ...


def build_pull_sources(
    settings: Settings, inbox: InboxWriter, event_filter: EventFilter, metrics: Metrics, clock: Clock
) -> tuple[PullSource, ...]:
    """All configured sources; none has been asked anything yet.

    Args:
        inbox: where their events go.
        event_filter: which of them matter.

    Raises:
        SfnError: the packages that speak to one are not installed.
    """
    ingest_service = IngestService(inbox, event_filter=event_filter, metrics=metrics.events)
    return tuple(
        PullSource(
            PullOptions(
                name,
                Sender(pull_origin_name(name), settings.catalogs_of(pull_origin_name(name)), one.dialect),
                settings.listener.body_limit if one.body_limit is None else one.body_limit,
                settings.listener.drain,
            ),
            build_pull_server(name, one),
            ingest_service,
            clock=clock,
            event_metrics=metrics.events,
            pull_metrics=metrics.pulls,
        )
        for name, one in settings.pull.items()
    )


def build_pull_server(name: str, pull: PullSettings) -> CheckableServer:
    """Where a source is.

    Raises:
        SfnError: the packages that speak to it are not installed.
    """
    try:
        from sfn.pull import nats as pull_nats
        from sfn.pull import nats_connection
    except ModuleNotFoundError as error:
        raise SfnError(
            f"pull.{name}",
            expected="the packages that NATS needs",
            found=f"no module {error.name}",
            remedy="pip install '.[nats]'",
        ) from error
    durable = (
        None
        if pull.stream is None or pull.durable is None
        else nats_connection.DurableConsumer(pull.stream, pull.durable)
    )
    return pull_nats.NatsServer(
        nats_connection.NatsOptions(
            where=f"pull.{name}",
            servers=pull.servers,
            subject=pull.subject,
            group=pull.queue,
            durable=durable,
            ca_file=pull.ca_file,
            credentials_file=pull.credentials_file,
            token_file=pull.token_file,
            user=pull.user,
            password_file=pull.password_file,
        )
    )
