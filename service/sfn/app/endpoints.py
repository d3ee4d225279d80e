"""Builders of everything that exchanges requests or events: access control, facade, gateways and pull sources."""

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
from sfn.extras import install_command
from sfn.facade import TableSource
from sfn.facade.app import Facade, FacadeApplication, FacadeOptions, mount_facade
from sfn.facade.discovery import ScannedTables, folder_scans
from sfn.facade.metadata_files import StoreFiles, open_tree
from sfn.facade.tables import PublishedTables, TableLoader
from sfn.formats.event import Sender
from sfn.gateway.commits import CommitRecorder, IntentOptions, OnInboxFailure, OwedSweeps
from sfn.gateway.connection import PublicAddress
from sfn.gateway.proxy import GatewayApplication, GatewayOptions, Proxy, mount_gateways, standalone_gateway
from sfn.gateway.routes import CatalogMapping
from sfn.gateway.upstream import UpstreamOptions, UpstreamPool
from sfn.http.ingest import EventFilter, IngestService
from sfn.http.recent_requests import RecentRequests
from sfn.http.secrets import AuthScheme, PartyTokens, WatchedTokenFile
from sfn.http.senders import OPERATORS_PARTY, Keyring, OperatorAuth, Senders, anonymous_senders
from sfn.http.server import Certificate
from sfn.inbox import InboxWriter
from sfn.inbox.inbox import Inbox
from sfn.limits import BodyMemory
from sfn.pull import PullServer
from sfn.pull.source import PullOptions, PullSource
from sfn.reader.files import FileReader
from sfn.settings.root import Settings, pull_origin_name
from sfn.settings.sections import CatalogSettings, FacadeSettings, GatewaySettings, PullSettings
from sfn.sfnfile.locations import scheme_of
from sfn.storage import StoreRouter
from sfn.telemetry.logs import RejectionLog
from sfn.telemetry.metrics import FacadeMetrics, GatewayMetrics, Metrics

READERS_PARTY: Final = "facade"
"""Name of the facade's readers in the keyring: their section of the settings."""
METRICS_PARTY: Final = "telemetry"
"""Name of the metrics' readers in the keyring: their section of the settings."""


@dataclass(frozen=True, slots=True)
class AccessControl:
    """The checks of tokens and signatures.

    Attributes:
        senders: authentication of senders.
        operators: authentication of operators; None without admin routes.
        readers: returns True for an `Authorization` header that opens the facade; None if the facade is open.
        scrapers: returns True for an `Authorization` header that opens the metrics; None if the metrics are open.
        files: files with tokens, which the runner has to watch.
    """

    senders: Senders
    operators: OperatorAuth | None
    readers: Callable[[bytes | None], bool] | None
    scrapers: Callable[[bytes | None], bool] | None
    files: tuple[WatchedTokenFile, ...] = ()


def build_access_control(settings: Settings, clock: Clock) -> AccessControl:
    """Build the checks, with the current tokens and those that token files will hold later.

    Args:
        settings: all settings.
        clock: wall clock, for the age of signatures.

    Raises:
        FatalError: a file with tokens cannot be read, or two parties have the same token.
    """
    authenticated = {name: one for name, one in settings.senders.items() if one.scheme is not AuthScheme.NONE}
    parties = {
        _party_of_sender(name): _load_tokens(f"senders.{name}.secrets", one.secrets, one.secrets_file, one.scheme)
        for name, one in authenticated.items()
    }
    admin = settings.admin
    if admin.token is not None or admin.token_file is not None:
        parties[OPERATORS_PARTY] = _load_tokens(
            "admin.token", {} if admin.token is None else {"token": admin.token}, admin.token_file
        )
    facade = settings.facade
    if facade.has_token:
        parties[READERS_PARTY] = _load_tokens(
            "facade.token", {} if facade.token is None else {"token": facade.token}, facade.token_file
        )
    telemetry = settings.telemetry
    if telemetry.metrics_token is not None or telemetry.metrics_token_file is not None:
        named = {} if telemetry.metrics_token is None else {"metrics_token": telemetry.metrics_token}
        parties[METRICS_PARTY] = _load_tokens("telemetry.metrics_token", named, telemetry.metrics_token_file)
    keyring = Keyring(parties)
    return AccessControl(
        _build_senders(settings, keyring, clock) if settings.senders else anonymous_senders(settings.catalogs),
        OperatorAuth(keyring, RejectionLog(OPERATORS_PARTY)) if OPERATORS_PARTY in parties else None,
        partial(_is_token_of, keyring, READERS_PARTY) if READERS_PARTY in parties else None,
        partial(_is_token_of, keyring, METRICS_PARTY) if METRICS_PARTY in parties else None,
        tuple(tokens.file for tokens in parties.values() if tokens.file is not None),
    )


