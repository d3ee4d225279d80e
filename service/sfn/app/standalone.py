"""A facade without the service: in a process of its own, or in a thread of another program."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals
from socket import socket
from typing import Any, Final

import anyio
import structlog

from sfn import limits
from sfn.app.catalogs import DISTRIBUTION
from sfn.app.endpoints import FacadeFolders, facade_over_folders
from sfn.app.service import leaf_errors
from sfn.errors import SfnError
from sfn.facade.app import FACADE_PATH, FacadeApplication, StandaloneProbes, mount_facade
from sfn.http.secrets import PartyTokens, WatchedTokenFile, bearer_token, index_of_presented
from sfn.http.server import Certificate, HttpServer, listening_socket
from sfn.settings.environment import UNREACHABLE, isolated_container, reachable_remedy
from sfn.settings.sections import is_loopback
from sfn.telemetry import logs
from sfn.telemetry.logs import Level
from sfn.telemetry.metrics import FacadeMetrics, new_registry

ENDED, FAILED = 0, 1
LOOPBACK: Final = "127.0.0.1"

_DRAIN_SECONDS: Final = 10
_START_TIMEOUT: Final = 30.0
"""Seconds."""

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StandaloneListener:
    """The address of a standalone facade, and its access.

    Attributes:
        host: address to bind.
        port: port to bind; 0 for any free port.
        token_file: file with tokens of readers, one a line; None to let everyone read.
        certificate, key: PEM files; None for HTTP without TLS.
    """

    host: str = LOOPBACK
    port: int = 8087
    token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def scheme(self) -> str:
        """Scheme of the facade's URL."""
        return "http" if self.certificate is None else "https"


def run(folders: FacadeFolders, listener: StandaloneListener, level: Level) -> int:
    """Serve folders until a signal.

    Args:
        folders: folders to serve.
        listener: address and access.
        level: minimum severity of log records.

    Returns:
        The exit code: 0 after a signal, 1 after a failure, which was logged.
    """
    logs.configure_logging(level)
    limits.raise_limit()
    try:
        anyio.run(_serve, folders, listener, backend_options={"use_uvloop": True})
    except Exception as error:  # noqa: BLE001 - the end of the process: whatever it was is logged
        for cause in leaf_errors(error):
            _log.error("facade failed", error=str(cause), exc_info=None if isinstance(cause, SfnError) else cause)
        return FAILED
    return ENDED


async def _serve(folders: FacadeFolders, address: StandaloneListener) -> None:
    # Receive signals before uvicorn starts, which would swallow them.
    with (
        anyio.open_signal_receiver(SIGTERM, SIGINT) as signals,
        listening_socket(address.host, address.port, "facade", "set --host and --port") as listener,
    ):
        file = None if address.token_file is None else WatchedTokenFile(address.token_file)
        tokens = PartyTokens({}, file)
        admits = None if file is None else partial(_is_valid_token, tokens)
        pair = (
            None
            if address.certificate is None or address.key is None
            else Certificate(address.certificate, address.key)
        )
        facade = build_standalone(replace(folders, admits=admits))
        server = HttpServer(facade.application, pair)
        _log_listening(address, listener.getsockname()[1], folders.roots)
        async with anyio.create_task_group() as tasks:
            if file is not None:
                tasks.start_soon(file.watch)
            tasks.start_soon(_handle_signals, signals, server)
            tasks.start_soon(facade.prepare)
            await server.serve(sockets=[listener])
            tasks.cancel_scope.cancel()
        _log.info("ended")


def _log_listening(address: StandaloneListener, port: int, roots: Sequence[str]) -> None:
    """Log the address, and warn of options that may be mistakes."""
    if is_loopback(address.host):
        if container := isolated_container():
            _log.warning(UNREACHABLE, container=container, remedy=reachable_remedy("--host"))
    elif address.token_file is None:
        _log.warning("no token is configured: everyone who reaches the facade may read", remedy="set --token-file")
    elif address.certificate is None:
        _log.warning("without TLS: tokens travel in clear text unless a proxy with TLS is in front")
    host = f"[{address.host}]" if ":" in address.host and not address.host.startswith("[") else address.host
    _log.info("listening", url=f"{address.scheme}://{host}:{port}{FACADE_PATH}", port=port, roots=list(roots))


async def _handle_signals(signals: AsyncIterator[Signals], server: HttpServer) -> None:
    async for number in signals:
        if server.should_exit:
            os._exit(FAILED)
        _log.info("draining", signal=number.name, seconds=_DRAIN_SECONDS)
        server.drain()
        server.config.timeout_graceful_shutdown = _DRAIN_SECONDS
        server.stop()


@dataclass(frozen=True, slots=True)
class StandaloneFacade:
    """The parts of a standalone facade.

    Attributes:
        application: facade, probes and metrics.
        prepare: background task that makes the facade ready, as `/readyz` reports.
    """

    application: FacadeApplication
    prepare: Callable[[], Coroutine[Any, Any, None]]


def build_standalone(folders: FacadeFolders) -> StandaloneFacade:
    """Build the parts of a standalone facade."""
    registry = new_registry(version(DISTRIBUTION))
    facade = facade_over_folders(folders, FacadeMetrics(registry).count_answer)
    process = StandaloneProbes(registry, f"the catalog is at {FACADE_PATH}")
    return StandaloneFacade(mount_facade(facade.facade, process), partial(process.prepare, facade.ready))


def _is_valid_token(tokens: PartyTokens, authorization: bytes | None) -> bool:
    return index_of_presented(tokens.active(), bearer_token(authorization)) is not None


class EmbeddedFacade:
    """A facade in a thread of this process, on a free loopback port, with a random token.

    Args:
        folders: folders to serve.

    Attributes:
        url: URL of the catalog.
        token: bearer token of readers.
    """

    def __init__(self, folders: FacadeFolders) -> None:
        self.token = secrets.token_urlsafe(32)
        tokens = PartyTokens({"own": self.token})
        self._facade = build_standalone(replace(folders, admits=partial(_is_valid_token, tokens)))
        self._up: Future[HttpServer] = Future()
        with listening_socket(LOOPBACK, 0, "facade") as listener:
            self.url = f"http://{LOOPBACK}:{listener.getsockname()[1]}{FACADE_PATH}"
            self._thread = threading.Thread(target=self._run, args=(listener.dup(),), name="sfn-facade", daemon=True)
            self._thread.start()
        self._server = self._up.result(_START_TIMEOUT)

    def stop(self) -> None:
        """Stop the server after it answered the running requests."""
        self._server.config.timeout_graceful_shutdown = _DRAIN_SECONDS
        # `stop` is for the thread of the server only.
        self._server.should_exit = True
        self._thread.join()

    def _run(self, listener: socket) -> None:
        try:
            anyio.run(self._serve, listener)
        except BaseException as error:  # noqa: BLE001 - raised in `__init__` during the start, logged later
            if self._up.done():
                _log.exception("facade failed")
            else:
                self._up.set_exception(error)

    async def _serve(self, listener: socket) -> None:
        server = HttpServer(self._facade.application)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            await server.up.wait()
            self._up.set_result(server)
