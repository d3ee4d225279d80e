"""The assembly of the service's parts: inbox, metrics, worker, and the application of the listener."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import structlog
from fastapi import APIRouter

from sfn.admin.app import routes
from sfn.admin.replicas import Replicas
from sfn.admin.routes import AdminContext, ConfiguredCatalog, ProcessInfo, RetiredCatalogs
from sfn.admin.schemas import PullSourceModel
from sfn.app.catalogs import (
    VERSION,
    IdentifiedCatalog,
    LazyCatalogRegistry,
    build_catalogs,
    inbox_config,
    table_filter,
    vended_stores_factory,
    worker_options,
)
from sfn.app.endpoints import (
    AccessControl,
    GatewaySet,
    build_access_control,
    build_facade,
    build_gateways,
    build_pull_sources,
    load_certificate,
)
from sfn.app.storage import local_locks, open_stores
from sfn.catalogs.activity import ObservableCatalog, keep_pinging
from sfn.clock import Clock, SystemClock, SystemRandomSource
from sfn.concurrency import AbandonableThreads, TimedOut
from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.errors import ExternalError, FatalError, Rejected, Transient
from sfn.formats.decode import FORMAT_NAMES
from sfn.formats.event import Sender
from sfn.gateway.connection import MAX_WRITE
from sfn.http.app import ListenerApplication, build_app, metrics_router
from sfn.http.ingest import EventFilter, EventsEndpoint, Readiness, to_request
from sfn.http.recent_requests import RecentRequests
from sfn.http.responses import AsgiApplication
from sfn.http.secrets import WatchedTokenFile
from sfn.http.senders import ANONYMOUS, OperatorAuth
from sfn.http.server import Certificate
from sfn.inbox import InboxWriter
from sfn.inbox.inbox import CachedCounts, Inbox
from sfn.inbox.model import CommittedTransaction, FoldResult, InboxConfig
from sfn.inbox.postgres import PostgresInbox, preflight
from sfn.inbox.postgres_server import PostgresServer, PreflightResult
from sfn.inbox.sqlite import Doubt, SqliteInbox, held_by, placed
from sfn.limits import BodyLimits, BodyMemory
from sfn.mounts import LOCAL_LOCKS_PROBLEM, LOCAL_LOCKS_REMEDY
from sfn.pull import SourceState
from sfn.pull.source import PullSource
from sfn.settings.root import ALL_ROLES, Role, Settings
from sfn.settings.sections import is_loopback
from sfn.storage import ObjectStore, PrefixRouter, StoreRouter
from sfn.telemetry.metrics import Metrics
from sfn.telemetry.scrape import LabelNames, Scrape, ScrapedStats, ScrapeSources
from sfn.ui.app import ui_router
from sfn.ui.home import home_router
from sfn.worker.catalog_now import CatalogQueries
from sfn.worker.lag import LagHistory
from sfn.worker.outcome_log import OutcomeLog, OutcomeMetrics, OutcomeSinks
from sfn.worker.table_files import TableFileQueries
from sfn.worker.worker import Worker


def open_inbox(
    settings: Settings,
    clock: Clock,
    observe: Callable[[CommittedTransaction], None],
    observe_fold: Callable[[FoldResult], None],
) -> AbstractAsyncContextManager[Inbox]:
    """Open the configured inbox, and close it in the end.

    Args:
        settings: all settings.
        clock: wall clock.
        observe: called after every transaction.
        observe_fold: called after every fold.

    Raises:
        FatalError: the inbox cannot be used, or not by this process.
        Transient: scope inbox; there is no space, or no answer.
    """
    config, limit = inbox_config(settings), settings.listener.queue_limit
    if settings.inbox.path is not None:
        return SqliteInbox.opened(
            settings.inbox.path, config, clock, queue_limit=limit, observe=observe, observe_fold=observe_fold
        )
    return PostgresInbox.opened(
        _server(settings), config, clock, queue_limit=limit, observe=observe, observe_fold=observe_fold
    )


def is_shared(settings: Settings) -> bool:
    """Return True if several processes can use the configured inbox."""
    return settings.inbox.path is None


def process_holding(file: Path) -> str | None:
    """Return a description of the process that has an inbox open; None if there is none.

    Raises:
        FatalError: the lock cannot be read.
    """
    return held_by(file)


def placement_problem(file: Path) -> Doubt | None:
    """Return the reason why a file is a bad place for an inbox; None if there is none.

    Raises:
        FatalError: the file is mounted without its folder.
    """
    return placed(file)


async def try_inbox(file: Path) -> None:
    """Create an inbox in a file that does not exist, open it and close it again.

    Raises:
        SfnError: an inbox cannot be created there.
    """
    async with SqliteInbox.opened(file, InboxConfig(), SystemClock()):
        pass


def unsafe_hosts(settings: Settings) -> list[str]:
    """Return the hosts of the database on other machines, if `inbox.url` does not require TLS."""
    return [host for host in _server(settings).unsafe_hosts if not is_loopback(host)]


async def check_database(settings: Settings) -> PreflightResult:
    """Check the configured PostgreSQL database without touching a row.

    Raises:
        SfnError: the database cannot hold an inbox.
    """
    return await preflight(_server(settings), SystemClock())


def _server(settings: Settings) -> PostgresServer:
    return PostgresServer(settings.inbox.url, settings.inbox.password_file)


class MetricsWiring:
    """The metrics of a process, and their route.

    Args:
        settings: all settings.
        version: version of the service.
        clock: wall clock.
        sources: names of the pull sources of this process.

    Attributes:
        metrics: the counters and histograms.
    """

    def __init__(self, settings: Settings, version: str, clock: Clock, sources: Collection[str] = ()) -> None:
        self._settings, self._clock = settings, clock
        self.metrics = Metrics(
            version=version,
            catalogs=settings.catalogs,
            event_formats=FORMAT_NAMES,
            gateways=settings.gateway,
            sources=sources,
        )

    def routes(
        self,
        queue_stats: Callable[[], Awaitable[ScrapedStats]],
        process: ProcessInfo,
        admit: Callable[[bytes | None], bool] | None,
    ) -> APIRouter:
        """Return the route of the metrics.

        Args:
            queue_stats: returns the statistics of the inbox.
            process: state of this process.
            admit: returns True for an `Authorization` header that opens the route; None to let everyone in.
        """
        settings = self._settings
        files: dict[str, Path] = {}
        if settings.inbox.path is not None:
            # If the path is a symbolic link, SQLite puts its log next to the target.
            database = settings.inbox.path.resolve()
            files = {"db": database, "wal": database.with_name(f"{database.name}-wal")}
        observed = ScrapeSources(
            queue_stats, files, lambda: not process.not_ready_reasons(), process.catalog_ids, process.breakers
        )
        return metrics_router(Scrape(self.metrics.registry, observed, metric_bounds(settings), self._clock), admit)


def metric_bounds(settings: Settings) -> LabelNames:
    """Return the catalogs and stores that the metrics use as label values."""
    stores = {one.prefix: name for name, one in settings.stores.items()}
    every, queried = settings.sweep.every, [name for name, one in settings.catalogs.items() if not one.is_event_only]
    swept = {} if every is None else dict.fromkeys(queried, every.total_seconds())
    return LabelNames(tuple(settings.catalogs), stores, swept)


def build_event_filter(settings: Settings, retirement: RetiredCatalogs) -> EventFilter:
    """Return the filter of relevant events: those of tables to publish, in catalogs that are not retired."""
    filters = {name: table_filter(one) for name, one in settings.catalogs.items()}

    def covers(table: TableIdentifier) -> bool:
        return table.catalog not in retirement.names and filters[table.catalog].covers(table)

    return EventFilter(covers, frozenset(settings.event_only_catalogs))


def decode_undecodable(
    settings: Settings, event_filter: EventFilter, event: UndecodableRequest
) -> Sequence[Notification]:
    """Decode a request that could not be decoded when it arrived, and return its relevant notifications.

    Raises:
        Rejected: the request still cannot be decoded, its sender is not configured any more, or the signature does not
            cover what an event-only catalog would rely on.
    """
    decoded = event_filter.decode(to_request(event, _sender_named(settings, event.sender), event_filter.event_only))
    return event_filter.relevant(decoded.notifications)


def _sender_named(settings: Settings, name: str) -> Sender:
    origins = settings.origins
    if name in origins:
        return Sender(name, settings.catalogs_of(name), origins[name].dialect)
    if name == ANONYMOUS and not settings.senders:
        return Sender(name, {catalog: catalog for catalog in settings.catalogs})
    known = ", ".join(origins) or "none is"
    raise Rejected("sender", status=422, expected=f"a configured sender: {known}", found=name)


STARTING: Final = "starting"
"""The reason why a process is not ready at first."""

STATUS_MAX_AGE: Final = 0.05
"""Age in seconds of the figures in the status of a small inbox; counting takes at most a twentieth of the time."""
LIVE_COUNTING_SHARE: Final = 100
"""Counting the live tables takes at most a hundredth of the time: operators need not know them to the second."""
_RETIREMENT_POLL_SECONDS: Final = 5.0
_MAX_START_ATTEMPTS: Final = 10
"""Maximum number of queries to a newly opened inbox during the start."""
_START_RETRY_SECONDS: Final = 1.0
_MOUNTS_TIMEOUT: Final = 5.0
"""Seconds."""

_log = structlog.stdlib.get_logger(__name__)

StoreWrapper: TypeAlias = Callable[[ObjectStore], ObjectStore]
"""Wraps a store, for example in a test's delay."""


