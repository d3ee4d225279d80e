"""The service as a process of its own: configured, started, told of events, killed, put on a small disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import psutil
import pytest

import sfn
from sfn.demo.environment import GuardedProcess
from tests.faults.lake import NAMESPACE, Lake
from tests.servers.process import child_with
from tests.support.processes import ForkedModule, is_measured

TOKEN = "a-sender-of-the-tests"  # noqa: S105 - it opens nothing
OPERATOR = "an-operator-of-the-tests"
CATALOG = "lake"
ROOT = Path(__file__).parents[2]
SOURCE = Path(sfn.__file__).parents[1]
PATIENCE = 30.0
_TICK = 0.05

_CONFIGURATION = """\
[listener]
port = 0
drain = "5s"

[inbox]
url = "{inbox}"

[worker]
lease = "{lease}"

[sweep]
every = "{sweep}"

[catalogs.{catalog}]
uri = "{uri}"
replica_lag = "{lag}"
absence_delay = "2s"
min_publish_interval = "{interval}"

[stores.warehouse]
{store}

[senders.tests]
secrets = {{ main = "{token}" }}
{sender}

[admin]
token = "{operator}"

[telemetry]
format = "json"

{more}
"""

FILLING = 16_000
MOST_EVENTS = 2_000
_SMALL_DISK = 'mount -t tmpfs -o size=6m tmpfs "$0" && head -c 3M /dev/zero > "$0/ballast" && exec "$@"'


@dataclass(frozen=True, slots=True)
class Setting:
    """How one service is configured.

    Attributes:
        folder: for configuration, inbox and log; made if missing.
        uri: the catalog's.
        warehouse: the directory that it may write to.
        module: what is started with `python -m`, with the arguments of `sfn`; a word of its own may stand before them.
        source: where `sfn` is imported from, None for the installed one.
        launcher: a command that starts the command that follows it.
        is_fork: fork a process that has imported everything, unless there is a launcher. That saves the imports.
        inbox: the inbox's file, None for one in the folder.
        url: the inbox's, if it is no file.
        lease: how long a claim lasts unless it is renewed.
        roles: what the process does of the service; "" for all.
        store: what the settings say of the store; "" for the warehouse's directory.
        sender: what else the settings say of the sender.
        more: what else the settings say.
    """

    folder: Path
    uri: str
    warehouse: Path
    sweep: str = "off"
    lag: str = "0s"
    interval: str = "100ms"
    module: str = "sfn"
    source: Path | None = None
    launcher: Sequence[str] = ()
    is_fork: bool = True
    inbox: Path | None = None
    url: str = ""
    lease: str = "30s"
    roles: str = ""
    store: str = ""
    sender: str = ""
    more: str = ""

    @property
    def database(self) -> Path:
        """The inbox's file."""
        return self.inbox or self.folder / "inbox.db"

    def write(self) -> Path:
        """Write the configuration; its file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "sfn.toml"
        file.write_text(
            _CONFIGURATION.format(
                inbox=self.url or f"sqlite:///{self.database}",
                lease=self.lease,
                sweep=self.sweep,
                catalog=CATALOG,
                uri=self.uri,
                lag=self.lag,
                interval=self.interval,
                store=self.store or f'prefix = "{self.warehouse.as_uri()}"',
                token=TOKEN,
                sender=self.sender,
                operator=OPERATOR,
                more=self.more,
            )
        )
        return file


@dataclass
class Service:
    """A process of the service.

    Attributes:
        log: its output, all of its lives.
        url: where it listens, "" until it is ready.
    """

    setting: Setting
    log: Path
    process: GuardedProcess | ForkedModule
    session: aiohttp.ClientSession
    url: str = ""
    _from: int = field(default=0)

    async def post(self, name: str, event_id: str | None = None, **more: object) -> int:
        """Post an event about a table; the answer's status."""
        return (await self.tell(name, event_id, **more)).status

    async def tell(self, name: str, event_id: str | None = None, **more: object) -> aiohttp.ClientResponse:
        """Post an event about a table; the answer, which has been read."""
        event = {"namespace": [NAMESPACE], "name": name, "event_id": event_id, **more}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with self.session.post(f"{self.url}/v1/events", json=event, headers=headers) as answer:
            await answer.read()
            return answer

    async def commit(self, name: str, key: str = "") -> aiohttp.ClientResponse:
        """Commit to a table through the gateway; the answer, which has been read."""
        body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
        headers = {"Idempotency-Key": key} if key else {}
        async with self.session.post(self.gateway(name), json=body, headers=headers) as answer:
            await answer.read()
            return answer

    def gateway(self, name: str) -> str:
        """Where a table is, through the gateway."""
        return f"{self.url}/catalog/{CATALOG}/v1/namespaces/{NAMESPACE}/tables/{name}"

    async def get(self, path: str) -> int:
        """Ask for a path; the answer's status."""
        async with self.session.get(f"{self.url}{path}") as answer:
            return answer.status

    async def release(self) -> int:
        """Release the brake; how many tables it held."""
        headers = {"Authorization": f"Bearer {OPERATOR}"}
        path = f"{self.url}/admin/v1/drop-limits/{CATALOG}:release"
        async with self.session.post(path, headers=headers) as answer:
            answer.raise_for_status()
            return int((await answer.json())["released"])

    def records(self) -> Iterator[dict[str, Any]]:
        """The records that this life of it has logged."""
        return records(self.log, self._from)

    def child(self) -> psutil.Process:
        """The process itself, for what nobody else does to it."""
        if isinstance(self.process, ForkedModule):
            return psutil.Process(self.process.pid)
        return child_with(str(self.setting.folder / "sfn.toml"))

    def told(self, outcome: str) -> int:
        """How often it has logged an outcome."""
        return sum(record.get("outcome") == outcome for record in self.records())

    async def ready(self, within: float = PATIENCE) -> None:
        """Return once it takes events; fail if it ends or takes more seconds."""

        def address() -> str:
            assert self.process.status() is None, self.tail()
            events = {record.get("event"): record for record in self.records()}
            return str(events["started"]["url"]) if "ready" in events else ""

        self.url = await eventually(address, within)

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-4_000:]


