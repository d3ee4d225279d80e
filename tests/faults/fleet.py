"""Processes on one inbox in PostgreSQL, under load, and what became of the events that they took."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anyio
from anyio.abc import TaskGroup

from tests.faults.inspection import Observer
from tests.faults.lake import Lake, serving
from tests.faults.proxy import Answer, Proxy
from tests.faults.senders import Senders
from tests.faults.service import Service, Setting, eventually, records, started
from tests.servers.object_stores import REGION, ROOT, S3
from tests.support.shared_inboxes import stored


def rounds(default: int) -> int:
    """How many there are of what a test does again and again."""
    return int(os.environ.get("SFN_FAULT_ROUNDS", str(default)))  # noqa: TID251 - the test's own setting


ROUNDS = rounds(3)
"""Rounds of a test; most tests inject about one fault a second in each. `make faults` runs sixty."""
TABLES = 12
STARTED_WITHIN = 90.0
"""Seconds: several processes start at once, and again and again."""
HEALED_WITHIN = 25.0
ANSWERED_WITHIN = 3.0
"""Seconds that a sender waits for an answer."""
_LOOKED_AFTER = 0.05


@dataclass
class Replica:
    """One of them, life after life.

    Attributes:
        service: the process, once it takes events.
        lives: how often it was started.
    """

    setting: Setting
    session: aiohttp.ClientSession
    service: Service | None = None
    lives: int = 0
    _life: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def live(self) -> None:
        """For ever: started as soon as it was killed. It must not end by itself."""
        while True:
            self.lives += 1
            with started(self.setting, self.session) as process, anyio.CancelScope() as self._life:
                await process.ready(STARTED_WITHIN)
                self.service = process
                await _ended(process)
                raise AssertionError(process.tail())

    def kill(self) -> None:
        """As `kill -9` does; also while it still starts."""
        self.service = None
        self._life.cancel()

    def told(self, event: str) -> list[dict[str, Any]]:
        """Records of all its lives."""
        log = self.setting.folder / "service.log"
        return [record for record in records(log) if record["event"] == event] if log.exists() else []


@dataclass
class Figures:
    """What it came to.

    Attributes:
        injected: faults by kind.
        acknowledged: events answered with 202.
        lost: those of them that are not in the log.
        refused, unanswered: requests answered with 503, or not at all.
        steps: how often a file was seen to go on.
        moved_back: how often to go back.
        letters: dead letters by reason.
        attempts: the most of one row.
        fenced: leases that turned out to be lost.
        healed_in: seconds from the last word of the senders until no file was wrong.
    """

    injected: dict[str, int]
    acknowledged: int
    lost: int
    refused: int
    unanswered: int
    steps: int
    moved_back: int
    letters: dict[str, int]
    attempts: int
    fenced: int
    healed_in: float


@dataclass
class Fleet:
    """The processes, the catalog, those who tell, and who looks on.

    Attributes:
        setting: makes that of one more process in a folder.
        dsn: where the inbox is, for whoever looks into it.
    """

    lake: Lake
    session: aiohttp.ClientSession
    setting: Callable[[str], Setting]
    dsn: str
    tasks: TaskGroup
    replicas: list[Replica] = field(default_factory=list)
    _told_off: anyio.Event = field(default_factory=anyio.Event)
    _silent: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.observer = Observer(self.lake)
        self.senders = Senders(self.lake, self.up, random.Random(1))

    def start(self) -> Replica:
        """One more process."""
        replica = Replica(self.setting(f"r{len(self.replicas)}"), self.session)
        self.replicas.append(replica)
        self.tasks.start_soon(replica.live)
        return replica

    def up(self) -> list[Service]:
        """Those that take events."""
        return [replica.service for replica in self.replicas if replica.service is not None]

    def told(self, event: str) -> list[dict[str, Any]]:
        """Records of all of them."""
        return [record for replica in self.replicas for record in replica.told(event)]

    async def load(self) -> None:
        """Senders at work until `ended_well`."""
        await self.senders.run(self._told_off)
        self._silent.set()

    async def until_taken(self, more: int) -> None:
        """Return once so many more events were acknowledged than by now."""
        before = len(self.senders.acknowledged)
        await eventually(lambda: len(self.senders.acknowledged) >= before + more)

    async def ended_well(self, **injected: int) -> Figures:
        """Let the senders end, and everything they told become files; then see whether all is as it was promised.

        Args:
            injected: faults by kind.
        """
        self._told_off.set()
        with anyio.fail_after(HEALED_WITHIN):
            await self._silent.wait()
        began = anyio.current_time()
        await eventually(lambda: not self.lake.wrong(), within=HEALED_WITHIN)
        healed_in = round(anyio.current_time() - began, 2)
        self.observer.look()
        logged = set(await stored(self.dsn, "SELECT event_id FROM sfn.event WHERE event_id IS NOT NULL"))
        figures = Figures(
            injected=injected,
            acknowledged=len(self.senders.acknowledged),
            lost=len(self.senders.acknowledged - logged),
            refused=self.senders.refused,
            unanswered=self.senders.unanswered,
            steps=self.observer.steps,
            moved_back=len(self.observer.back),
            letters=await letters(self.dsn),
            attempts=max(record["attempt"] for record in self.told("settled")),
            fenced=len(self.told("lease lost")),
            healed_in=healed_in,
        )
        print(asdict(figures))
        assert (figures.lost, self.observer.back, figures.letters) == (0, [], {}), figures
        assert self.told("unexpected error") == []
        return figures


@dataclass(frozen=True, slots=True)
class Shelf:
    """A store that keeps its objects in a directory of this machine.

    Attributes:
        warehouse: the directory that tables lie in.
        root: its URL in the store.
        store: as of `Setting`.
    """

    warehouse: Path
    root: str
    store: str


@asynccontextmanager
async def fleet(
    folder: Path,
    url: str,
    dsn: str,
    *,
    replicas: int = 2,
    tables: int = TABLES,
    lease: str = "30s",
    module: str = "sfn",
    shelf: Shelf | None = None,
) -> AsyncGenerator[Fleet]:
    """Processes that take events, under load from the moment on when the first of them does.

    Args:
        url: where the inbox is for them.
        dsn: where it is for whoever looks into it.
        replicas, tables: how many.
        lease, module: as of `Setting`.
        shelf: where the tables lie; None: in a directory.
    """
    shelf = shelf or Shelf(folder / "warehouse", "", "")
    lake = Lake(shelf.warehouse, shelf.root, delay=0.01)
    for number in range(tables):
        lake.create(f"t{number}")

    def made(name: str) -> Setting:
        return Setting(folder / name, lake.uri, lake.warehouse, url=url, lease=lease, module=module, store=shelf.store)

    connector = aiohttp.TCPConnector(keepalive_timeout=2)
    timeout = aiohttp.ClientTimeout(total=ANSWERED_WITHIN)
    async with (
        serving(lake),
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        anyio.create_task_group() as tasks,
    ):
        running = Fleet(lake, session, made, dsn, tasks)
        for _ in range(replicas):
            running.start()
        tasks.start_soon(running.load)
        tasks.start_soon(running.observer.watch)
        await eventually(running.up, within=STARTED_WITHIN)
        yield running
        tasks.cancel_scope.cancel()


async def letters(dsn: str) -> dict[str, int]:
    """How many rows are dead, by reason."""
    reasons = await stored(dsn, "SELECT reason FROM sfn.dead_letter WHERE status = 'open'")
    return {reason: reasons.count(reason) for reason in reasons}


async def _ended(service: Service) -> None:
    while service.process.status() is None:  # noqa: ASYNC110 - no event crosses processes
        await anyio.sleep(_LOOKED_AFTER)


def shelved(s3: S3, proxy: Proxy) -> Shelf:
    """A new bucket: the service comes to it through the proxy, and whoever looks on through the server's folder."""
    bucket = s3.bucket()
    root = f"s3://{bucket}/wh"
    store = (
        f'prefix = "{root}"\nendpoint = "{proxy.url}"\nregion = "{REGION}"\n'
        f'access_key_id = "{ROOT.access}"\nsecret_access_key = "{ROOT.secret}"'
    )
    return Shelf(s3.data / bucket / "wh", root, store)


def refusal(status: int, code: str) -> Answer:
    """What S3 answers that does nothing."""
    return Answer(status, f"<Error><Code>{code}</Code></Error>".encode())