@dataclass(frozen=True, slots=True)
class AssembledService:
    """The parts of one process, ready to run.

    Attributes:
        application: application of the listener.
        events: its endpoint for events; None if this process accepts no events.
        readiness: state of `/readyz`; has the reason `STARTING` until the runner clears it.
        worker: worker, which publishes tables.
        inbox: inbox, for the notifications of the service itself.
        run_maintenance: keeps the inbox small, forever; raises `FatalError` if the inbox cannot be trusted any more.
        first_sweeps: notifications for the sweeps at the start.
        certificate: certificate of the listener; None without TLS.
        token_files: files with tokens, which the runner has to watch.
        runs_worker: True if this process runs the worker; else other processes do.
        gateways: gateways.
        pull_sources: pull sources.
    """

    application: AsgiApplication
    events: EventsEndpoint | None
    readiness: Readiness
    worker: Worker
    inbox: InboxWriter
    run_maintenance: Callable[[], Coroutine[Any, Any, None]]
    first_sweeps: tuple[Notification, ...]
    certificate: Certificate | None = None
    token_files: tuple[WatchedTokenFile, ...] = ()
    runs_worker: bool = True
    gateways: GatewaySet = GatewaySet()
    pull_sources: tuple[PullSource, ...] = ()


@asynccontextmanager
async def build_service(
    settings: Settings,
    on_fatal: Callable[[FatalError], None],
    wrap_store: StoreWrapper | None = None,
    roles: frozenset[Role] = ALL_ROLES,
) -> AsyncIterator[AssembledService]:
    """Build and open all parts, and close them in the end, the inbox last.

    Args:
        settings: all settings.
        on_fatal: called when a request finds that the inbox cannot be trusted any more.
        wrap_store: wrapper of each store.
        roles: roles of this process.

    Raises:
        SfnError: a part cannot be opened, or its setting is wrong.
    """
    clock, server_certificate = SystemClock(), load_certificate(settings)
    if is_shared(settings) and Role.WORKER in roles:
        await _warn_of_local_locks(settings)
    access_control, is_receiver = build_access_control(settings, clock), Role.RECEIVER in roles
    metering = MetricsWiring(settings, VERSION, clock, settings.pull if is_receiver else ())
    commits = metering.metrics.commits
    async with (
        open_inbox(settings, clock, commits.observe, commits.observe_fold) as inbox,
        open_stores(settings) as registry,
        AsyncExitStack() as stack,
    ):
        stores = PrefixRouter(
            {prefix: wrap_store(store) if wrap_store else store for prefix, store in registry.stores.items()}
        )
        catalogs = build_catalogs(settings, clock, stores.read_range, inbox.reported_tables)
        for catalog in catalogs.values():
            stack.push_async_callback(catalog.close)
        readiness = Readiness(STARTING)
        retirement = RetiredCatalogs(await _retired_catalogs(inbox))
        catalog_registry = LazyCatalogRegistry(
            settings, catalogs, retirement, inbox, vended_stores_factory(settings, stores, registry, clock)
        )
        recent = RecentRequests(clock, settings.origins or [ANONYMOUS])
        pull_sources = (
            build_pull_sources(
                settings, inbox, build_event_filter(settings, retirement), metering.metrics, clock, recent
            )
            if is_receiver
            else ()
        )
        lag = LagHistory()
        sink = OutcomeSinks(OutcomeLog(), OutcomeMetrics(metering.metrics.work, clock, lag))
        worker = _build_worker(settings, inbox, catalog_registry, stores, clock, sink)
        process = ProcessInfo(
            version=VERSION,
            started_at=clock.now(),
            not_ready_reasons=lambda: readiness.reasons,
            catalog_ids=catalog_registry.catalog_ids,
            catalog_answers=catalog_registry.answers,
            breakers=worker.breakers,
            sweep_reports=worker.sweeps,
            catalog_now=CatalogQueries(catalogs, settings.event_only_catalogs, worker.breakers, clock).load,
            table_files=TableFileQueries(
                lambda table: catalog_registry.stores_for(table, stores),
                [one.prefix for one in settings.stores.values()],
                worker.breakers,
                clock,
            ).load,
            retired_catalogs=retirement,
            lag=lag,
            recent=recent,
            roles=frozenset() if roles == ALL_ROLES else roles,
            pull_sources=lambda: [_pull_source_model(one.state) for one in pull_sources],
        )
        replicas = Replicas(inbox, process, clock, is_shared=is_shared(settings))
        is_relevant = build_event_filter(settings, retirement).is_relevant
        memory = BodyMemory(_gateway_body_memory(settings), metering.metrics.bodies.counter_for("gateways"))
        gateways = build_gateways(
            settings if Role.GATEWAY in roles else None,
            inbox,
            is_relevant,
            on_fatal,
            metering.metrics.gateways,
            memory,
        )
        for proxy in gateways.proxies:
            stack.push_async_callback(proxy.close)
        with_facade = build_facade(
            settings if Role.FACADE in roles else None,
            inbox,
            stores,
            access_control.readers,
            metering.metrics.readers,
            on_fatal,
        )
        application = _build_application(settings, access_control, inbox, readiness, replicas, on_fatal, metering)
        yield AssembledService(
            application=gateways.with_gateways(with_facade(application)),
            events=application.events,
            readiness=readiness,
            worker=worker,
            inbox=inbox,
            run_maintenance=partial(
                _maintain, inbox, settings.inbox.event_retention, retirement, replicas, catalogs.values()
            ),
            first_sweeps=_first_sweeps(settings) if Role.WORKER in roles else (),
            certificate=server_certificate,
            token_files=access_control.files,
            runs_worker=Role.WORKER in roles,
            gateways=gateways,
            pull_sources=pull_sources,
        )


