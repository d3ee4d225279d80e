"""An object store, or the catalog beside it, that refuses everything for a while: whatever it says, all is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import anyio

from tests.faults.fleet import Fleet, fleet, rounds
from tests.faults.lake import Mood
from tests.faults.on_s3 import refusal, shelved
from tests.faults.proxy import Asked, Break, Fault, Pass, Proxy, Rule
from tests.faults.service import eventually
from tests.servers.object_stores import S3
from tests.servers.postgres import Postgres

AWAY = float(rounds(2))
"""Seconds that an outage lasts."""
TABLES = 40
SLOTS = 32
"""`worker.concurrency`: tables that are worked on at a time."""
LOAD_TAKES = 0.2
"""Seconds, of the catalog that is asked for all of them when the outage ends."""
Record = Callable[[str, object], None]


def _denied(asked: Asked) -> Fault:
    return refusal(403, "AccessDenied") if asked.method == "PUT" else Pass()


OUTAGES: dict[str, Rule | Mood] = {
    "the store: connections break": lambda _: Break(),
    "the store: 503": lambda _: refusal(503, "SlowDown"),
    "the store: expired credentials": lambda _: refusal(400, "ExpiredToken"),
    "the store: no such bucket": lambda _: refusal(404, "NoSuchBucket"),
    "the store: writes are denied": _denied,
    "the catalog: 500": Mood.ERROR,
    "the catalog: the token is revoked": Mood.REVOKED,
}


async def test_who_refuses_everything_costs_no_table_anything(
    s3: S3, proxy: Proxy, postgres: Postgres, database: str, tmp_path: Path, record_property: Record
) -> None:
    dsn = postgres.dsn(database)
    refused, loads = dict[str, int](), dict[str, int]()
    async with fleet(tmp_path, dsn, dsn, replicas=1, tables=TABLES, shelf=shelved(s3, proxy)) as running:
        # A load, but not more than the machine can bear that has all of it.
        running.senders.pause = 0.2
        for name, outage in OUTAGES.items():
            await _well(running)
            refused[name] = await _endured(running, proxy, outage)
            loads[name] = await _first_second(running)
        figures = await running.ended_well(**refused)
    record_property("outages", asdict(figures) | {"loads_in_the_first_second": loads})
    print({"loads_in_the_first_second": loads})
    assert figures.attempts == 1
    assert figures.refused == 0
    assert max(loads.values()) <= SLOTS


async def _well(running: Fleet) -> None:
    """Return once half of the tables were published anew."""
    lengths = running.lake.lengths()
    await eventually(lambda: 2 * len(running.lake.behind(lengths)) < TABLES)


async def _endured(running: Fleet, proxy: Proxy, outage: Rule | Mood) -> int:
    """One outage, under load; how often something was refused."""
    over, before = anyio.current_time() + AWAY, proxy.injected.total() + running.lake.asked["refused"]
    if isinstance(outage, Mood):
        running.lake.mood = outage
    else:
        proxy.rule = outage
    await running.until_taken(TABLES)
    await anyio.sleep_until(over)
    running.lake.mood, proxy.rule = Mood.WELL, lambda _: Pass()
    return proxy.injected.total() + running.lake.asked["refused"] - before


async def _first_second(running: Fleet) -> int:
    """How often the catalog is asked for a table in the second after an outage."""
    running.lake.delay, before = LOAD_TAKES, running.lake.asked["load"]
    await anyio.sleep(1)
    running.lake.delay = 0.01
    return running.lake.asked["load"] - before
