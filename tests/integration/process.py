"""`sfn serve` as a process, its configuration in a folder."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.integration.lake import Lake
from tests.integration.waiting import until

TOKEN = "a-token-for-tests"  # noqa: S105 - it opens nothing
SFN = ("sfn",)
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
"""Of a catalog that nobody can ask."""


@dataclass(slots=True)
class Daemon:
    """One process.

    Attributes:
        process: as it was started.
        log: its standard error.
        client: asks it, with the token.
    """

    process: subprocess.Popen[bytes]
    log: Path
    client: httpx.AsyncClient

    async def tell(self, name: str, **more: object) -> httpx.Response:
        """Post an event of a table of the namespace `sales`."""
        return await self.client.post("/v1/events", json={"namespace": ["sales"], "name": name, **more})

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, within: float = 20.0) -> int:
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
    configuration: Path, log: Path, environ: Mapping[str, str] | None = None, command: Sequence[str] = SFN
) -> subprocess.Popen[bytes]:
    """Start a process; its output goes to a file."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SFN_")}  # noqa: TID251 - a child's
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *command, "serve", "--config", configuration],
            env={**inherited, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


@asynccontextmanager
async def serving(
    configuration: Path,
    environ: Mapping[str, str] | None = None,
    command: Sequence[str] = SFN,
    trust: ssl.SSLContext | None = None,
) -> AsyncGenerator[Daemon]:
    """A process that is ready; killed in the end if it still runs.

    Args:
        command: a module, and arguments of its own.
        trust: for TLS.
    """
    log = configuration.with_name(f"{len(list(configuration.parent.glob('*.log')))}.log")
    process = start(configuration, log, environ, command)
    try:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        verify = True if trust is None else trust
        async with httpx.AsyncClient(headers=headers, timeout=10.0, trust_env=False, verify=verify) as client:
            daemon = Daemon(process, log, client)
            listening = await daemon.until_logged("listening")
            await daemon.until_logged("ready")
            client.base_url = httpx.URL(listening["url"])
            yield daemon
    finally:
        process.kill()
        process.wait()


async def refused(configuration: Path, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The exit code and the output of a process that does not start."""
    log = configuration.with_name("refused.log")
    process = start(configuration, log, environ)
    try:
        await until(lambda: process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    return process.returncode, log.read_text()
