"""How many events a second are taken durably, beside servers that do nothing with them.

Also measured: the same with an inbox in PostgreSQL that processes share, and how often the disk is synced for an event.
The events and the servers that do nothing are here too.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final
from uuid import uuid4

import msgspec
import pytest
from fastapi import FastAPI, Request
from typing_extensions import override

from sfn.sfnfile.naming import FileLayout, FileOwner
from tests.bench import servers
from tests.bench.clients import CONNECTIONS, TABLES, TOKEN, Answers, Wire, installed, load, wire
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.bench.servers import NAMESPACE, PATH, Setting, records, refusing, service, uvicorn
from tests.faults import inspection
from tests.servers.postgres import Postgres

GOAL: Final = Goal("ratio", ">=", 2.0)
RAW_GOAL: Final = Goal("ratio", ">=", 0.5)
PUBLISHING_GOAL: Final = Goal("ratio", ">=", 0.8)

_NO_OP, _RAW = "a FastAPI no-op POST", "a raw ASGI no-op"
_READING = "a FastAPI POST that reads the event as JSON and does nothing with it"

Say = Callable[[str], None]

BATCH: Final = 100
"""Events of a request, where a request has several."""
BATCH_GOAL: Final = Goal("ratio", ">=", 8)

POSTGRES_GOAL: Final = Goal("ratio", ">=", 0.9)
REPLICAS_GOAL: Final = Goal("ratio", ">=", 1.1)
REPLICAS: Final = 2

FSYNCS_GOAL: Final = Goal("value", ">=", 1)
REQUESTS: Final = 200

_CALL: Final = re.compile(
    r"(\d+) +(\d+\.\d+) f(?:data)?sync\(\d+<(.*)>(?:\) += (-?\d+).*<(\d+\.\d+)>| <unfinished \.\.\.>)"
)
_RESUMED: Final = re.compile(r"(\d+) +\d+\.\d+ <\.\.\. f(?:data)?sync resumed>\) += (-?\d+).*<(\d+\.\d+)>")

_HEADERS: Final = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}

_NO_OP_BODY: Final = b'{"accepted":1,"duplicates":0,"ignored":0}'
_NO_OP_HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_NO_OP_BODY))]

_NO_OP_ANSWER: Final = {"accepted": 1, "duplicates": 0, "ignored": 0}

fastapi, reading = FastAPI(), FastAPI()


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    Attributes:
        runs: how often each server is, in turn.
        seconds: each time.
        warm_up: seconds before that which do not count.
    """

    runs: int = 5
    seconds: int = 6
    warm_up: int = 2

    @property
    def short(self) -> bool:
        """Less than what the goals are for."""
        whole = Extent()
        return self.runs < whole.runs or self.seconds < whole.seconds or self.warm_up < whole.warm_up


@dataclass(frozen=True, slots=True)
class Taken:
    """What one server took: events a second, files published a second meanwhile, and CPU time in µs an event."""

    rate: float
    published: float = 0.0
    cpu: float = 0.0


def measure(extent: Extent, folder: Path, say: Say) -> list[Figure]:
    """In each run every server is started, loaded and ended in turn, in this order and the next time in its reverse.

    Raises:
        Unmeasured: a request was not answered with success, an acknowledged event is not in the inbox, or a worker did
            what it was not to do.
    """
    servers: dict[str, Callable[[Path, Extent], Taken]] = {
        "ours": idle,
        "fastapi": partial(_no_op, "fastapi"),
        "reading": partial(_no_op, "reading"),
        "raw": partial(_no_op, "raw"),
        "busy": _publishing,
        "batches": partial(idle, size=BATCH),
    }
    taken: dict[str, list[Taken]] = {name: [] for name in servers}
    for number in range(extent.runs):
        for name in sorted(servers, key=list(servers).index, reverse=number % 2 == 1):
            found = servers[name](folder / f"{number}-{name}", extent)
            taken[name].append(found)
            say(f"accept {number + 1}/{extent.runs}: {name} {found.rate:,.0f}/s")
    return _figures(taken, short=extent.short)