async def _warn_of_local_locks(settings: Settings) -> None:
    """Log the mounts of stores with locks that processes on other hosts do not see."""
    # A mount with a dead server may never answer. The thread can be abandoned, so it does not block the shutdown.
    threads = AbandonableThreads(1, _MOUNTS_TIMEOUT, read_only=True)
    found = await threads.run("find mounts of stores", lambda _: list(local_locks(settings)))
    for name, point, option in () if isinstance(found, TimedOut) else found:
        _log.warning(
            "store locks are local to this host",
            store=name,
            found=f"{point}: {option}: {LOCAL_LOCKS_PROBLEM}",
            remedy=LOCAL_LOCKS_REMEDY,
        )


async def _retired_catalogs(inbox: Inbox) -> frozenset[str]:
    """Return the retired catalogs; retry, because one lost answer is no reason to end.

    Raises:
        SfnError: all attempts failed.
    """
    for _ in range(_MAX_START_ATTEMPTS - 1):
        with suppress(Transient):
            return await inbox.retired_catalogs()
        await anyio.sleep(_START_RETRY_SECONDS)
    return await inbox.retired_catalogs()


async def _maintain(
    inbox: Inbox,
    retention: timedelta,
    retirement: RetiredCatalogs,
    replicas: Replicas,
    catalogs: Iterable[IdentifiedCatalog],
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(inbox.run_maintenance, retention)
        if replicas.is_shared:
            tasks.start_soon(_follow_retirement, inbox, retirement)
            tasks.start_soon(replicas.run)
        for catalog in catalogs:
            if isinstance(catalog, ObservableCatalog):
                tasks.start_soon(keep_pinging, catalog)


async def _follow_retirement(inbox: Inbox, retirement: RetiredCatalogs) -> None:
    """Poll the retired catalogs forever: operators may retire one through another process."""
    while True:
        await anyio.sleep(_RETIREMENT_POLL_SECONDS)
        with suppress(ExternalError):
            retirement.names = await inbox.retired_catalogs()


def _build_worker(
    settings: Settings,
    inbox: Inbox,
    catalog_registry: LazyCatalogRegistry,
    stores: StoreRouter,
    clock: Clock,
    sink: OutcomeSinks,
) -> Worker:
    return Worker(
        inbox,
        catalog_registry,
        stores,
        clock=clock,
        chance=SystemRandomSource(),
        sink=sink,
        options=worker_options(settings),
    )


def _build_application(
    settings: Settings,
    access_control: AccessControl,
    inbox: Inbox,
    readiness: Readiness,
    replicas: Replicas,
    on_fatal: Callable[[FatalError], None],
    metering: MetricsWiring,
) -> ListenerApplication:
    process = replicas.process
    catalogs, event_filter = settings.catalogs, build_event_filter(settings, process.retired_catalogs)
    memory = BodyMemory(_body_memory(settings), metering.metrics.bodies.counter_for("listener"))
    events = EventsEndpoint(
        inbox,
        access_control.senders,
        readiness,
        limits=BodyLimits(settings.listener.body_limit),
        event_filter=event_filter,
        on_fatal=on_fatal,
        metrics=metering.metrics.events,
        memory=memory,
        recent=process.recent,
    )
    operations = AdminContext(
        inbox=inbox,
        replicas=replicas,
        catalogs={
            name: ConfiguredCatalog(
                one.type,
                is_sweepable=not one.is_event_only,
                is_swept=not one.is_event_only and settings.sweep.every is not None,
                interest=table_filter(one),
            )
            for name, one in catalogs.items()
        },
        decode=partial(decode_undecodable, settings, event_filter),
        clock=SystemClock(),
        late_after=settings.telemetry.late_after,
        cached_stats=CachedCounts(inbox.stats, STATUS_MAX_AGE),
        cached_live=CachedCounts(inbox.live_counts, STATUS_MAX_AGE, LIVE_COUNTING_SHARE),
        stores={name: one.prefix for name, one in settings.stores.items()},
        gateways={name: sorted({*settings.catalogs_behind(name).values()}) for name in settings.gateway},
    )
    roles = process.roles or ALL_ROLES
    operated = access_control.operators if Role.ADMIN in roles else None
    return build_app(
        events if Role.RECEIVER in roles else None,
        readiness,
        version=VERSION,
        on_fatal=on_fatal,
        memory=memory,
        routers=[
            home_router(operations.clock, VERSION, has_operators=operated is not None),
            *([] if operated is None else _operators_routers(operations, operated)),
            metering.routes(inbox.stats, process, access_control.scrapers),
        ],
    )


def _operators_routers(operations: AdminContext, operators: OperatorAuth) -> list[APIRouter]:
    return [routes(operations, operators.authenticate), ui_router(operations, operators)]


def _pull_source_model(state: SourceState) -> PullSourceModel:
    name, is_connected, since, error = state
    return PullSourceModel(name=name, connected=is_connected, unavailable_since=since, error=error)


def _body_memory(settings: Settings) -> int:
    """Return the memory limit for bodies in bytes, at least as much as the largest body needs."""
    gateways = [one.body_limit for one in settings.gateway.values()]
    # A gateway may hold one chunk more than its limit.
    return max(settings.listener.body_memory, settings.listener.body_limit, 2 * max(gateways, default=0))


def _gateway_body_memory(settings: Settings) -> int:
    """Return the memory limit in bytes for bodies of all gateways.

    Each connection adds one write, so that bodies that are held until their answer leave memory for the others.
    """
    return _body_memory(settings) + MAX_WRITE * sum(one.connections for one in settings.gateway.values())


def _first_sweeps(settings: Settings) -> tuple[Notification, ...]:
    if settings.sweep.every is None:
        return ()
    return tuple(
        Notification(CatalogName(name), sender="start")
        for name, one in settings.catalogs.items()
        if not one.is_event_only
    )
