"""The processes that are measured, one each: the service, ASGI applications under uvicorn, and a fast REST catalog.

The catalog is the ASGI application `application`, for a process of its own.

    GET  /v1/config, /v1/namespaces/bench/tables/NAME     as Iceberg's REST API has them, the latter with an entity tag
    PUT  /commits/NAME                                    a commit: the answer is the table's new pointer
    GET  /loads                                           how often a table was asked for

Every name is a table. `SFN_BENCH_WAREHOUSE` is the directory that they lie in; with `SFN_BENCH_BUSY` set, each request
for a table finds one more commit of somebody else. Metadata has `SFN_BENCH_SNAPSHOTS` older snapshots.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import NAMESPACE_URL, uuid5

import psutil

from sfn.demo.environment import GuardedProcess
from tests.bench.clients import TOKEN, Wire, wire
from tests.bench.record import ROOT, Unmeasured
from tests.servers.process import child_with, free_port
from tests.support.processes import ForkedModule

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
every = "{sweep}"

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

WAREHOUSE: Final = "SFN_BENCH_WAREHOUSE"
BUSY: Final = "SFN_BENCH_BUSY"
SNAPSHOTS: Final = "SFN_BENCH_SNAPSHOTS"
FIRST_VERSION: Final = 100_000
"""Numbers of versions begin above those that events tell of."""

_LOG_KEPT: Final = 100
"""Entries of a metadata log, which is full from the beginning (Iceberg's `write.metadata.previous-versions-max`)."""

are_forks = False
"""Processes are forks of one that has imported everything: for tests of the benchmarks, which need no true figures."""

Process: TypeAlias = GuardedProcess | ForkedModule
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


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
        sweep: `sweep.every`.
        launcher: a command that starts the command that follows it.
        url: the inbox's, if it is no file.
        more: further sections of the configuration.
    """

    folder: Path
    uri: str
    warehouse: Path
    interval: str = "1s"
    retention: str = "72h"
    sweep: str = "off"
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
            sweep=self.sweep,
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
        process = _itself(setting, started)
        try:
            yield Service(records(log, "started")[0]["url"], process, log)
            process.terminate()
            _ended(started, log)
        finally:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _itself(setting: Setting, started: Process) -> psutil.Process:
    """The one that has the inbox: what was started may be its launcher, which a signal would end alone."""
    if isinstance(started, ForkedModule):
        return psutil.Process(started.pid)
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
def launched(command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> Iterator[Process]:
    """A process of the tests' own, killed in the end; what it prints goes into its log.

    It is a fork where `are_forks` says so, and runs a Python module.
    """
    log.unlink(missing_ok=True)
    # Unmeasured by coverage, and configured by nothing but what is written here.
    others = ("SFN_", "COVERAGE_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(others)}  # noqa: TID251 - a child's
    paths = os.pathsep.join(path for path in (str(ROOT), ours.get("PYTHONPATH")) if path)
    environment = {**ours, "PYTHONPATH": paths, **(environ or {})}
    process: Process
    if are_forks and command[:2] == [sys.executable, "-m"]:
        log.touch()
        process = ForkedModule(command[2:], env=environment, log=log)
    else:
        process = GuardedProcess(command, env=environment, log=log)
    try:
        yield process
    finally:
        process.kill()


def started_at(port: int, started: Process, log: Path) -> None:
    """Wait until a process listens.

    Raises:
        Unmeasured: it does not.
    """
    _started(lambda: _listens(port), started, log)


def _started(holds: Callable[[], bool], process: Process, log: Path) -> None:
    give_up_at = time.monotonic() + _WITHIN
    while not holds():
        if process.status() is not None or time.monotonic() > give_up_at:
            raise Unmeasured(f"a server did not start: {_tail(log)}")
        time.sleep(_TICK)


def _ended(process: Process, log: Path) -> None:
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


class Tables:
    """What the catalog knows.

    Args:
        warehouse: the directory that tables lie in.
        busy: each look finds one more commit.
        snapshots: that each table has beside its current one.
    """

    def __init__(self, warehouse: Path, *, busy: bool, snapshots: int = 0) -> None:
        self._warehouse, self._busy = warehouse, busy
        self._older = [_snapshot(number) for number in range(snapshots)]
        self._versions: defaultdict[str, int] = defaultdict(lambda: FIRST_VERSION)
        self.loads = 0

    def commit(self, name: str) -> str:
        """One more version of a table; its pointer."""
        self._versions[name] += 1
        return self._pointer(name, self._versions[name])

    def load(self, name: str, known: str | None) -> tuple[str, bytes | None]:
        """A table's entity tag and what a load is answered; None where the tag was known."""
        self.loads += 1
        if self._busy:
            self.commit(name)
        version = self._versions[name]
        tag = f'"{version}"'
        return tag, None if known == tag else json.dumps(self._table(name, version)).encode()

    def _table(self, name: str, version: int) -> dict[str, Any]:
        log = range(version - _LOG_KEPT, version)
        return {
            "metadata-location": self._pointer(name, version),
            "metadata": {
                "format-version": 2,
                "table-uuid": str(uuid5(NAMESPACE_URL, name)),
                "location": self._directory(name),
                "last-updated-ms": 1_700_000_000_000 + version,
                "current-snapshot-id": version,
                "snapshots": [
                    {"snapshot-id": version, "timestamp-ms": 1_700_000_000_000 + version},
                    *self._older,
                ],
                "refs": {"main": {"snapshot-id": version, "type": "branch"}},
                "metadata-log": [
                    {"metadata-file": self._pointer(name, number), "timestamp-ms": 1_700_000_000_000 + number}
                    for number in log
                ],
            },
        }

    def _directory(self, name: str) -> str:
        return (self._warehouse / NAMESPACE / name).as_uri()

    def _pointer(self, name: str, version: int) -> str:
        return f"{self._directory(name)}/metadata/{version:05d}-9c12d441-03fe-4693-9a96-a0705ddf69c1.metadata.json"


def _snapshot(number: int) -> dict[str, Any]:
    """A snapshot as Spark's appends leave it."""
    counts = (
        *("added-data-files", "added-records", "added-files-size", "changed-partition-count", "total-records"),
        *("total-files-size", "total-data-files", "total-delete-files", "total-position-deletes"),
    )
    return {
        "sequence-number": number,
        "snapshot-id": 3_051_729_675_574_597_004 + number,
        "parent-snapshot-id": 3_051_729_675_574_597_003 + number,
        "timestamp-ms": 1_690_000_000_000 + number,
        "summary": {"operation": "append", "spark.app.id": f"local-{number}", **dict.fromkeys(counts, str(number))},
        "manifest-list": f"s3://lake/warehouse/bench/t/metadata/snap-{3_051_729_675_574_597_004 + number}-1.avro",
        "schema-id": 0,
    }


@dataclass(frozen=True, slots=True)
class Catalog:
    """The catalog's process, and one connection to it.

    Attributes:
        uri: where it is.
        wire: asks it.
    """

    uri: str
    wire: Wire

    def commit(self, name: str) -> str:
        """One more version of a table; its pointer."""
        return str(json.loads(self.wire.ask("PUT", f"/commits/{name}").body))

    def loads(self) -> int:
        """How often it was asked for a table."""
        return int(self.wire.ask("GET", "/loads").body)

    def size(self, name: str) -> int:
        """Bytes of its answer about a table."""
        return len(self.wire.ask("GET", f"/v1/namespaces/{NAMESPACE}/tables/{name}").body)


@contextmanager
def catalog(folder: Path, warehouse: Path, *, busy: bool = False, snapshots: int = 0) -> Iterator[Catalog]:
    """The catalog as a process; `busy` and `snapshots` as of `Tables`."""
    environ = {WAREHOUSE: str(warehouse), SNAPSHOTS: str(snapshots), **({BUSY: "1"} if busy else {})}
    with uvicorn("tests.bench.servers:application", folder, environ) as uri, wire(uri) as connected:
        yield Catalog(uri, connected)


_told: Final = os.environ  # noqa: TID251 - its parent set it
_tables: Final = Tables(Path(_told.get(WAREHOUSE, "/")), busy=BUSY in _told, snapshots=int(_told.get(SNAPSHOTS, "0")))


async def application(scope: MutableMapping[str, Any], _receive: Receive, send: Send) -> None:
    """Answer one request."""
    headers = dict(scope["headers"])
    match scope["method"], scope["path"].strip("/").split("/"):
        case "GET", ["v1", "config"]:
            await _answer(send, 200, b'{"defaults":{},"overrides":{}}')
        case "GET", ["v1", "namespaces", _, "tables", name]:
            known = headers.get(b"if-none-match")
            tag, body = _tables.load(name, None if known is None else known.decode())
            await _answer(send, 304 if body is None else 200, body or b"", tag)
        case "PUT", ["commits", name]:
            await _answer(send, 200, json.dumps(_tables.commit(name)).encode())
        case "GET", ["loads"]:
            await _answer(send, 200, b"%d" % _tables.loads)
        case _:
            await _answer(send, 404, b'{"error":{"message":"no","type":"NoSuchTableException","code":404}}')


async def _answer(send: Send, status: int, body: bytes, tag: str | None = None) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if tag is not None:
        headers.append((b"etag", tag.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
