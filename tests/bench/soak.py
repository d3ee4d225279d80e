"""Whether memory, log and database stay within bounds under a steady load."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression
from typing import Final

from tests.bench import servers
from tests.bench.accept import EventSender, create, event, event_sender
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.bench.servers import Service, Setting, records, service

SECONDS: Final = 600
EVENTS_A_SECOND: Final = 200
TABLES: Final = 200
PER: Final = 10_000
"""Events that a slope is told for."""

RSS: Final = Goal("value", "<", 1)
LOG: Final = Goal("value", "<", 96)
"""MiB: SQLite cuts a log back to 64 MiB (`journal_size_limit`) once what is in it was brought into the database."""
GROWTH: Final = Goal("value", "<", 1)

_MIB: Final = 2**20
_RETENTION: Final = "60s"
"""Events are gone after at most two minutes, for the inbox is tended each minute: the load outlives many of them."""
_EVERY: Final = 1.0
_WARM: Final = 0.3
"""The part of the time that does not count for slopes: until then as many events come as go."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was found at one moment.

    Attributes:
        events: acknowledged so far.
        rss, log, database: bytes of memory, of the inbox's write-ahead log and of its database.
    """

    events: int
    rss: int
    log: int
    database: int


def measure(seconds: float, folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """A worker that publishes all the time, events at a steady rate, each with an id of its own.

    Raises:
        Unmeasured: an event was refused, or nothing was published.
    """
    warehouse = folder / "warehouse"
    names = [f"t{number}" for number in range(TABLES)]
    create(warehouse, *names)
    with servers.catalog(folder / "catalog", warehouse, busy=True) as asked:
        setting = Setting(folder / "sfn", asked.uri, warehouse, retention=_RETENTION)
        with service(setting) as running, event_sender(running.url) as sender:
            samples = _loaded(sender, names, running, setting, seconds, say)
            published = sum(bool(record["files"]) for record in records(running.log, "settled"))
    if not published:
        raise Unmeasured(f"the worker was to publish: {running.log} has no record of it")
    return figures(samples, short=seconds < SECONDS, note=f"{samples[-1].events} events, {published} publishes")


def _loaded(
    sender: EventSender,
    names: Sequence[str],
    running: Service,
    setting: Setting,
    seconds: float,
    say: Callable[[str], None],
) -> list[Sample]:
    samples: list[Sample] = []
    began, events = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        if elapsed >= len(samples) * _EVERY:
            samples.append(_sample(events, running, setting))
            say(_progress(elapsed, seconds, samples[-1]))
        if events <= elapsed * EVENTS_A_SECOND:
            sender.tell(event(names[events % len(names)]))
            events += 1
        else:
            time.sleep(events / EVENTS_A_SECOND - elapsed)
    return [*samples, _sample(events, running, setting)]


def _sample(events: int, running: Service, setting: Setting) -> Sample:
    log = setting.inbox.with_name(f"{setting.inbox.name}-wal")
    return Sample(events, running.process.memory_info().rss, log.stat().st_size, setting.inbox.stat().st_size)


def _progress(elapsed: float, seconds: float, sample: Sample) -> str:
    sizes = f"{sample.rss / _MIB:.1f} MiB, log {sample.log / _MIB:.1f}, database {sample.database / _MIB:.1f}"
    return f"soak {elapsed:.0f}/{seconds:.0f} s: {sample.events} events, memory {sizes}"


def figures(samples: Sequence[Sample], *, short: bool, note: str = "") -> list[Figure]:
    """What samples come to."""
    warm = samples[int(len(samples) * _WARM) :]
    half = samples[len(samples) // 2 :]

    def figure(name: str, value: float, unit: str, goal: Goal, told: str = "") -> Figure:
        return Figure(name=name, unit=unit, runs=[Run(value)], goal=goal, short=short, note=told)

    unit = f"MiB per {PER:,} events"
    return [
        figure("rss_slope", slope(warm, [sample.rss for sample in warm]), unit, RSS, note),
        figure("wal_most", max(sample.log for sample in samples) / _MIB, "MiB", LOG),
        figure("database_slope", slope(half, [sample.database for sample in half]), unit, GROWTH),
    ]


def slope(samples: Sequence[Sample], sizes: Sequence[int]) -> float:
    """How sizes grow with the events, by least squares: MiB for each 10,000."""
    return linear_regression([sample.events for sample in samples], sizes).slope * PER / _MIB