def _figures(taken: Mapping[str, Sequence[Taken]], *, short: bool) -> list[Figure]:
    def figure(name: str, ours: str, theirs: str, beside: str, goal: Goal | None = None, note: str = "") -> Figure:
        runs = [Run(one.rate, other.rate) for one, other in zip(taken[ours], taken[theirs], strict=True)]
        return Figure(name=name, unit="events/s", runs=runs, compared_with=beside, goal=goal, short=short, note=note)

    def cpu(name: str) -> str:
        return f"{median(one.cpu for one in taken[name]):.0f} µs of CPU time an event"

    published = median(one.published for one in taken["busy"])
    publishing = f"{published:.0f} publishes/s beside it"
    return [
        figure("accept_vs_fastapi", "ours", "fastapi", _NO_OP, GOAL, cpu("ours")),
        figure("accept_vs_fastapi_reading", "ours", "reading", _READING),
        figure("accept_vs_raw_asgi", "ours", "raw", _RAW, RAW_GOAL),
        figure("accept_while_publishing", "busy", "fastapi", _NO_OP, PUBLISHING_GOAL, publishing),
        figure("accept_batches", "batches", "fastapi", f"{_NO_OP}, by requests", BATCH_GOAL, cpu("batches")),
    ]


def _no_op(application: str, folder: Path, extent: Extent) -> Taken:
    with uvicorn(f"tests.bench.accept:{application}", folder) as running:
        return Taken(loaded(running, extent, folder)[-1].rate)


def idle(folder: Path, extent: Extent, *, size: int = 1, more: str = "") -> Taken:
    """The service while its catalog refuses connections: the breaker lets one claim a second ask it, in vain."""
    warehouse = made(folder)
    with refusing() as uri:
        setting = Setting(folder / "sfn", uri, warehouse, more=more)
        with service(setting) as running:
            before = cpu_seconds(running)
            answers = loaded(running.url, extent, warehouse, size)
            spent = cpu_seconds(running) - before
    check_taken(len(inspection.logged(setting.inbox)), answers, size)
    check_idle(running.log)
    return Taken(answers[-1].rate * size, cpu=spent / sum(each.count * size for each in answers) * 1e6)


def cpu_seconds(running: servers.Service) -> float:
    """Return the processor time that the service has used so far."""
    times = running.process.cpu_times()
    return times.user + times.system


def _publishing(folder: Path, extent: Extent) -> Taken:
    """The service while its worker publishes as fast as it can: each look at a table finds one more commit."""
    warehouse = made(folder)
    create(warehouse, *(f"t{number}" for number in range(TABLES)))
    with servers.catalog(folder / "catalog", warehouse, busy=True) as asked:
        setting = Setting(folder / "sfn", asked.uri, warehouse)
        with service(setting) as running:
            answers = loaded(running.url, extent, warehouse)
            done = [record for record in records(running.log, "settled") if record["files"]]
    check_taken(len(inspection.logged(setting.inbox)), answers)
    if not done:
        raise Unmeasured(f"the worker was to publish: {running.log} has no record of it")
    return Taken(answers[-1].rate, len(done) / sum(each.seconds for each in answers))


def loaded(server: str, extent: Extent, warehouse: Path, size: int = 1) -> list[Answers]:
    """The warm-up and what counts."""
    return [
        load(server, seconds, series=series, warehouse=warehouse, size=size)
        for series, seconds in enumerate((extent.warm_up, extent.seconds))
        if seconds
    ]


def check_taken(found: int, answers: Sequence[Answers], size: int = 1) -> None:
    """See that what was acknowledged is there; of requests that a run's end cut off, some may be.

    Args:
        found: how many events the inbox has.
        answers: of all runs.
        size: events of a request.
    """
    acknowledged = sum(each.count for each in answers) * size
    if not acknowledged <= found <= acknowledged + CONNECTIONS * len(answers) * size:
        raise Unmeasured(f"{acknowledged} events were acknowledged, and {found} are in the inbox")


def check_idle(log: Path) -> None:
    """See that a worker did nothing but ask a catalog in vain."""
    done = [record for record in records(log, "settled") if record["outcome"] != "released"]
    if done:
        raise Unmeasured(f"the worker was to be idle, and settled {done[0]}")


def made(folder: Path) -> Path:
    """An empty warehouse."""
    warehouse = folder / "warehouse"
    warehouse.mkdir(parents=True)
    return warehouse


class Lasting(Postgres):
    """One that outlives a power cut, and is set as it comes otherwise."""

    @override
    def _command(self) -> list[str | Path]:
        # What comes last counts.
        return [*super()._command(), "--fsync=on", "--full_page_writes=on"]


