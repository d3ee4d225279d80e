"""Faults of a store: requests that fail now and then, outages, and a directory that becomes read-only."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.faults import inspection
from tests.faults.altered_service import ANSWERED_WITHIN, HURRIED
from tests.faults.fleet import ROUNDS, Fleet, fleet, refusal, rounds, shelved
from tests.faults.lake import Lake, Mood, serving
from tests.faults.proxy import Asked, Break, Cut, Fault, Lose, Pass, Proxy, Rule
from tests.faults.service import OPERATOR, Service, Setting, eventually, mounted_alone, remount, running
from tests.servers.object_stores import S3
from tests.servers.postgres import Postgres

OFTEN = 0.1
"""Of all requests that a fault is for."""
LATE = 1.5 * ANSWERED_WITHIN
EACH = 2 * ROUNDS
WRITES = frozenset({"PUT"})
ALL = frozenset({"GET", "PUT", "DELETE"})
FAULTS: dict[str, tuple[frozenset[str], Fault]] = {
    "the answer to a write that was done comes too late": (WRITES, Lose(LATE)),
    "the answer to a write that was done is lost": (WRITES, Lose()),
    "a connection breaks": (ALL, Break()),
    "an answer breaks off": (frozenset({"GET"}), Cut()),
    "500": (ALL, refusal(500, "InternalError")),
    "503": (ALL, refusal(503, "SlowDown")),
    "409": (WRITES, refusal(409, "ConditionalRequestConflict")),
    "412": (WRITES, refusal(412, "PreconditionFailed")),
    "expired credentials": (ALL, refusal(400, "ExpiredToken")),
    "a clock that is wrong": (ALL, refusal(403, "RequestTimeTooSkewed")),
}
Record = Callable[[str, object], None]

AWAY = float(rounds(2))
"""Seconds that an outage lasts."""
MANY_TABLES = 40
SLOTS = 32
"""`worker.concurrency`: tables that are worked on at a time."""
LOAD_TAKES = 0.2
"""Seconds, of the catalog that is asked for all of them when the outage ends."""

LOCAL_TABLES = [f"t{number:02d}" for number in range(12)]
WAITED = 2.0
"""Seconds that tables wait at least: each of them is tried more than once meanwhile."""
Change = Callable[[Service, Path, str], None]


class Faulty:
    """A proxy's rule: one fault at a time, now and then.

    Attributes:
        fault: the name of the one that is injected now.
        injected: how often each was.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.fault = next(iter(FAULTS))
        self.injected: Counter[str] = Counter()

    def __call__(self, asked: Asked) -> Fault:
        methods, fault = FAULTS[self.fault]
        if asked.method not in methods or self._chance.random() >= OFTEN:
            return Pass()
        self.injected[self.fault] += 1
        return fault


async def test_a_store_that_fails_now_and_then_loses_nothing_and_no_file_goes_back(
    s3: S3, proxy: Proxy, postgres: Postgres, database: str, tmp_path: Path, record_property: Record
) -> None:
    """Two replicas: what one of them is not answered, the other one may have written over."""
    dsn, faulty = postgres.dsn(database), Faulty(random.Random(1))
    async with fleet(tmp_path, dsn, dsn, module=HURRIED, shelf=shelved(s3, proxy)) as running:
        proxy.rule = faulty
        for faulty.fault in FAULTS:
            await eventually(lambda: faulty.injected[faulty.fault] >= EACH, within=10 * EACH)
        proxy.rule = lambda _: Pass()
        figures = await running.ended_well(**faulty.injected)
    record_property("store faults", asdict(figures))
    assert figures.attempts == 1


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
    async with fleet(tmp_path, dsn, dsn, replicas=1, tables=MANY_TABLES, shelf=shelved(s3, proxy)) as running:
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
    await eventually(lambda: 2 * len(running.lake.behind(lengths)) < MANY_TABLES)


async def _endured(running: Fleet, proxy: Proxy, outage: Rule | Mood) -> int:
    """One outage, under load; how often something was refused."""
    over, before = anyio.current_time() + AWAY, proxy.injected.total() + running.lake.asked["refused"]
    if isinstance(outage, Mood):
        running.lake.mood = outage
    else:
        proxy.rule = outage
    await running.until_taken(MANY_TABLES)
    await anyio.sleep_until(over)
    running.lake.mood, proxy.rule = Mood.WELL, lambda _: Pass()
    return proxy.injected.total() + running.lake.asked["refused"] - before


async def _first_second(running: Fleet) -> int:
    """How often the catalog is asked for a table in the second after an outage."""
    running.lake.delay, before = LOAD_TAKES, running.lake.asked["load"]
    await anyio.sleep(1)
    running.lake.delay = 0.01
    return running.lake.asked["load"] - before


def remounted(service: Service, warehouse: Path, mode: str) -> None:
    """EROFS: the file system is mounted anew."""
    remount(service, warehouse, mode)


def forbidden(_service: Service, warehouse: Path, mode: str) -> None:
    """EACCES: the modes of all folders change."""
    for folder, _, _ in os.walk(warehouse, topdown=False):
        Path(folder).chmod(0o755 if mode == "rw" else 0o555)


def launched(change: Change, warehouse: Path) -> list[str]:
    """A launcher of a process that the change applies to."""
    if change is remounted:
        return list(mounted_alone(warehouse))
    # Root may write everywhere, unless it gives that up.
    return ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"] if os.geteuid() == 0 else []


@contextmanager
def read_only(change: Change, service: Service, warehouse: Path) -> Iterator[None]:
    change(service, warehouse, "ro")
    try:
        yield
    finally:
        change(service, warehouse, "rw")


async def status(service: Service) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    async with service.session.get(f"{service.url}/admin/v1/status", headers=headers) as answer:
        return dict(await answer.json())


async def metric(service: Service, name: str) -> float:
    async with service.session.get(f"{service.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.parametrize("change", [remounted, forbidden])
@pytest.mark.parametrize("warm", [6, 0], ids=["half of the tables published before", "nothing published before"])
async def test_store_that_is_read_only_for_a_while_gives_no_table_up(tmp_path: Path, change: Change, warm: int) -> None:
    lake = Lake(tmp_path / "warehouse")
    for name in LOCAL_TABLES:
        lake.create(name)
    setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, launcher=launched(change, lake.warehouse))
    async with serving(lake), running(setting) as service:
        for name in LOCAL_TABLES[:warm]:
            assert await service.post(name) == 202
        await eventually(lambda: not set(LOCAL_TABLES[:warm]) & set(lake.wrong()))
        for name in LOCAL_TABLES:
            lake.tables[name].commit()
        with read_only(change, service, lake.warehouse):
            for name in LOCAL_TABLES:
                assert await service.post(name) == 202
            await eventually(lambda: any(record.get("event") == "store unreachable" for record in service.records()))
            # So long that each would have been tried again, if it were its own trouble.
            await anyio.sleep(WAITED)
            seen = await status(service)
            assert [one["scope"] for one in seen["breakers"] if one["allowed_probes"] <= 1]
            assert seen["dead_letters"] == {}
            assert await metric(service, 'sfn_oldest_pending_age_seconds{catalog="lake"}') >= WAITED
        await eventually(lambda: not lake.wrong())
        assert (await status(service))["dead_letters"] == {}
        assert inspection.letters(setting.database) == {}
        assert not service.told("dead")
        assert not service.told("retry")
