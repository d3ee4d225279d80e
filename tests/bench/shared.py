"""How many events a second are taken durably into an inbox that processes share, beside one that one process has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from typing_extensions import override

from tests.bench import accept
from tests.bench.accept import Extent, check_idle, check_taken
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.bench.servers import Setting, refusing, service
from tests.bench.wrk import CONNECTIONS, Answers, load
from tests.servers.postgres import Postgres

GOAL: Final = Goal("ratio", ">=", 0.5)
REPLICAS: Final = 2


class Lasting(Postgres):
    """One that outlives a power cut, and is set as it comes otherwise."""

    @override
    def _command(self) -> list[str | Path]:
        # What comes last counts.
        return [*super()._command(), "--fsync=on", "--full_page_writes=on"]


def measure(extent: Extent, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """In each run SQLite, PostgreSQL, and PostgreSQL with two processes are loaded in turn, the next time in reverse.

    Raises:
        Unmeasured: there is no PostgreSQL, or it is on another disk; or as of `accept.measure`.
    """
    taken: dict[str, list[float]] = {"sqlite": [], "postgres": [], "replicas": []}
    folder.mkdir(parents=True, exist_ok=True)
    with _started(folder) as postgres:
        rates: dict[str, Callable[[Path, Extent], float]] = {
            "sqlite": lambda place, much: accept.idle(place, much).rate,
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
        figure("postgres_accept_vs_sqlite", "postgres", GOAL, "one process, its database on the same disk and machine"),
        figure("postgres_accept_two_replicas", "replicas", None, f"all on one machine; {CONNECTIONS} connections each"),
    ]


@contextmanager
def _started(folder: Path) -> Iterator[Lasting]:
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
    """What so many processes take together, whose worker's catalog refuses connections."""
    warehouse = accept.made(folder)
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
