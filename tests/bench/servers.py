"""The processes that are measured: one each, all under uvicorn with uvloop and httptools, and without an access log."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from sfn.demo.environment import GuardedProcess
from tests.bench.record import ROOT, Unmeasured
from tests.bench.wrk import TOKEN
from tests.servers.process import child_with, free_port

PATH: Final = "/v1/events"
CATALOG: Final = "lake"
NAMESPACE: Final = "bench"
OPERATOR: Final = "an-operator-of-the-benchmarks"

_WITHIN: Final = 90.0
"""Seconds that a process has to start, and to end."""
_TICK: Final = 0.02

_UVICORN: Final = (
    *("-m", "uvicorn", "--loop", "uvloop", "--http", "httptools", "--ws", "none", "--lifespan", "off"),
    *("--no-access-log", "--no-proxy-headers", "--no-server-header", "--log-level", "warning"),
    *("--timeout-keep-alive", "60"),
)
"""What `sfn.http.server` sets too."""

_CONFIGURATION: Final = """\
[listener]
port = 0

[inbox]
url = "{inbox}"
event_retention = "{retention}"

[sweep]
every = "off"

[catalogs.{catalog}]
uri = "{uri}"
min_publish_interval = "{interval}"

[stores.warehouse]
prefix = "{warehouse}"

[senders.bench]
secrets = {{ main = "{token}" }}

[admin]
token = "{operator}"

[telemetry]
format = "json"
"""


@dataclass(frozen=True, slots=True)
class Service:
    """A process of the service.

    Attributes:
        url: where it listens.
        process: it, and not what launched it.
        log: its output.
    """

    url: str
    process: psutil.Process
    log: Path


@dataclass(frozen=True, slots=True)
class Setting:
    """How the service is configured; all else is by default.

    Attributes:
        folder: for configuration, inbox and log; made if missing.
        uri: the catalog's.
        warehouse: the directory that tables lie in.
        interval: `min_publish_interval`.
        retention: `event_retention`.
        launcher: a command that starts the command that follows it.
        url: the inbox's, if it is no file.
        more: further sections of the configuration.
    """

    folder: Path
    uri: str
    warehouse: Path
    interval: str = "1s"
    retention: str = "72h"
    launcher: Sequence[str] = ()
    url: str = ""
    more: str = ""

    @property
    def inbox(self) -> Path:
        """The inbox's file."""
        return self.folder / "inbox.db"

    def write(self) -> Path:
        """Write the configuration; its file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "sfn.toml"
        text = _CONFIGURATION.format(
            inbox=self.url or f"sqlite:///{self.inbox}",
            catalog=CATALOG,
            uri=self.uri,
            warehouse=self.warehouse,
            interval=self.interval,
            retention=self.retention,
            token=TOKEN,
            operator=OPERATOR,
        )
        file.write_text(f"{text}\n{self.more}")
        return file


@contextmanager
def service(setting: Setting) -> Iterator[Service]:
    """`sfn serve`, ready; drained in the end.

    Raises:
        Unmeasured: it did not become ready, or did not end well.
    """
    log = setting.folder / "service.log"
    command = [*setting.launcher, sys.executable, "-m", "sfn", "serve", "--config", str(setting.write())]
    with launched(command, log) as started:
        _started(lambda: bool(records(log, "ready")), started, log)
        process = _itself(setting)
        try:
            yield Service(records(log, "listening")[0]["url"], process, log)
            process.terminate()
            _ended(started, log)
        finally:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _itself(setting: Setting) -> psutil.Process:
    """The one that has the inbox: what was started may be its launcher, which a signal would end alone."""
    if not setting.url:
        return psutil.Process(int(setting.inbox.with_name("inbox.db.lock").read_text()))
    return child_with(str(setting.folder / "sfn.toml"))


@contextmanager
def uvicorn(application: str, folder: Path, environ: Mapping[str, str] | None = None) -> Iterator[str]:
    """Where an ASGI application answers, which is named as `module:name`."""
    folder.mkdir(parents=True, exist_ok=True)
    log, port = folder / "uvicorn.log", free_port()
    command = [sys.executable, *_UVICORN, "--port", str(port), application]
    with launched(command, log, environ) as started:
        started_at(port, started, log)
        yield f"http://127.0.0.1:{port}"


@contextmanager
def facade(root: Path, folder: Path) -> Iterator[str]:
    """Where `sfn facade` answers, which shows the tables below a root.

    Raises:
        Unmeasured: it did not start, or did not end well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "facade.log"
    with launched([sys.executable, "-m", "sfn", "facade", "--port", "0", str(root)], log) as process:
        _started(lambda: bool(records(log, "listening")), process, log)
        yield records(log, "listening")[0]["url"]
        process.terminate(_WITHIN)
        _ended(process, log)


@contextmanager
def refusing() -> Iterator[str]:
    """The address of a catalog that refuses every connection for as long as the block runs."""
    # Bound, and never listening: nobody else can come to listen there.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def records(log: Path, event: str | None = None) -> list[dict[str, Any]]:
    """The service's log records, of one event or of all."""
    lines = log.read_bytes().splitlines(keepends=True)
    found = (json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"}\n"))
    return [record for record in found if event is None or record["event"] == event]


@contextmanager
def launched(command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> Iterator[GuardedProcess]:
    """A process of the tests' own, killed in the end; what it prints goes into its log."""
    log.unlink(missing_ok=True)
    # Unmeasured by coverage, and configured by nothing but what is written here.
    others = ("SFN_", "COVERAGE_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(others)}  # noqa: TID251 - a child's
    paths = os.pathsep.join(path for path in (str(ROOT), ours.get("PYTHONPATH")) if path)
    process = GuardedProcess(command, env={**ours, "PYTHONPATH": paths, **(environ or {})}, log=log)
    try:
        yield process
    finally:
        process.kill()


def started_at(port: int, started: GuardedProcess, log: Path) -> None:
    """Wait until a process listens.

    Raises:
        Unmeasured: it does not.
    """
    _started(lambda: _listens(port), started, log)


def _started(holds: Callable[[], bool], process: GuardedProcess, log: Path) -> None:
    give_up_at = time.monotonic() + _WITHIN
    while not holds():
        if process.status() is not None or time.monotonic() > give_up_at:
            raise Unmeasured(f"a server did not start: {_tail(log)}")
        time.sleep(_TICK)


def _ended(process: GuardedProcess, log: Path) -> None:
    give_up_at = time.monotonic() + _WITHIN
    while process.status() is None and time.monotonic() < give_up_at:
        time.sleep(_TICK)
    if process.status() != 0:
        raise Unmeasured(f"the service ended with {process.status()}: {_tail(log)}")


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2_000:]