@contextmanager
def started(setting: Setting, session: aiohttp.ClientSession) -> Iterator[Service]:
    """A process that may not be ready yet, killed in the end if it still runs."""
    configuration = setting.write()
    log = setting.folder / "service.log"
    log.touch()
    offset = log.stat().st_size
    roles = ["--roles", setting.roles] if setting.roles else []
    line = [*setting.module.split(), "serve", *roles, "--config", str(configuration)]
    environment = _environment(setting.source)
    process: GuardedProcess | ForkedModule
    if setting.is_fork and not setting.launcher and not is_measured(environment):
        process = ForkedModule(line, env=environment, log=log, source=setting.source)
    else:
        process = GuardedProcess([*setting.launcher, sys.executable, "-m", *line], env=environment, log=log)
    try:
        yield Service(setting, log, process, session, _from=offset)
    finally:
        process.kill()


@asynccontextmanager
async def running(setting: Setting) -> AsyncGenerator[Service]:
    """A ready service, killed in the end if it still runs."""
    # Less than the service keeps it open: after a catalog was started nobody had time to see that it was closed.
    connector = aiohttp.TCPConnector(keepalive_timeout=2)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=20)) as session:
        with started(setting, session) as service:
            await service.ready()
            yield service


def patched(folder: Path, patch: Path) -> Path:
    """The source of a service that a patch was applied to, in a folder."""
    source = folder / "service"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    with patch.open() as text:
        subprocess.run(["patch", "-p1"], cwd=folder, stdin=text, check=True)  # noqa: S607
    return source


def records(log: Path, start: int = 0) -> Iterator[dict[str, Any]]:
    """What a log has from a place on."""
    with log.open("rb") as file:
        file.seek(start)
        for line in file:
            if line.startswith(b"{") and line.endswith(b"}\n"):
                yield json.loads(line)


async def ended(service: Service) -> int:
    """What a process ends with that is expected to end by itself."""
    return int(await eventually(lambda: str(status) if (status := service.process.status()) is not None else ""))


async def eventually(look: Callable[[], Any], within: float = PATIENCE) -> Any:  # noqa: ANN401 - whatever is looked for
    """The first true thing that a look gives; fails, with the last that it gave, after some seconds."""
    deadline = anyio.current_time() + within
    began = anyio.current_time()
    while not (found := look()):
        now = anyio.current_time()
        assert now < deadline, f"not within {within:g} s: {found!r}"
        # Half of the time at least is left to what is looked for: some looks read a thousand files.
        await anyio.sleep(max(_TICK, now - began))
        began = anyio.current_time()
    return found


def _environment(source: Path | None) -> Mapping[str, str]:
    # Unmeasured by coverage, which makes it three times as slow: what comes of it is timed here.
    others = ("SFN_", "COVERAGE_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(others)}  # noqa: TID251 - a child's
    paths = [str(path) for path in (source, ROOT, ours.get("PYTHONPATH")) if path]
    return {**ours, "PYTHONPATH": os.pathsep.join(paths)}


def small(disk: Path) -> Sequence[str]:
    """A launcher whose process sees a small disk in a folder, half of it a file `ballast`; the folder is made."""
    disk.mkdir()
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", _SMALL_DISK, str(disk)]


async def filled(service: Service, lake: Lake, filling: int = FILLING) -> tuple[set[str], int | None]:
    """Post events until one is refused: the ids of those that were not, and the refusal's status.

    The status is None if the connection ended without an answer.

    Args:
        filling: bytes of an event that mean nothing.
    """
    taken: set[str] = set()
    for number in range(MOST_EVENTS):
        lake.tables["orders"].commit()
        event_id = f"e{filling}-{number}"
        status: int | None
        try:
            status = await service.post("orders", event_id, filling="x" * filling)
        except aiohttp.ClientConnectionError:
            status = None
        if status != 202:
            return taken, status
        taken.add(event_id)
    pytest.fail(f"{MOST_EVENTS} events were taken")


def mounted_alone(folder: Path) -> Sequence[str]:
    """A launcher whose process sees a folder as a mount of its own, which `remount` changes."""
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount --bind "$0" "$0" && exec "$@"', str(folder)]


def remount(service: Service, folder: Path, mode: str) -> None:
    """Mount a folder of `mounted_alone` anew, `ro` or `rw`, under the feet of the process."""
    enter = ["nsenter", "--target", str(service.child().pid), "--user", "--mount", "--preserve-credentials"]
    subprocess.run([*enter, "mount", "-o", f"remount,bind,{mode}", str(folder)], check=True)