def measure_postgres(extent: Extent, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """In each run SQLite, PostgreSQL, and PostgreSQL with two processes are loaded in turn, the next time in reverse.

    Raises:
        Unmeasured: there is no PostgreSQL, or it is on another disk; or as of `accept.measure`.
    """
    taken: dict[str, list[float]] = {"sqlite": [], "postgres": [], "replicas": []}
    folder.mkdir(parents=True, exist_ok=True)
    with lasting_postgres(folder) as postgres:
        rates: dict[str, Callable[[Path, Extent], float]] = {
            "sqlite": lambda place, much: idle(place, much).rate,
            "postgres": partial(_rate, postgres, 1),
            "replicas": partial(_rate, postgres, REPLICAS),
        }
        for number in range(extent.runs):
            for name in sorted(rates, key=list(rates).index, reverse=number % 2 == 1):
                taken[name].append(rates[name](folder / f"{number}-{name}", extent))
                say(f"postgres {number + 1}/{extent.runs}: {name} {taken[name][-1]:,.0f}/s")

    def figure(name: str, ours: str, goal: Goal | None, note: str) -> Figure:
        runs = [Run(one, other) for one, other in zip(taken[ours], taken["sqlite"], strict=True)]
        return Figure(
            name=name,
            unit="events/s",
            runs=runs,
            compared_with="one process with SQLite",
            goal=goal,
            short=extent.short,
            note=note,
        )

    return [
        figure(
            "postgres_accept_vs_sqlite",
            "postgres",
            POSTGRES_GOAL,
            "one process, its database on the same disk and machine",
        ),
        figure(
            "postgres_accept_two_replicas",
            "replicas",
            REPLICAS_GOAL,
            f"all on one machine; {CONNECTIONS} connections each",
        ),
    ]


@contextmanager
def lasting_postgres(folder: Path) -> Iterator[Lasting]:
    """PostgreSQL with the durability that it comes with, on the disk of a folder.

    Raises:
        Unmeasured: there is none, or it is on another disk.
    """
    try:
        server = Lasting()
    except pytest.skip.Exception as error:
        raise Unmeasured(str(error)) from error
    if server.folder.stat().st_dev != folder.stat().st_dev:
        raise Unmeasured(f"{server.folder} and {folder} are on two disks: set TMPDIR instead of --folder")
    with server:
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            if (found := server.execute(f"SHOW {name}")) != "on":
                raise Unmeasured(f"PostgreSQL's {name} was to be on, and is {found}")
        yield server


def _rate(postgres: Lasting, replicas: int, folder: Path, extent: Extent) -> float:
    """Events a second of several processes with one inbox, while their catalog refuses connections."""
    warehouse = made(folder)
    with postgres.database() as name:
        with refusing() as uri, ExitStack() as stack:
            settings = [
                Setting(folder / f"sfn{number}", uri, warehouse, url=postgres.dsn(name)) for number in range(replicas)
            ]
            running = [stack.enter_context(service(setting)) for setting in settings]
            answers = [
                _at_once([one.url for one in running], seconds, series * replicas, warehouse)
                for series, seconds in enumerate((extent.warm_up, extent.seconds))
            ]
        check_taken(
            int(postgres.execute("SELECT count(*) FROM sfn.event", name)), [one for each in answers for one in each]
        )
    for one in running:
        check_idle(one.log)
    return sum(one.rate for one in answers[-1])


def _at_once(urls: list[str], seconds: int, series: int, warehouse: Path) -> list[Answers]:
    with ThreadPoolExecutor(len(urls)) as threads:
        loads = [
            threads.submit(load, url, seconds, series=series + number, warehouse=warehouse)
            for number, url in enumerate(urls)
        ]
        return [each.result() for each in loads]


@dataclass(frozen=True, slots=True)
class Sync:
    """One call that synced a file, successfully.

    Attributes:
        path: the file.
        began, ended: Unix seconds.
    """

    path: str
    began: float
    ended: float


def measure_fsyncs(requests: int, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Send events one after the other, each as soon as the last one is acknowledged: so each is a commit of its own.

    Raises:
        Unmeasured: there is no strace, or it may not trace.
    """
    _check_allowed()
    trace, warehouse = folder / "trace", folder / "warehouse"
    warehouse.mkdir(parents=True)
    launcher = [installed("strace"), "-f", "-ttt", "-T", "-y", "-e", "trace=fsync,fdatasync", "-o", str(trace)]
    with refusing() as uri:
        setting = Setting(folder / "sfn", uri, warehouse, launcher=launcher)
        with service(setting) as running, event_sender(running.url) as sender:
            spans = [_told(sender.tell, f"t{number}") for number in range(requests)]
    syncs = [sync for sync in parse(trace.read_text().splitlines()) if sync.path == f"{setting.inbox.resolve()}-wal"]
    say(f"fsyncs: {len(syncs)} of the inbox's log for {requests} events, each a commit")
    return [
        Figure(
            name="fsyncs_per_commit",
            unit="fsyncs",
            runs=[Run(float(min(within(syncs, spans))))],
            goal=FSYNCS_GOAL,
            short=requests < REQUESTS,
            note=f"the least of {requests} events, between request and answer",
        )
    ]


def parse(lines: Iterable[str]) -> list[Sync]:
    """What strace told of, but for calls that failed (`-f -ttt -T -y`)."""
    syncs: list[Sync] = []
    open_calls: dict[str, tuple[str, float]] = {}
    for line in lines:
        if (call := _CALL.match(line)) is not None:
            thread, began, path, result, took = call.groups()
            if result is None:
                open_calls[thread] = (path, float(began))
            elif result == "0":
                syncs.append(Sync(path, float(began), float(began) + float(took)))
        elif (resumed := _RESUMED.match(line)) is not None:
            path, start = open_calls.pop(resumed[1])
            if resumed[2] == "0":
                syncs.append(Sync(path, start, start + float(resumed[3])))
    return syncs


def within(syncs: Sequence[Sync], spans: Sequence[tuple[float, float]]) -> list[int]:
    """For each span of time, how many syncs began and ended in it."""
    return [sum(began <= sync.began and sync.ended <= ended for sync in syncs) for began, ended in spans]


def _told(tell: Callable[[bytes], None], name: str) -> tuple[float, float]:
    """Send an event: when, and when it was acknowledged."""
    body = event(name)
    # The clock that strace reads, too.
    began = time.clock_gettime(time.CLOCK_REALTIME)
    tell(body)
    return began, time.clock_gettime(time.CLOCK_REALTIME)


def _check_allowed() -> None:
    told = subprocess.run([installed("strace"), "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    if told.returncode != 0:
        raise Unmeasured(
            f"strace may not trace here: {told.stderr.strip()}; a container needs `--cap-add=SYS_PTRACE` for it"
        )


def event(name: str, pointer: str | None = None) -> bytes:
    """An event of a table, with an id of its own."""
    told = {"namespace": [NAMESPACE], "name": name, "event_id": str(uuid4()), "metadata_location": pointer}
    return msgspec.json.encode(told)


@dataclass(frozen=True, slots=True)
class EventSender:
    """A sender with one connection."""

    wire: Wire

    def tell(self, body: bytes) -> None:
        """Send an event; returns when it is acknowledged."""
        self.wire.ask("POST", PATH, body, _HEADERS)


@contextmanager
def event_sender(url: str) -> Iterator[EventSender]:
    """A sender to a server, of which `url` is any address."""
    with wire(url) as connected:
        yield EventSender(connected)


def directory(warehouse: Path, name: str) -> Path:
    """Where a table lies."""
    return warehouse / NAMESPACE / name


def create(warehouse: Path, *names: str) -> None:
    """Make the folders that tables have before they are published."""
    for name in names:
        (directory(warehouse, name) / "metadata").mkdir(parents=True)


def sfn_file(warehouse: Path, name: str) -> Path:
    """A table's SFN file."""
    (key, *_) = FileLayout(directory(warehouse, name).as_uri()).keys(FileOwner((NAMESPACE,), name))
    return Path(key.removeprefix("file://"))


# As FastAPI's own first example has it, which has no annotation: that is what no response model stands for.
@fastapi.post("/v1/events", status_code=202, response_model=None)
async def accept_unread() -> dict[str, int]:
    """A route that does nothing: neither the token is looked at nor the body."""
    return _NO_OP_ANSWER


@fastapi.get("/v1/nothing", response_model=None)
async def nothing() -> dict[str, int]:
    """A route that does nothing either: what a reader's question is compared with."""
    return _NO_OP_ANSWER


@reading.post("/v1/events", status_code=202, response_model=None)
async def accept_and_read(request: Request) -> dict[str, int]:
    """One that reads the event, and does nothing with it."""
    await request.json()
    return _NO_OP_ANSWER


async def raw(
    scope: MutableMapping[str, Any],
    _receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """The least that an ASGI application can do."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 202, "headers": _NO_OP_HEADERS})
    await send({"type": "http.response.body", "body": _NO_OP_BODY})