def load_certificate(settings: Settings) -> Certificate | None:
    """Load the listener's certificate; return None without TLS.

    Raises:
        FatalError: the files cannot be used.
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
            _party_of_sender(name): scheme
            for name in authenticated
            if (scheme := settings.senders[name].signature_scheme) is not None
        },
        rates={name: one.rate_limit for name, one in settings.senders.items() if one.rate_limit is not None},
        clock=clock,
    )


def _party_of_sender(sender: str) -> str:
    return f"senders.{sender}"


def _load_tokens(
    setting: str, named: Mapping[str, SecretStr], file: Path | None, scheme: AuthScheme = AuthScheme.BEARER
) -> PartyTokens:
    """Return the tokens of a setting, and of the file that the setting with `_file` names.

    Raises:
        FatalError: the file is not usable.
    """
    secrets = {name: secret.get_secret_value() for name, secret in named.items()}
    try:
        return PartyTokens(secrets, None if file is None else WatchedTokenFile(file, scheme), scheme)
    except FatalError as error:
        where = f"{setting}_file: {error.where}"
        raise FatalError(where, expected=error.expected, found=error.found, remedy=error.remedy) from error


STANDALONE_CATALOG: Final = "sfn"
"""Name of the catalog of a facade over folders."""

LISTING_LIFETIME: Final = 30.0
"""Seconds for which the result of a scan is cached, because a scan may take long."""
MISSING_LIFETIME: Final = 5.0
"""Seconds after which a request for a table that was not found starts another scan."""


def build_facade(
    settings: Settings | None,
    inbox: Inbox,
    stores: StoreRouter,
    admits: Callable[[bytes | None], bool] | None,
    readers: FacadeMetrics,
    on_fatal: Callable[[FatalError], None],
) -> Callable[[FacadeApplication], FacadeApplication]:
    """Return a function that mounts the facade in front of the listener's other routes.

    Args:
        settings: all settings; None if this process serves no facade.
        inbox: inbox, for the published tables.
        stores: stores, for the metadata files.
        admits: returns True for an `Authorization` header that opens the facade; None if the facade is open.
        readers: metrics of the facade.
        on_fatal: called when a request finds that the inbox cannot be trusted any more.
    """
    if settings is None or not settings.facade.is_on:
        return _without_facade
    facade_settings = settings.facade
    roots = facade_settings.roots or tuple(one.prefix for one in settings.stores.values())
    trees = {root: _files_of(root, stores) for root in roots}
    tables_by_catalog = {name: PublishedTables(inbox, name, trees) for name in settings.catalogs}
    options = FacadeOptions(
        tables_by_catalog, trees if facade_settings.directories else {}, admits, readers.count_answer, on_fatal
    )
    return partial(mount_facade, Facade(options, TableLoader(SystemClock(), facade_settings.metadata_limit)))


@dataclass(frozen=True, slots=True)
class FacadeFolders:
    """The options of a facade over folders.

    Attributes:
        roots: canonical locations of folders.
        options: options of fsspec's driver.
        tables: tables of the catalog; None to scan the folders for tables.
        directories: let readers name a table by its directory.
        admits: returns True for an `Authorization` header that opens the facade; None if the facade is open.
        metadata_limit: maximum size in bytes of a metadata file's JSON.
    """

    roots: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tables: TableSource | None = None
    directories: bool = True
    admits: Callable[[bytes | None], bool] | None = None
    metadata_limit: int = FacadeSettings.model_fields["metadata_limit"].default


@dataclass(frozen=True, slots=True)
class FolderFacade:
    """A facade without catalog and inbox.

    Attributes:
        facade: the facade.
        ready: waits until the tables are known; returns the error if they cannot be listed.
    """

    facade: Facade
    ready: Callable[[], Awaitable[Exception | None]]


def facade_over_folders(folders: FacadeFolders, counted: Callable[[int], None]) -> FolderFacade:
    """Build a facade over folders.

    Args:
        folders: options of the facade.
        counted: called with the status of each response.
    """
    trees = {root: open_tree(root, folders.options) for root in folders.roots}
    index = ScannedTables(folder_scans(trees), LISTING_LIFETIME, MISSING_LIFETIME)
    tables, ready = (index, index.wait_until_listed) if folders.tables is None else (folders.tables, _always_ready)
    options = FacadeOptions({STANDALONE_CATALOG: tables}, trees if folders.directories else {}, folders.admits, counted)
    return FolderFacade(Facade(options, TableLoader(SystemClock(), folders.metadata_limit)), ready)


async def _always_ready() -> None:
    return None


def _files_of(root: str, stores: StoreRouter) -> FileReader:
    """Return the files below a root. Local files are opened with the facade's check of symbolic links."""
    return open_tree(root, {}) if scheme_of(root) == "file" else StoreFiles(root, stores)


def _without_facade(application: FacadeApplication) -> FacadeApplication:
    return application


