"""How many events a second are taken durably, beside servers that do nothing with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from tests.bench import catalog
from tests.bench.events import create
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.bench.servers import Setting, records, refusing, service, uvicorn
from tests.bench.wrk import CONNECTIONS, TABLES, Answers, load
from tests.faults import inspection

GOAL: Final = Goal("ratio", ">=", 1.5)

_NO_OP, _RAW = "a FastAPI no-op POST", "a raw ASGI no-op"
_READING = "a FastAPI POST that reads the event as JSON and does nothing with it"

Say = Callable[[str], None]


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
    """What one server took, and how many files were published a second meanwhile."""

    rate: float
    published: float = 0.0


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

    published = median(one.published for one in taken["busy"])
    return [
        figure("accept_vs_fastapi", "ours", "fastapi", _NO_OP, GOAL),
        figure("accept_vs_fastapi_reading", "ours", "reading", _READING),
        figure("accept_vs_raw_asgi", "ours", "raw", _RAW),
        figure("accept_while_publishing", "busy", "fastapi", _NO_OP, note=f"{published:.0f} publishes/s beside it"),
    ]


def _no_op(application: str, folder: Path, extent: Extent) -> Taken:
    with uvicorn(f"tests.bench.noop:{application}", folder) as running:
        return Taken(loaded(running, extent, folder)[-1].rate)


def idle(folder: Path, extent: Extent) -> Taken:
    """The service while its catalog refuses connections: the breaker lets one claim a second ask it, in vain."""
    warehouse = made(folder)
    with refusing() as uri:
        setting = Setting(folder / "sfn", uri, warehouse)
        with service(setting) as running:
            answers = loaded(running.url, extent, warehouse)
    check_taken(len(inspection.logged(setting.inbox)), answers)
    check_idle(running.log)
    return Taken(answers[-1].rate)


def _publishing(folder: Path, extent: Extent) -> Taken:
    """The service while its worker publishes as fast as it can: each look at a table finds one more commit."""
    warehouse = made(folder)
    create(warehouse, *(f"t{number}" for number in range(TABLES)))
    with catalog.running(folder / "catalog", warehouse, busy=True) as asked:
        setting = Setting(folder / "sfn", asked.uri, warehouse)
        with service(setting) as running:
            answers = loaded(running.url, extent, warehouse)
            done = [record for record in records(running.log, "settled") if record["files"]]
    check_taken(len(inspection.logged(setting.inbox)), answers)
    if not done:
        raise Unmeasured(f"the worker was to publish: {running.log} has no record of it")
    return Taken(answers[-1].rate, len(done) / sum(each.seconds for each in answers))


def loaded(server: str, extent: Extent, warehouse: Path) -> list[Answers]:
    """The warm-up and what counts."""
    return [
        load(server, seconds, series=series, warehouse=warehouse)
        for series, seconds in enumerate((extent.warm_up, extent.seconds))
    ]


def check_taken(found: int, answers: Sequence[Answers]) -> None:
    """See that what was acknowledged is there; of requests that a run's end cut off, some may be.

    Args:
        found: how many events the inbox has.
        answers: of all runs.
    """
    acknowledged = sum(each.count for each in answers)
    if not acknowledged <= found <= acknowledged + CONNECTIONS * len(answers):
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
