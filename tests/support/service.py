"""`sfn serve` as a process, its configuration in a folder, and a REST catalog whose tables lie in that folder."""

from __future__ import annotations

import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx
from aiohttp import web

import sfn
from sfn.errors import Unreadable
from tests.support.processes import Running, launched, until
from tests.support.rest_catalog import Runner

_BEGAN = 1_700_000_000_000
_ERROR = {"message": "told so", "type": "NoSuchTableException", "code": 404}


@dataclass(slots=True)
class Lake:
    """The catalog and the folder.

    Attributes:
        folder: where tables lie.
        delay: seconds that each answer about a table takes.
        loads: how often each table was asked for.
        properties: of every table.
        port: where it listens, when it does.
    """

    folder: Path
    delay: float = 0.0
    loads: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    port: int = 0
    _tables: dict[str, list[str]] = field(default_factory=dict)
    _uuids: dict[str, str] = field(default_factory=dict)
    _runner: Runner | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def directory(self, name: str) -> Path:
        """Where a table of the namespace `sales` lies."""
        return self.folder / "warehouse" / "sales" / name

    def commit(self, name: str) -> str:
        """One more version of a table; the first creates it. Its pointer."""
        metadata = self.directory(name) / "metadata"
        metadata.mkdir(parents=True, exist_ok=True)
        versions = self._tables.setdefault(name, [])
        uuid = self._uuids.setdefault(name, str(uuid4()))
        file = metadata / f"{len(versions):05d}-{uuid4()}.metadata.json"
        file.write_text(json.dumps({"format-version": 2, "table-uuid": uuid, "location": self.location(name)}))
        versions.append(file.as_uri())
        return file.as_uri()

    def drop(self, name: str) -> None:
        """Forget a table; its files stay."""
        del self._tables[name]

    def published(self, name: str) -> str | None:
        """What a reader of the table's directory is told; None for a refusal."""
        try:
            return sfn.resolve(self.directory(name), ("sales", name)).metadata_location
        except Unreadable:
            return None

    async def until_published(self, *names: str, within: float = 20.0) -> None:
        """Wait until the files of these tables say what the catalog says."""
        await until(lambda: all(self.published(name) == self._tables[name][-1] for name in names), within)

    async def open(self) -> None:
        """Answer; on the same port as before, if there was one."""
        self._runner = Runner(self._answer)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Refuse connections."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.path.strip("/").split("/")[1:]:
            case ["config"]:
                return _reply({"defaults": {}, "overrides": {}})
            case ["namespaces"]:
                parent = "parent" in request.query
                return _reply({"namespaces": [] if parent else [["sales"]]})
            case ["namespaces", "sales", "tables"]:
                return _reply({"identifiers": [{"namespace": ["sales"], "name": name} for name in self._tables]})
            case ["namespaces", "sales", "tables", name]:
                self.loads.append(name)
                await anyio.sleep(self.delay)
                return self._table(name)
            case _:
                return _reply({"error": _ERROR}, 404)

    def location(self, name: str) -> str:
        """Where the catalog says that a table lies."""
        return self.directory(name).as_uri()

    def _table(self, name: str) -> web.StreamResponse:
        versions = self._tables.get(name)
        if not versions:
            return _reply({"error": _ERROR}, 404)
        metadata = {
            "format-version": 2,
            "table-uuid": self._uuids[name],
            "location": self.location(name),
            "last-updated-ms": _BEGAN + len(versions),
            "metadata-log": [
                {"timestamp-ms": _BEGAN + number, "metadata-file": file}
                for number, file in enumerate(versions[:-1], start=1)
            ],
            "properties": self.properties,
        }
        return _reply({"metadata-location": versions[-1], "metadata": metadata})


@asynccontextmanager
async def lake(folder: Path) -> AsyncGenerator[Lake]:
    """A catalog that answers."""
    made = Lake(folder)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


def _reply(body: object, status: int = 200) -> web.StreamResponse:
    return web.json_response(body, status=status)


