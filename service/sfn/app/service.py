"""The service as one process: tasks of one task group. When one fails, all end.

    servers       answer requests
    pull sources  fetch events
    worker        publishes tables
    maintenance   keeps the inbox small
    watchers      read files of tokens again when they change
    signals       SIGTERM or SIGINT: drain and exit with 0; a second signal: exit at once with 1

Steps of a drain:

1. `/readyz` and events are answered with 503. Nothing more is fetched or claimed. Sweeps are returned to the queue.
2. Running events and publishes have `listener.drain` to finish. Unfinished jobs are returned to the queue.
3. Running requests are answered, and the inbox is closed.

Each of these waits has its own deadline. A system call that still hangs after it, such as a call on a mount with a dead
server, is logged and abandoned.
"""

from __future__ import annotations

import faulthandler
import gc
import math
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals
from typing import Final

import anyio
import structlog

from sfn import limits
from sfn.app import wiring
from sfn.app.catalogs import VERSION
from sfn.app.service_manager import NO_MANAGER, ServiceManager
from sfn.concurrency import unfinished_calls
from sfn.errors import ExternalError, FatalError, SfnError
from sfn.http.ingest import EventsEndpoint
from sfn.http.responses import AsgiApplication
from sfn.http.secrets import AuthScheme
from sfn.http.server import HttpServer, listening_socket
from sfn.settings import mistaken_variables
from sfn.settings.environment import (
    UNREACHABLE,
    isolated_container,
    loopback_hosts,
    names_trace_collector,
    reachable_remedy,
    service_manager,
)
from sfn.settings.root import ALL_ROLES, Role, Settings
from sfn.telemetry import logs, tracing

ENDED, FAILED = 0, 1
SHUTDOWN_TIMEOUT: Final = 90.0
"""Seconds from the end of a drain until the process is ended by force. All deadlines of a shutdown are shorter."""
ABANDONED_CALLS_TIMEOUT: Final = 1.0
"""Seconds at the end for calls that were abandoned a moment ago."""

_SWEEP_RETRY_SECONDS: Final = 1.0
_TLS: Final = "set listener.tls_certificate_file and listener.tls_key_file"
_GC_THRESHOLD: Final = 20_000
"""Allocations minus deallocations that trigger a collection of the youngest generation; Python's default is 700."""
_SWITCH_INTERVAL: Final = 0.000_5
"""Seconds for which a thread keeps the interpreter's lock while another one waits for it; Python's default is 0.005.

The inbox's thread waits for the lock after each statement. With the default, the busy event loop would keep it waiting
for longer than its disk does."""

_log = structlog.stdlib.get_logger(__name__)


def run(
    settings: Settings,
    wrap_store: wiring.StoreWrapper | None = None,
    roles: frozenset[Role] = ALL_ROLES,
    file: Path | None = None,
) -> int:
    """Run the service until a signal or a failure.

    Args:
        settings: all settings.
        wrap_store: wrapper of each store, for tests.
        roles: roles of this process.
        file: the configuration file, for the log.

    Returns:
        The exit code: 0 after a drain; 1 after a failure, which was logged, or if a call hangs.
    """
    logs.configure_logging(settings.telemetry.level, settings.telemetry.format)
    files = limits.raise_limit()
    if files < limits.LOW_LIMIT:
        _log.warning("low limit of open files", files=files, remedy="raise it (ulimit -n, LimitNOFILE=)")
    code = ENDED
    try:
        start_traces(settings)
        anyio.run(_run_service, settings, wrap_store, roles, file, backend_options={"use_uvloop": True})
    except Exception as error:  # noqa: BLE001 - the end of the process: whatever it was is logged
        for cause in leaf_errors(error):
            expected = isinstance(cause, SfnError)
            _log.error("service failed", error=str(cause), exc_info=None if expected else cause)
        code = FAILED
    finally:
        faulthandler.cancel_dump_traceback_later()
        tracing.stop_tracing()
    hanging = unfinished_calls(ABANDONED_CALLS_TIMEOUT)
    if hanging:
        _log.error("hanging calls abandoned", hanging=hanging, remedy="check whether a mount hangs")
        code = FAILED
    return code


def start_traces(settings: Settings) -> None:
    """Record traces if the settings, or OpenTelemetry's standard variables, name a collector.

    Raises:
        SfnError: the settings name one, and the packages for it are not installed.
    """
    options = settings.telemetry.tracing
    is_configured = options.endpoint is not None
    if not is_configured and not names_trace_collector():
        return
    try:
        tracing.start_tracing(options, VERSION)
    except SfnError as error:
        if is_configured:
            raise
        # Such variables are often set for every program of a cluster.
        _log.warning("traces not recorded", error=str(error))


