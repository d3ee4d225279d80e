"""The service as one process: siblings in one task group, of which none outlives another.

    receiver   answers requests
    sources    fetch events
    worker     turns hints into files
    tending    keeps the inbox small
    watching   reads files of tokens again when they change
    signals    SIGTERM or SIGINT: drain and end with 0; a second one: end at once with 1

A drain: `/readyz` and events are answered with 503, nothing more is fetched or claimed, sweeps are given back, events
and tables in hand may end for `listener.drain`, the rest is given back, requests are answered, the inbox is closed.
Each of these waits has a deadline of its own. What the system still does not let go of then, such as a call on a mount
whose server is gone, is told of and left behind.
"""

from __future__ import annotations

import faulthandler
import gc
import math
import os
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from signal import SIGINT, SIGTERM, Signals
from typing import Final

import anyio
import structlog

from sfn import limits
from sfn.app import wiring
from sfn.concurrency import unfinished_calls
from sfn.errors import ExternalError, FatalError, SfnError
from sfn.http.app import AsgiApplication
from sfn.http.secrets import AuthScheme
from sfn.http.server import HttpServer, listening_socket
from sfn.settings.model import ALL_ROLES, Role, Settings
from sfn.telemetry import logs

ENDED, FAILED = 0, 1
SHUTDOWN_TIMEOUT: Final = 90.0
"""Seconds from the end of a drain within which every wait that has a deadline has ended."""
ABANDONED_CALLS_TIMEOUT: Final = 1.0
"""Seconds that calls have in the end which were given up a moment ago."""

_SWEEP_RETRY_SECONDS: Final = 1.0
_TLS: Final = "set listener.tls_certificate_file and listener.tls_key_file"
_GC_THRESHOLD: Final = 20_000
"""Objects that were made and not let go of; by default 700."""

_log = structlog.stdlib.get_logger(__name__)


def run(settings: Settings, wrap_store: wiring.StoreWrapper | None = None, roles: frozenset[Role] = ALL_ROLES) -> int:
    """Run the service until it is told to end or a part of it fails.

    Args:
        wrap_store: put around each store.
        roles: what this process does of it.

    Returns:
        The exit code: 0 after a drain, 1 after a failure, which was logged, or where a call hangs.
    """
    logs.configure_logging(settings.telemetry.level, settings.telemetry.format)
    files = limits.raise_limit()
    if files < limits.LOW_LIMIT:
        _log.warning("low limit of open files", files=files, remedy="raise it (ulimit -n, LimitNOFILE=)")
    code = ENDED
    try:
        anyio.run(_run_service, settings, wrap_store, roles, backend_options={"use_uvloop": True})
    except Exception as error:  # noqa: BLE001 - the end of the process: whatever it was is logged
        for cause in leaf_errors(error):
            expected = isinstance(cause, SfnError)
            _log.error("the service ends", error=str(cause), exc_info=None if expected else cause)
        code = FAILED
    finally:
        faulthandler.cancel_dump_traceback_later()
    hanging = unfinished_calls(ABANDONED_CALLS_TIMEOUT)
    if hanging:
        _log.error("the service ends without what hangs", hanging=hanging, remedy="see whether a mount hangs")
        code = FAILED
    return code


async def _run_service(settings: Settings, wrap_store: wiring.StoreWrapper | None, roles: frozenset[Role]) -> None:
    # Before all else: uvicorn would swallow the signals, or raise them again once it has ended.
    with anyio.open_signal_receiver(SIGTERM, SIGINT) as signals:
        failure = FatalErrorReport()
        # Who can't listen leaves the inbox alone.
        with listening_socket(settings.listener.host, settings.listener.port) as listener, ExitStack() as others:
            async with wiring.build_service(settings, failure.report, wrap_store, roles) as service:
                log_listening(settings, listener, roles)
                drain = settings.listener.drain
                listeners = [
                    HttpListener(listener, service.application),
                    *_gateway_listeners(service, settings, others),
                ]
                await ServiceRunner(service, listeners, drain, failure).run(_with_deadline(signals, drain))
        _log.info("ended")


async def _with_deadline(signals: AsyncIterator[Signals], drain: timedelta) -> AsyncIterator[Signals]:
    """The signals; from the first one on the process ends in time, whatever else does not.

    The very last resort, for a wait that has no deadline by a defect, or a system call that blocks the loop from then
    on. It prints where every thread is and ends the process with 1, from a thread that needs neither the loop nor the
    interpreter. The inbox is in no danger: it survives a death at any instruction.
    """
    async for number in signals:
        faulthandler.dump_traceback_later(drain.total_seconds() + SHUTDOWN_TIMEOUT, exit=True)
        yield number


@dataclass(frozen=True, slots=True)
class HttpListener:
    """Where requests come in.

    Attributes:
        bound_socket: a bound socket; its server closes it.
        application: what answers there.
    """

    bound_socket: socket.socket
    application: AsgiApplication


def _gateway_listeners(
    service: wiring.AssembledService, settings: Settings, opened: ExitStack
) -> Iterator[HttpListener]:
    """The gateways' own listeners."""
    for gateway in service.gateways.listeners:
        listener = opened.enter_context(listening_socket(gateway.host, gateway.port, f"gateway.{gateway.name}"))
        port = listener.getsockname()[1]
        _log.info(
            "gateway",
            name=gateway.name,
            url=f"{settings.listener.scheme}://{_authority(gateway.host)}:{port}",
            port=port,
        )
        yield HttpListener(listener, gateway.application)


