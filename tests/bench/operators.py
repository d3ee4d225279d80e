"""What the page for operators costs with many tables, and the memory of a service that knows many and is idle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from threading import Event
from typing import Final

import httpx

from tests.bench.accept import made
from tests.bench.clients import load
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.bench.servers import CATALOG, OPERATOR, Service, Setting, refusing, service
from tests.support.filled_inbox import fill

TABLES: Final = 100_000
MEMORY: Final = {0: 90, 100_000: 120, 1_000_000: 200}
"""MB (10^6 bytes) that an idle service may have, by the number of tables that it knows."""
PAGE_GOAL: Final = Goal("value", "<=", 300)
ACCEPT_GOAL: Final = Goal("ratio", ">=", 0.95)
PAGES: Final = (
    "/ui",
    "/ui/tables",
    "/ui/tables?late=true",
    "/ui/tables?state=dead",
    "/ui/tables?namespace=ns5",
    "/ui/tables?table=ns5.table_9*",
    f"/ui/tables/{CATALOG}/ns0/table_0",
    "/ui/dead-letters",
    "/ui/held-drops",
    "/ui/events",
    "/ui/log",
)
PAUSE: Final = 0.25
"""Seconds between two pages: about three pages a second, as fifteen operators load whose overview renews itself."""
_SETTLE: Final = 10.0
"""Seconds after the start until memory is read."""
_MB: Final = 10**6

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    Attributes:
        runs: how often.
        seconds: of each load.
        tables: that the service knows.
        pause: seconds between two pages.
    """

    runs: int = 5
    seconds: int = 6
    tables: int = TABLES
    pause: float = PAUSE

    @property
    def short(self) -> bool:
        """Less than what the goals are for."""
        whole = Extent()
        less = self.runs < whole.runs or self.seconds < whole.seconds or self.tables < whole.tables
        return less or self.pause > whole.pause


@dataclass(slots=True)
class Readings:
    """Milliseconds that pages took, by address."""

    times: dict[str, list[float]] = field(default_factory=dict)

    def p95(self) -> float:
        """The 95th percentile over all pages."""
        return quantiles([one for times in self.times.values() for one in times], n=20)[-1]

    def slowest(self) -> str:
        """The page with the greatest median, and that."""
        medians = {address: sorted(times)[len(times) // 2] for address, times in self.times.items()}
        address = max(medians, key=medians.__getitem__)
        return f"slowest median: {address} {medians[address]:.0f} ms"


def measure(extent: Extent, folder: Path, say: Say) -> list[Figure]:
    """Accept events with operators beside it and without, in turn, and load pages with events beside and without.

    Raises:
        Unmeasured: a page or an event was not answered.
    """
    warehouse = made(folder)
    rates: list[Run] = []
    alone, beside = Readings(), Readings()
    quiet: list[Run] = []
    busy: list[Run] = []
    for number in range(extent.runs):
        with refusing() as uri:
            setting = Setting(folder / f"{number}", uri, warehouse)
            fill(setting.inbox, CATALOG, extent.tables)
            with service(setting) as running, _signed_in(running) as client:
                # The order changes, for the log grows meanwhile.
                parts = [0, 1] if number % 2 else [1, 0]
                found: dict[int, float] = {}
                load(running.url, 2, series=9, warehouse=warehouse)
                for part in parts:
                    readings = Readings()
                    with _reading(client, readings, extent.pause) if part else _nobody():
                        found[part] = load(running.url, extent.seconds, series=part, warehouse=warehouse).rate
                    if part:
                        busy.append(Run(readings.p95()))
                        _add(beside, readings)
                rates.append(Run(found[1], found[0]))
                readings = Readings()
                with _reading(client, readings, extent.pause):
                    time.sleep(extent.seconds)
                quiet.append(Run(readings.p95()))
                _add(alone, readings)
        say(f"page {number + 1}/{extent.runs}: {found[1]:,.0f}/s beside pages, {found[0]:,.0f}/s without")
    many, short = f"{extent.tables:,} tables", extent.short
    notes = f"{many}; {alone.slowest()}", f"{many}; {beside.slowest()}"
    shown = sum(map(len, beside.times.values())) / extent.runs / extent.seconds
    return [
        Figure(name="page_p95", unit="ms", runs=quiet, goal=PAGE_GOAL, short=short, note=notes[0]),
        Figure(name="page_p95_beside_events", unit="ms", runs=busy, goal=PAGE_GOAL, short=short, note=notes[1]),
        Figure(
            name="accept_beside_pages",
            unit="events/s",
            runs=rates,
            compared_with=f"the same without pages, {many}",
            goal=ACCEPT_GOAL,
            short=short,
            note=f"{shown:.1f} pages a second",
        ),
    ]


def measure_memory(counts: Sequence[int], folder: Path, say: Say) -> list[Figure]:
    """Read the memory of a service that has nothing to do.

    Raises:
        Unmeasured: it did not start.
    """
    figures = []
    for count in counts:
        with refusing() as uri:
            setting = Setting(folder / f"{count}", uri, made(folder / f"{count}"))
            if count:
                fill(setting.inbox, CATALOG, count)
            with service(setting) as running:
                time.sleep(_SETTLE)
                used = running.process.memory_info().rss / _MB
        say(f"memory with {count:,} tables: {used:.1f} MB")
        goal = Goal("value", "<", MEMORY[count]) if count in MEMORY else None
        figures.append(Figure(name=f"idle_memory_{count}_tables", unit="MB", runs=[Run(used)], goal=goal))
    return figures


@contextmanager
def _signed_in(running: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.url, timeout=60, trust_env=False) as client:
        answer = client.post("/ui/login", data={"token": OPERATOR})
        if answer.status_code != httpx.codes.SEE_OTHER:
            raise Unmeasured(f"signing in: {answer.status_code} {answer.text}")
        yield client


@contextmanager
def _reading(client: httpx.Client, readings: Readings, pause: float) -> Iterator[None]:
    """Load page after page meanwhile."""
    stop = Event()

    def read() -> None:
        for address in cycle(PAGES):
            if stop.is_set():
                return
            began = time.perf_counter()
            answer = client.get(address)
            readings.times.setdefault(address, []).append((time.perf_counter() - began) * 1_000)
            if answer.status_code != httpx.codes.OK:
                raise Unmeasured(f"{address}: {answer.status_code} {answer.text}")
            stop.wait(pause)

    with ThreadPoolExecutor(1) as threads:
        reader = threads.submit(read)
        try:
            yield
        finally:
            stop.set()
        reader.result()


@contextmanager
def _nobody() -> Iterator[None]:
    yield


def _add(all_of_them: Readings, some: Readings) -> None:
    for address, times in some.times.items():
        all_of_them.times.setdefault(address, []).extend(times)