async def _run_service(
    settings: Settings, wrap_store: wiring.StoreWrapper | None, roles: frozenset[Role], file: Path | None
) -> None:
    manager = ServiceManager(service_manager())
    # Receive signals before uvicorn starts: it would swallow them, or raise them again after its end.
    with anyio.open_signal_receiver(SIGTERM, SIGINT) as signals:
        failure = FatalErrorReport()
        # Bind first: a process that cannot listen must not open the inbox.
        with listening_socket(settings.listener.host, settings.listener.port) as listener, ExitStack() as others:
            manager.starting("opening the inbox")
            async with wiring.build_service(settings, failure.report, wrap_store, roles) as service:
                log_start(settings, listener, roles, file, isolated_container())
                drain = settings.listener.drain
                listeners = [
                    HttpListener(listener, service.application, service.events),
                    *_gateway_listeners(service, settings, others),
                ]
                runner = ServiceRunner(service, listeners, drain, failure, manager)
                await runner.run(_with_deadline(signals, drain))
        _log.info("ended")


async def _with_deadline(signals: AsyncIterator[Signals], drain: timedelta) -> AsyncIterator[Signals]:
    """Yield the signals; after the first one, make sure that the process ends in time.

    This is the last resort for a wait that lacks a deadline by mistake, or a system call that blocks the event loop. A
    thread that needs neither the loop nor the interpreter prints the stack of every thread and exits with 1. The inbox
    is safe, because it survives a crash at any instruction.
    """
    async for number in signals:
        faulthandler.dump_traceback_later(drain.total_seconds() + SHUTDOWN_TIMEOUT, exit=True)
        yield number


@dataclass(frozen=True, slots=True)
class HttpListener:
    """A socket and the application that it serves.

    Attributes:
        bound_socket: bound socket; the server closes it.
        application: application that answers requests.
        events: endpoint for events of that application; None without one.
    """

    bound_socket: socket.socket
    application: AsgiApplication
    events: EventsEndpoint | None = None


def _gateway_listeners(
    service: wiring.AssembledService, settings: Settings, opened: ExitStack
) -> Iterator[HttpListener]:
    """Bind the listeners of gateways with an address of their own."""
    for gateway in service.gateways.listeners:
        listener = opened.enter_context(listening_socket(gateway.host, gateway.port, f"gateway.{gateway.name}"))
        port = listener.getsockname()[1]
        _log.info(
            "gateway listening",
            gateway=gateway.name,
            url=f"{settings.listener.scheme}://{_authority(gateway.host)}:{port}",
            port=port,
        )
        yield HttpListener(listener, gateway.application)


class FatalErrorReport:
    """A report of a fatal error, from a request, which still has to answer, to the task group of the service."""

    def __init__(self) -> None:
        self._reported = anyio.Event()
        self._error: FatalError | None = None

    def report(self, error: FatalError) -> None:
        """Report an error that ends the process. Only the first one counts."""
        self._error = self._error or error
        self._reported.set()

    async def wait(self) -> None:
        """Wait for a report.

        Raises:
            FatalError: the reported error.
        """
        await self._reported.wait()
        if self._error is not None:
            raise self._error