class FatalErrorReport:
    """Carries an error from a request, whose own task must answer, to the daemon's task group."""

    def __init__(self) -> None:
        self._reported = anyio.Event()
        self._error: FatalError | None = None

    def report(self, error: FatalError) -> None:
        """The process can't go on."""
        self._error = self._error or error
        self._reported.set()

    async def wait(self) -> None:
        """Wait for it.

        Raises:
            Broken: what was told.
        """
        await self._reported.wait()
        if self._error is not None:
            raise self._error


class ServiceRunner:
    """The siblings.

    Args:
        service: the parts, opened.
        doors: where requests come in, events through the first.
        drain: how long a stop waits for what runs.
        failure: what a request found broken.
    """

    def __init__(
        self,
        service: wiring.AssembledService,
        listeners: Sequence[HttpListener],
        drain: timedelta,
        failure: FatalErrorReport,
    ) -> None:
        self._service, self._drain, self._failure = service, drain, failure
        self._stop = anyio.Event()
        self._give_up_at = math.inf
        most = limits.connections_per_listener(len(listeners))
        self._servers = [
            (HttpServer(listener.application, service.certificate, most), listener.bound_socket)
            for listener in listeners
        ]

    async def run(self, signals: AsyncIterator[Signals]) -> None:
        """Until a signal and the drain that follows it.

        Raises:
            ExceptionGroup: a sibling failed; the others were cancelled.
        """
        try:
            await self._run(signals)
        finally:
            for last in self._service.gateways.shutdown_tasks:
                await last()

    async def _run(self, signals: AsyncIterator[Signals]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._handle_signals, signals)
            tasks.start_soon(self._failure.wait)
            tasks.start_soon(self._service.run_maintenance)
            for file in self._service.token_files:
                tasks.start_soon(file.watch)
            for chore in self._service.gateways.background_tasks:
                tasks.start_soon(chore)
            tasks.start_soon(self._request_first_sweeps)
            tasks.start_soon(self._become_ready)
            async with anyio.create_task_group() as serving:
                for server, listener in self._servers:
                    serving.start_soon(self._listen, server, listener)
                for source in self._service.pull_sources:
                    serving.start_soon(source.run, self._stop)
                await (self._service.worker.run(self._stop) if self._service.runs_worker else self._stop.wait())
                # Only now: whoever asks during the drain is told of it, not refused.
                seconds_left = self._give_up_at - anyio.current_time()
                for server, _ in self._servers:
                    server.config.timeout_graceful_shutdown = max(1, math.ceil(seconds_left))
                    server.should_exit = True
            tasks.cancel_scope.cancel()

    async def _handle_signals(self, signals: AsyncIterator[Signals]) -> None:
        async for number in signals:
            if self._stop.is_set():
                _log.warning("ending at once", signal=number.name)
                os._exit(FAILED)
            _log.info("draining", signal=number.name, seconds=self._drain.total_seconds())
            self._give_up_at = anyio.current_time() + self._drain.total_seconds()
            self._service.readiness.drain()
            for server, _ in self._servers:
                server.drain()
            self._stop.set()

    async def _listen(self, server: HttpServer, listener: socket.socket) -> None:
        await server.serve(sockets=[listener])
        if not self._stop.is_set():
            raise FatalError("listener", expected="a server that runs until it is told to end", found="one that ended")

    async def _become_ready(self) -> None:
        for server, _ in self._servers:
            await server.up.wait()
        _tune_garbage_collector()
        self._service.readiness.clear_reason(wiring.STARTING)
        _log.info("ready")

    async def _request_first_sweeps(self) -> None:
        """What happened while nobody listened is found by a walk over each catalog."""
        while self._service.first_sweeps:
            try:
                await self._service.inbox.put(self._service.first_sweeps)
            except ExternalError as trouble:
                _log.warning("no sweep yet", error=str(trouble))
                await anyio.sleep(trouble.retry_after or _SWEEP_RETRY_SECONDS)
            else:
                return


def _tune_garbage_collector() -> None:
    """Have the garbage collector look at less, and less often: it took a tenth of the time of taking events.

    What was made until now stays as long as the process, and is looked at no more. An event makes some fifty objects
    that are gone, without its help, once it is on disk.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)


def log_listening(settings: Settings, listener: socket.socket, roles: frozenset[Role] = ALL_ROLES) -> None:
    """Log where it listens, and what an operator may not have meant."""
    port = listener.getsockname()[1]
    address = _authority(settings.listener.host)
    scheme = settings.listener.scheme
    if scheme == "http" and not settings.listener.is_loopback:
        _log.warning("without TLS: tokens travel in clear text unless a proxy with TLS is in front", remedy=_TLS)
    if all(one.scheme is AuthScheme.NONE for one in settings.senders.values()):
        _log.warning("no token is configured: listening on loopback only")
    if settings.lacks_stores:
        _log.warning("no store is configured: no table can be published", remedy="set [stores.NAME] prefix")
    parts = {} if roles == ALL_ROLES else {"roles": sorted(roles)}
    _log.info("listening", url=f"{scheme}://{address}:{port}", port=port, catalogs=sorted(settings.catalogs), **parts)


def _authority(host: str) -> str:
    return host if ":" not in host or host.startswith("[") else f"[{host}]"


def leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """What a group of errors is made of; an error that is no group itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaf_errors(inner)
    else:
        yield error
