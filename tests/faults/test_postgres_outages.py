"""The inbox's database is away, now and then or for long: what comes is refused meanwhile, what was taken is kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import aiohttp
import anyio
import anyio.to_thread
import pytest

from tests.faults.fleet import ROUNDS, TABLES, Fleet, fleet
from tests.faults.service import Service, eventually
from tests.servers.postgres import Postgres

AWAY = 3.0
"""Seconds: several times as long as anything waits before it is tried again."""
BACK_WITHIN = 10.0
CONNECTIONS = 8
"""That one process has at most."""
Record = Callable[[str, object], None]


@pytest.fixture(name="server", scope="module")
def fixture_server() -> Iterator[Postgres]:
    """One that no other test is troubled by."""
    with Postgres() as server:
        server.execute("ALTER SYSTEM SET log_connections = on")
        server.execute("SELECT pg_reload_conf()")
        yield server


@pytest.fixture(name="dsn")
def fixture_dsn(server: Postgres) -> Iterator[str]:
    with server.database() as name:
        yield server.dsn(name)


async def test_the_server_is_stopped_dead_and_started_again_and_again(
    server: Postgres, dsn: str, tmp_path: Path, record_property: Record
) -> None:
    restarts = max(2, ROUNDS // 3)
    async with fleet(tmp_path, dsn, dsn) as running:
        for _ in range(restarts):
            await anyio.sleep(running.senders.chance.uniform(0.5, 1.5))
            await anyio.to_thread.run_sync(server.stop)
            await anyio.to_thread.run_sync(server.start)
            await running.until_taken(TABLES)
        figures = await running.ended_well(restarts=restarts)
    record_property("restarts", asdict(figures))
    assert figures.attempts == 1
    assert figures.refused > 0


async def test_an_outage_refuses_events_and_ends_without_a_stampede(
    server: Postgres, dsn: str, tmp_path: Path, record_property: Record
) -> None:
    async with fleet(tmp_path, dsn, dsn, replicas=1) as running:
        await running.until_taken(TABLES)
        await anyio.to_thread.run_sync(server.stop)
        late = running.start()
        await anyio.sleep(0.3)
        await _away(running)
        began = server.log.stat().st_size
        await anyio.to_thread.run_sync(server.start)
        started = anyio.current_time()
        with anyio.fail_after(BACK_WITHIN):
            await running.until_taken(1)
        back_in = round(anyio.current_time() - started, 2)
        await eventually(lambda: late.service is not None)
        await anyio.sleep(1)
        connections = server.log.read_bytes()[began:].count(b"connection received")
        figures = await running.ended_well(outages=1, started_meanwhile=1)
    record_property("outage", asdict(figures) | {"back_in": back_in, "connections": connections})
    print({"back_in": back_in, "connections": connections})
    assert figures.attempts == 1
    assert figures.refused > 0
    assert connections < 4 * CONNECTIONS


async def _away(running: Fleet) -> None:
    """What is so while the database is away."""
    (service,) = running.up()
    taken, asked = len(running.senders.acknowledged), running.lake.asked["load"]
    with anyio.move_on_after(AWAY):
        while True:
            status, wish = await _refused(service)
            assert (status, wish) == (503, "1")
            # Its like are in the same trouble: who took it out of traffic would have nobody left to say when to come.
            assert [await service.get(path) for path in ("/livez", "/readyz")] == [200, 200]
            await anyio.sleep(AWAY / 10)
    assert await _answers(service) == 0
    assert len(running.senders.acknowledged) == taken
    # What was claimed before is asked for, and no more.
    assert running.lake.asked["load"] - asked <= TABLES


async def _refused(service: Service) -> tuple[int, str]:
    answer: aiohttp.ClientResponse = await service.tell("t0")
    return answer.status, answer.headers["Retry-After"]


async def _answers(service: Service) -> float:
    """The metric of that name."""
    async with service.session.get(f"{service.url}/metrics") as answer:
        (value,) = re.findall(r"^sfn_inbox_answers (\S+)$", await answer.text(), re.MULTILINE)
        return float(value)