class ServiceRunner:
    """The tasks of the service.

    Args:
        service: parts, opened.
        listeners: HTTP listeners; events arrive at the first.
        drain: maximum time for which a drain waits for running work.
        failure: fatal errors of requests.
        manager: service manager that started this process.
    """

    def __init__(
        self,
        service: wiring.AssembledService,
        listeners: Sequence[HttpListener],
        drain: timedelta,
        failure: FatalErrorReport,
        manager: ServiceManager = NO_MANAGER,
    ) -> None:
        self._service, self._drain, self._failure, self._manager = service, drain, failure, manager
        self._stop = anyio.Event()
        self._give_up_at = math.inf
        most = limits.connections_per_listener(len(listeners))
        self._servers = [
            (HttpServer(listener.application, service.certificate, most, listener.events), listener.bound_socket)
            for listener in listeners
        ]

    async def run(self, signals: AsyncIterator[Signals]) -> None:
        """Run until a signal, and through the drain that follows.

        Raises:
            ExceptionGroup: a task failed; the others were cancelled.
        """
        try:
            await self._run(signals)
        finally:
            for task in self._service.gateways.shutdown_tasks:
                await task()

    async def _run(self, signals: AsyncIterator[Signals]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._handle_signals, signals)
            tasks.start_soon(self._failure.wait)
            tasks.start_soon(self._service.run_maintenance)
            for file in self._service.token_files:
                tasks.start_soon(file.watch)
            for task in self._service.gateways.background_tasks:
                tasks.start_soon(task)
            tasks.start_soon(self._request_first_sweeps)
            tasks.start_soon(self._become_ready)
            tasks.start_soon(self._manager.keep_alive)
            async with anyio.create_task_group() as serving:
                for server, listener in self._servers:
                    serving.start_soon(self._listen, server, listener)
                for source in self._service.pull_sources:
                    serving.start_soon(source.run, self._stop)
                await (self._service.worker.run(self._stop) if self._service.runs_worker else self._stop.wait())
                # Stop the servers last, so that requests during the drain get an answer, not a refused connection.
                seconds_left = self._give_up_at - anyio.current_time()
                for server, _ in self._servers:
                    server.config.timeout_graceful_shutdown = max(1, math.ceil(seconds_left))
                    server.stop()
            tasks.cancel_scope.cancel()

    async def _handle_signals(self, signals: AsyncIterator[Signals]) -> None:
        async for number in signals:
            if self._stop.is_set():
                _log.warning("ending at once", signal=number.name)
                os._exit(FAILED)
            _log.info("draining", signal=number.name, seconds=self._drain.total_seconds())
            self._give_up_at = anyio.current_time() + self._drain.total_seconds()
            seconds = self._drain.total_seconds()
            longest = self._drain + timedelta(seconds=SHUTDOWN_TIMEOUT)
            self._manager.stopping(f"draining for at most {seconds:g} s after {number.name}", longest)
            self._service.readiness.drain()
            for server, _ in self._servers:
                server.drain()
            self._stop.set()

    async def _listen(self, server: HttpServer, listener: socket.socket) -> None:
        await server.serve(sockets=[listener])
        if not self._stop.is_set():
            raise FatalError("listener", expected="a server that runs until a signal", found="a server that ended")

    async def _become_ready(self) -> None:
        for server, _ in self._servers:
            await server.up.wait()
        _tune_interpreter()
        self._service.readiness.clear_reason(wiring.STARTING)
        self._manager.ready("ready")
        _log.info("ready")

    async def _request_first_sweeps(self) -> None:
        """Schedule a sweep of each catalog, which finds the commits made while the service was down."""
        while self._service.first_sweeps:
            try:
                await self._service.inbox.put(self._service.first_sweeps)
            except ExternalError as error:
                _log.warning("first sweep not scheduled", error=str(error))
                await anyio.sleep(error.retry_after or _SWEEP_RETRY_SECONDS)
            else:
                return


def _tune_interpreter() -> None:
    """Let threads change more often, and make garbage collections rarer and shorter: they took a tenth of the time of
    ingesting events.

    The existing objects live as long as the process, so they are exempt. An event creates some fifty objects, which
    reference counting frees once the event is on disk.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    sys.setswitchinterval(_SWITCH_INTERVAL)


def log_start(
    settings: Settings,
    listener: socket.socket,
    roles: frozenset[Role] = ALL_ROLES,
    file: Path | None = None,
    container: str | None = None,
) -> None:
    """Log what starts, and warn of settings that may be mistakes.

    Args:
        settings: all settings.
        listener: bound socket of the listener.
        roles: roles of this process.
        file: the configuration file.
        container: the sign of a container with its own network; None outside one.
    """
    port = listener.getsockname()[1]
    address = _authority(settings.listener.host)
    scheme = settings.listener.scheme
    if scheme == "http" and not settings.listener.is_loopback:
        _log.warning("without TLS: tokens travel in clear text unless a proxy with TLS is in front", remedy=_TLS)
    if all(one.scheme is AuthScheme.NONE for one in settings.senders.values()):
        _log.warning("no token is configured: listening on loopback only")
    for setting in loopback_hosts(settings, roles) if container else ():
        _log.warning(UNREACHABLE, setting=setting, container=container, remedy=reachable_remedy(setting))
    if settings.lacks_stores:
        _log.warning("no store is configured: no table can be published", remedy="set [stores.NAME] prefix")
    for name, meant in mistaken_variables():
        _log.warning("environment variable is not a setting", variable=name, remedy=f"did you mean {meant}?")
    _log.info(
        "started",
        version=VERSION,
        config=str(file.resolve()) if file is not None else None,
        url=f"{scheme}://{address}:{port}",
        port=port,
        roles=sorted(roles),
        catalogs=sorted(settings.catalogs),
        gateways=sorted(settings.gateway),
        pull=sorted(settings.pull),
        admin="on" if settings.admin.is_enabled and Role.ADMIN in roles else "off",
    )


def _authority(host: str) -> str:
    return host if ":" not in host or host.startswith("[") else f"[{host}]"


def leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in a group; the error itself if it is not a group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaf_errors(inner)
    else:
        yield error
