"""What a file for each commit costs: publishes with the naming `ordinal` beside such with `identifier`."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Final

import anyio

from sfn.catalogs.memory import MemoryCatalog
from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import Capacity, StoredObject
from sfn.inbox.memory import MemoryInbox
from sfn.publish.policy import Policy
from sfn.publish.publish import Ports, publish
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, Naming
from sfn.storage import Deleted, Guarantees, ObjectStore, PreconditionFailed
from sfn.storage.local import LocalStore
from tests.bench.record import Figure, Run, Unmeasured
from tests.promises.inboxes import TERMS, HandClock

COMMITS: Final = 150
"""Of each run: more than the files of commits that stay, so that some are deleted too."""
KEEP: Final = 100
_SLOTS: Final = Capacity(total=1, live=1, sweeps=0)


@dataclass(slots=True)
class Counted:
    """A store whose requests are counted, by verb.

    Attributes:
        store: does the work.
        requests: so far.
    """

    store: ObjectStore
    requests: Counter[str] = field(default_factory=Counter)

    def store_for(self, _location: str) -> Counted:
        return self

    async def read(self, key: str) -> StoredObject | None:
        self.requests["read"] += 1
        return await self.store.read(key)

    async def read_range(self, key: str, start: int, most: int) -> bytes | None:
        self.requests["part"] += 1
        return await self.store.read_range(key, start, most)

    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        self.requests["write"] += 1
        return await self.store.write(key, body, replacing)

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        self.requests["delete"] += 1
        return await self.store.delete(key, expected)

    async def list(self, prefix: str, limit: int) -> list[str]:
        self.requests["list"] += 1
        return await self.store.list(prefix, limit)

    async def probe(self, key: str) -> Guarantees:
        return await self.store.probe(key)


class Line:
    """One table, its files called by one naming, on the local store."""

    def __init__(self, folder: Path, naming: Naming, keep_for: timedelta = timedelta(0)) -> None:
        self.clock, self.name = HandClock(), TableIdentifier("prod", ("n",), "orders")
        self.location = (folder / naming.setting).as_uri()
        (folder / naming.setting / "metadata").mkdir(parents=True)
        self.catalog, self.inbox = MemoryCatalog("prod"), MemoryInbox(TERMS, self.clock)
        self.store = Counted(LocalStore())
        self.policy = Policy(
            "c1", replica_lag=timedelta(0), is_swept=False, naming=naming, keep_commits=KEEP, keep_commits_for=keep_for
        )
        self.catalog.create_namespace("n")

    def commit(self) -> str:
        """One more version, and its metadata file: where that is."""
        table = self.catalog.current(self.name)
        made = self.catalog.create(self.name, self.location) if table is None else self.catalog.commit(self.name)
        Path(made.metadata_location.removeprefix("file://")).write_text(json.dumps({"table-uuid": made.uuid}))
        return made.metadata_location

    async def publish(self, commits: int = 1) -> float:
        """Some commits that are told of as one, and the seconds until all files say so."""
        pointer = [self.commit() for _ in range(commits)][-1]
        self.clock.turn(2)
        await self.inbox.put([Notification(self.name, min_metadata_location=pointer)])
        (claim,) = (await self.inbox.claim(_SLOTS)).jobs
        ports = Ports(self.inbox, self.inbox, self.catalog, self.store, self.clock)
        began = time.perf_counter()
        outcome = await publish(claim, ports, self.policy, jitter=0)
        took = time.perf_counter() - began
        await self.inbox.settle(claim, outcome, self.clock.now())
        return took


def measure(runs: int, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Publish commits of two tables in turn, and count what the store is asked for.

    Raises:
        Unmeasured: a publish settled nothing.
    """
    times: list[Run] = []
    requests: list[Run] = []
    asked: Mapping[str, int] = {}
    for number in range(runs):
        say(f"publish: run {number + 1}/{runs}")
        lines = [Line(folder / str(number), naming) for naming in (ORDINAL, IDENTIFIER)]
        took = anyio.run(_in_turn, lines)
        times.append(Run(*(1000 * median(seconds) for seconds in took)))
        asked = lines[0].store.requests
        requests.append(Run(*(line.store.requests.total() / COMMITS for line in lines)))
        if not all(line.store.requests["write"] >= COMMITS for line in lines):
            raise Unmeasured(f"fewer writes than commits: {asked}")
    beside = "the same commits with the naming identifier"
    verbs = ", ".join(f"{count / COMMITS:.2f} {verb}" for verb, count in sorted(asked.items()))
    note = f"{COMMITS} commits of one table, the newest {KEEP} kept"
    return [
        Figure(name="ordinal_publish_p50", unit="ms", runs=times, compared_with=beside, note=note),
        Figure(name="ordinal_publish_requests", unit="requests", runs=requests, compared_with=beside, note=verbs),
    ]


async def _in_turn(lines: list[Line]) -> list[list[float]]:
    took: list[list[float]] = [[] for _ in lines]
    for _ in range(COMMITS):
        for line, seconds in zip(lines, took, strict=True):
            seconds.append(await line.publish())
    return took