_ID_BYTES: Final = 16


BackgroundTask: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


def _without_gateways(application: GatewayApplication) -> GatewayApplication:
    return application


@dataclass(frozen=True, slots=True)
class GatewayListener:
    """A gateway with an HTTP listener of its own.

    Attributes:
        name: name of the gateway.
        host: address to bind.
        port: port to bind; 0 for any free port.
        application: application of the gateway.
    """

    name: str
    host: str
    port: int
    application: GatewayApplication


@dataclass(frozen=True, slots=True)
class GatewaySet:
    """All gateways of a process.

    Attributes:
        with_gateways: mounts the gateways at `/catalog/NAME` in front of the listener's other routes.
        proxies: proxies, which the owner has to close.
        listeners: gateways with a listener of their own.
        background_tasks: tasks that the owner has to run forever.
        shutdown_tasks: tasks that the owner has to run after the last request.
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
    on_fatal: Callable[[FatalError], None],
    metrics: GatewayMetrics,
    memory: BodyMemory,
) -> GatewaySet:
    """Build the configured gateways.

    Args:
        settings: all settings; None if this process serves no gateways.
        inbox: inbox, for intents.
        is_relevant: returns True for a table to publish.
        on_fatal: called when a request finds that the inbox cannot be trusted any more.
        metrics: metrics of the gateways.
        memory: memory for the bodies of all gateways' clients.

    Raises:
        FatalError: a file with certificates cannot be used.
    """
    if settings is None or not settings.gateway:
        return GatewaySet()
    owed, background_tasks = OwedSweeps(inbox), list[BackgroundTask]()
    proxies: dict[str, Proxy] = {}
    for name, one in settings.gateway.items():
        watched = None if one.ca_file is None else _watch_authorities(name, one.ca_file)
        if watched is not None:
            background_tasks.append(watched.watch)
        upstream = UpstreamPool(name, _upstream_options(one), partial(_current_authorities, watched))
        options = GatewayOptions(one.upstream.rstrip("/"), _public_address(one), one.body_limit)
        intents = IntentOptions(
            f"gateway.{name}", OnInboxFailure(one.on_inbox_failure), partial(secrets.token_hex, _ID_BYTES)
        )
        commits = CommitRecorder(intents, inbox, owed, on_fatal, metrics.get(name))
        catalog_routing = _catalog_routing(settings, name, is_relevant)
        proxies[name] = Proxy(upstream, commits, catalog_routing, options, metrics.get(name), memory)
    listeners = [
        GatewayListener(name, one.host, one.port, standalone_gateway(proxies[name]))
        for name, one in settings.gateway.items()
        if one.host is not None
    ]
    return GatewaySet(
        partial(mount_gateways, proxies),
        tuple(proxies.values()),
        tuple(listeners),
        (owed.run, *background_tasks),
        (owed.put_at_shutdown,),
    )


def _upstream_options(gateway: GatewaySettings) -> UpstreamOptions:
    return UpstreamOptions(
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
    """Return True if the settings have credentials for a catalog: then a commit without credentials cannot succeed."""
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
    return WatchedFiles(f"certificates of gateway {name}", (file,), partial(_read_authorities, file))


def _read_authorities(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except (ssl.SSLError, OSError) as error:
        found = error.strerror or type(error).__name__
        raise FatalError(str(file), expected="a file of PEM certificates", found=found) from error


def _current_authorities(watched: WatchedFiles[ssl.SSLContext] | None) -> ssl.SSLContext | bool:
    return True if watched is None else watched.current


class CheckableServer(PullServer, Protocol):
    """A server of a pull source that `sfn check` can test."""

    async def probe(self) -> str:
        """Return a description of the server, without consuming any messages.

        Raises:
            SourceUnavailable: the server cannot be used.
        """
        ...


def build_pull_sources(
    settings: Settings,
    inbox: InboxWriter,
    event_filter: EventFilter,
    metrics: Metrics,
    clock: Clock,
    recent: RecentRequests | None = None,
) -> tuple[PullSource, ...]:
    """Build all configured pull sources without connecting them.

    Args:
        settings: all settings.
        inbox: inbox for the events.
        event_filter: filter of relevant events.
        metrics: metrics of this process.
        clock: wall clock.
        recent: the last requests with events.

    Raises:
        SfnError: the packages for a source are not installed.
    """
    ingest_service = IngestService(inbox, event_filter=event_filter, metrics=metrics.events, recent=recent)
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
    """Build the server of a pull source.

    Raises:
        SfnError: the packages for the source are not installed.
    """
    try:
        from sfn.pull import nats as pull_nats
        from sfn.pull import nats_connection
    except ModuleNotFoundError as error:
        raise SfnError(
            f"pull.{name}",
            expected="the packages that NATS needs",
            found=f"no module {error.name}",
            remedy=install_command("nats"),
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