SFN = ("sfn",)
TOKEN = "a-token-for-tests"  # noqa: S105 - it opens nothing
CONFIGURATION = """\
[listener]
port = 0
drain = "{drain}"
[inbox]
url = "sqlite:///{folder}/inbox/inbox.db"
[catalogs.prod]
uri = "{uri}"
token = "catalog-{token}"
replica_lag = "0"
min_publish_interval = "0"
[stores.lake]
prefix = "{folder}/warehouse"
[senders.etl]
secrets = {{ main = "{token}" }}
catalog = "prod"
"""
TOLD = """\
[listener]
port = 0
[inbox]
url = "sqlite:///{folder}/inbox/inbox.db"
[catalogs.hive]
type = "events"
catalog_id = "hive-prod"
allowed_locations = ["{folder}/warehouse"]
replica_lag = "0"
min_publish_interval = "0"
[stores.lake]
prefix = "{folder}/warehouse"
[senders.etl]
scheme = "{scheme}"
secrets = {{ main = "{secret}" }}
"""
"""Of an event-only catalog."""


@dataclass(slots=True)
class Daemon:
    """One process.

    Attributes:
        process: as it was started.
        log: its standard error.
        client: asks it, with the token.
    """

    process: Running
    log: Path
    client: httpx.AsyncClient

    async def tell(self, name: str, **more: object) -> httpx.Response:
        """Post an event of a table of the namespace `sales`."""
        return await self.client.post("/v1/events", json={"namespace": ["sales"], "name": name, **more})

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, within: float = 20.0) -> int | None:
        """Its exit code."""
        await until(lambda: self.process.poll() is not None, within)
        return self.process.returncode

    def records(self, event: str | None = None, **fields: object) -> list[dict[str, Any]]:
        """The log so far, of which every line must be a JSON object."""
        records = [json.loads(line) for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [
            record
            for record in records
            if (event is None or record["event"] == event)
            and all(record.get(key) == value for key, value in fields.items())
        ]

    async def until_logged(self, event: str, **fields: object) -> dict[str, Any]:
        """Wait for a record; the first one."""
        await until(lambda: self.records(event, **fields) or self.process.poll() is not None)
        found = self.records(event, **fields)
        assert found, self.log.read_text()
        return found[0]


def configure(lake: Lake, more: str = "", drain: str = "10s") -> Path:
    """Write a configuration for a catalog; `more` goes to its end."""
    (lake.folder / "warehouse").mkdir(exist_ok=True)
    file = lake.folder / "sfn.toml"
    text = CONFIGURATION.format(folder=lake.folder, uri=lake.uri, token=TOKEN, drain=drain)
    file.write_text(f"{text}\n{more}")
    return file


def start(
    configuration: Path,
    log: Path,
    environ: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
    launcher: Sequence[str] = (),
) -> Running:
    """Start a service; its output goes to a file. It is a fork, unless a command or other packages are named."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SFN_")}  # noqa: TID251 - a child's
    environment = {**inherited, **(environ or {})}
    prefix = (*launcher, sys.executable, "-m", *(command or SFN))
    is_fork = command is None and not launcher and "PYTHONPATH" not in (environ or {})
    return launched(["serve", "--config", configuration], environment, log, prefix, is_fork=is_fork)


@asynccontextmanager
async def serving(
    configuration: Path,
    environ: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
    trust: ssl.SSLContext | None = None,
    launcher: Sequence[str] = (),
) -> AsyncGenerator[Daemon]:
    """A process that is ready; killed in the end if it still runs.

    Args:
        command: a module with its own arguments; `SFN` starts the service as users do.
        trust: for TLS.
        launcher: a command that starts the command that follows it.
    """
    log = configuration.with_name(f"{len(list(configuration.parent.glob('*.log')))}.log")
    process = start(configuration, log, environ, command, launcher)
    try:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        verify = True if trust is None else trust
        async with httpx.AsyncClient(headers=headers, timeout=10.0, trust_env=False, verify=verify) as client:
            daemon = Daemon(process, log, client)
            listening = await daemon.until_logged("started")
            await daemon.until_logged("ready")
            client.base_url = httpx.URL(listening["url"])
            yield daemon
    finally:
        process.kill()
        process.wait()


async def refused(configuration: Path, environ: Mapping[str, str] | None = None) -> tuple[int | None, str]:
    """The exit code and the output of a process that does not start."""
    log = configuration.with_name("refused.log")
    process = start(configuration, log, environ)
    try:
        await until(lambda: process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    return process.returncode, log.read_text()
