"""What publishing costs: with many ordinal files, with many events of one table, and how full a folder gets."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from sfn.publish.policy import Policy
from sfn.publish.publish import Ports, publish
from sfn.sfnfile.naming import EXTENSION, IDENTIFIER, ORDINAL, Naming
from sfn.storage import Deleted, Guarantees, ObjectStore, PreconditionFailed
from sfn.storage.local import LocalStore
from tests.bench import servers
from tests.bench.accept import create, event, event_sender, sfn_file
from tests.bench.clients import TABLES
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.bench.servers import Setting, records, service
from tests.promises.inboxes import TERMS
from tests.support.clock import HandClock
from tests.support.memory_inbox import MemoryInbox

COMMITS: Final = 150
"""Of each run: more than the files of commits that stay, so that some are deleted too."""
KEEP: Final = 100
_SLOTS: Final = Capacity(total=1, live=1, sweeps=0)

COALESCING_GOAL: Final = Goal("value", "<=", 1)
EVENTS: Final = 10_000
TABLE: Final = "orders"

BURST: Final = 100_000
"""Events, of all tables in turn."""
BURST_GOAL: Final = Goal("value", "<=", 2)
_BURST_REQUEST: Final = 100
"""Events of a request."""
_BURST_TABLE: Final = 10
"""Events of a table at least."""

_POLLED_EVERY: Final = 0.000_2
_QUIET: Final = 3.0
"""Seconds without a write after which nothing more is expected: the breaker's longest pause three times."""
_PATIENCE: Final = 60.0

FILLING_COMMITS: Final = 10_000
PAGE: Final = 1_000
"""Keys that a page of a listing has on S3; on Azure and GCS it is more."""
AT_ONCE: Final = 100
"""Commits that are told of as one: as many as a metadata-log has unless a table says otherwise."""


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


def measure_coalescing(events: int, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Take the store's folder away, commit and tell of it so many times, and bring the folder back.

    Raises:
        Unmeasured: the file does not say the newest pointer in the end.
    """
    warehouse = folder / "warehouse"
    create(warehouse, TABLE)
    file = sfn_file(warehouse, TABLE)
    with (
        servers.catalog(folder / "catalog", warehouse) as asked,
        service(Setting(folder / "sfn", asked.uri, warehouse)) as running,
        event_sender(running.url) as sender,
    ):
        sender.tell(event(TABLE, asked.commit(TABLE)))
        until(file.exists, f"{file} is not written")
        away = warehouse.rename(folder / "away")
        pointer = ""
        for number in range(events):
            pointer = asked.commit(TABLE)
            sender.tell(event(TABLE, pointer))
            if (number + 1) % 1_000 == 0:
                say(f"coalescing: {number + 1}/{events} events while the store is away")
        until(lambda: bool(records(running.log, "store unreachable")), "the store was to be away, and is not")
        with _watched(away / file.relative_to(warehouse), file) as seen:
            away.rename(warehouse)
            until(lambda: says(file, pointer), f"{file} does not say {pointer}")
            until(lambda: time.monotonic() - seen.last > _QUIET, "the files are written without end")
    note = f"for {events} commits of one table while the store was away"
    return [
        Figure(
            name="coalesced_writes",
            unit="writes",
            runs=[Run(float(len(seen.contents)))],
            goal=COALESCING_GOAL,
            short=events < EVENTS,
            note=note,
        )
    ]


def measure_burst(events: int, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Send events as fast as they are taken, each table's newest pointer last, and wait for all files.

    The events are of 1,000 tables; of fewer tables if there are few events.

    Raises:
        Unmeasured: a file does not say its table's pointer in the end.
    """
    warehouse, names = (
        folder / "warehouse",
        [f"t{number}" for number in range(max(1, min(TABLES, events // _BURST_TABLE)))],
    )
    create(warehouse, *names)
    with (
        servers.catalog(folder / "catalog", warehouse) as asked,
        service(Setting(folder / "sfn", asked.uri, warehouse)) as running,
        event_sender(running.url) as sender,
    ):
        pointers = {name: asked.commit(name) for name in names}
        began = time.monotonic()
        for first in range(0, events, _BURST_REQUEST):
            some = [names[number % len(names)] for number in range(first, first + _BURST_REQUEST)]
            sender.tell(b"[" + b",".join(event(name, pointers[name]) for name in some) + b"]")
        accepted = time.monotonic() - began
        say(f"burst: {events} events accepted in {accepted:.1f} s")
        for name, pointer in pointers.items():
            until(lambda: says(sfn_file(warehouse, name), pointer), f"the file of {name} does not say {pointer}")  # noqa: B023 - called at once
        right = time.monotonic() - began
    published = Counter(record["table"] for record in records(running.log, "settled") if record["files"])
    say(f"burst: all files right after {right:.1f} s")
    times = f"accepted in {accepted:.1f} s, all files right in {right:.1f} s"
    note = f"of one table, for {events} events of {len(names)} tables: {times}"
    most = Run(float(max(published.values())))
    return [
        Figure(name="burst_publishes", unit="publishes", runs=[most], goal=BURST_GOAL, short=events < BURST, note=note)
    ]


@dataclass(slots=True)
class _Seen:
    """What was found at a file's place.

    Attributes:
        before: the file that was there.
        contents: those that came after it: each has an inode and a time of its own.
        last: when the newest came, by the monotonic clock.
    """

    before: tuple[int, int]
    contents: set[tuple[int, int]] = field(default_factory=set)
    last: float = field(default_factory=time.monotonic)

    def look(self, file: Path) -> None:
        """See what is there."""
        found = _identity(file)
        if found is not None and found != self.before and found not in self.contents:
            self.contents.add(found)
            self.last = time.monotonic()


@contextmanager
def _watched(known: Path, file: Path) -> Iterator[_Seen]:
    """Every content that a file has while the block runs: it is looked at thousands of times a second."""
    before = _identity(known)
    if before is None:
        raise Unmeasured(f"{known} is not there")
    seen, over = _Seen(before), threading.Event()

    def watch() -> None:
        while not over.wait(_POLLED_EVERY):
            seen.look(file)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def says(file: Path, pointer: str) -> bool:
    """Return whether a file that may not be there yet has a pointer."""
    try:
        return pointer in file.read_text()
    except FileNotFoundError:
        return False


def until(holds: Callable[[], bool], otherwise: str, within: float = _PATIENCE, every: float = 0.01) -> None:
    """Wait until something holds.

    Args:
        holds: what is asked.
        otherwise: what is wrong if it does not hold in time.
        within: seconds that there are for it.
        every: seconds between two questions.

    Raises:
        Unmeasured: it does not hold in time.
    """
    give_up_at = time.monotonic() + within
    while not holds():
        if time.monotonic() > give_up_at:
            raise Unmeasured(f"{otherwise} after {within:g} s")
        time.sleep(every)


def measure_filling(commits: int, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Publish many commits of one table, and count what lies there at most."""
    line, most = Line(folder, ORDINAL, keep_for=timedelta(days=9_999)), 0
    place = Path(line.location.removeprefix("file://"), "metadata", "_sfn")
    for done in range(0, commits, AT_ONCE):
        say(f"filling: {done:,}/{commits:,} commits")
        anyio.run(line.publish, AT_ONCE)
        most = max(most, len(list(place.glob(f"*{EXTENSION}"))))
    note = f"{commits:,} commits, each to be kept for ever; one page of a listing has {PAGE:,}"
    goal, short = Goal("value", "<=", PAGE), commits < FILLING_COMMITS
    return [Figure(name="ordinal_folder_most", unit="files", runs=[Run(most)], goal=goal, short=short, note=note)]
