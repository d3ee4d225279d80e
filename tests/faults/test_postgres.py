"""Faults of an inbox in PostgreSQL: outages, processes that are killed or suspended, and connections that are cut."""

from __future__ import annotations

import fcntl
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

import aiohttp
import anyio
import anyio.to_thread
import psutil
import pytest

from sfn.inbox.postgres_server import UNCERTAIN
from sfn.inbox.schema import encode_key
from tests.faults.altered_service import SLOW
from tests.faults.fleet import ROUNDS, TABLES, Fleet, Replica, fleet
from tests.faults.lake import Lake
from tests.faults.postgres_wire import Cut, cutting
from tests.faults.service import Service, eventually
from tests.servers.postgres import PgBouncer, Postgres
from tests.support.shared_inboxes import stored, stored_jobs

AWAY = 3.0
"""Seconds of an outage: several times the longest pause before anything is tried again."""
BACK_WITHIN = 10.0
CONNECTIONS = 8
"""Most connections of one process."""
Record = Callable[[str, object], None]

LEASE = 2.0
STOPPED_WITHIN = 30.0
KILLED_EVERY = 1.0
LEASED = "SELECT count(*) FROM sfn.job WHERE state = 'leased'"
IN_TRANSACTION = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'iceberg-sfn' "
    "AND xact_start IS NOT NULL"
)

CUTS = {Cut.BEFORE: 0.05, Cut.AFTER: 0.1, None: 0.85}
"""Shares of all COMMITs."""
CUT_STATEMENTS = 0.1
"""Share of all statements before a COMMIT."""
APPLIED_WITHIN = 10.0
STEPS = 6
"""More than the transactions before a process accepts events."""


@pytest.fixture(name="server", scope="module")
def fixture_server() -> Iterator[Postgres]:
    """A server for these tests alone."""
    with Postgres() as server:
        server.execute("ALTER SYSTEM SET log_connections = on")
        server.execute("SELECT pg_reload_conf()")
        yield server


@pytest.fixture(name="dsn")
def fixture_dsn(server: Postgres) -> Iterator[str]:
    with server.database() as name:
        yield server.dsn(name)


async def test_no_event_is_lost_when_the_server_crashes_again_and_again(
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


async def test_an_outage_refuses_events_and_ends_without_a_burst_of_connections(
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
    """Check the answers of a service while the database is down."""
    (service,) = running.up()
    accepted, loaded = len(running.senders.acknowledged), running.lake.asked["load"]
    with anyio.move_on_after(AWAY):
        while True:
            status, pause = await _refused(service)
            assert (status, pause) == (503, "1")
            # All processes have the same trouble: without any in traffic, no answer would say when to try again.
            assert [await service.get(path) for path in ("/livez", "/readyz")] == [200, 200]
            await anyio.sleep(AWAY / 10)
    assert await _answers(service) == 0
    assert len(running.senders.acknowledged) == accepted
    # Jobs that were claimed before are processed, and no more.
    assert running.lake.asked["load"] - loaded <= TABLES


async def _refused(service: Service) -> tuple[int, str]:
    answer: aiohttp.ClientResponse = await service.tell("t0")
    return answer.status, answer.headers["Retry-After"]


async def _answers(service: Service) -> float:
    """Return the metric that says whether the inbox answers."""
    async with service.session.get(f"{service.url}/metrics") as answer:
        (value,) = re.findall(r"^sfn_inbox_answers (\S+)$", await answer.text(), re.MULTILINE)
        return float(value)


async def test_no_event_is_lost_when_one_of_two_processes_is_killed_every_second(
    postgres: Postgres, database: str, tmp_path: Path, record_property: Record
) -> None:
    dsn = postgres.dsn(database)
    async with fleet(tmp_path, dsn, dsn, lease=f"{LEASE:g}s", module=SLOW) as running:
        for _ in range(ROUNDS):
            # The other one accepts events.
            await running.until_taken(1)
            await anyio.sleep(running.senders.chance.uniform(0.5, 1.5) * KILLED_EVERY)
            running.senders.chance.choice(running.replicas).kill()
        figures = await running.ended_well(kills=ROUNDS)
        taken_over = [record for record in running.told("settled") if record["attempt"] > 1]
    record_property("kills", asdict(figures) | {"taken_over": len(taken_over)})
    assert taken_over


async def test_a_process_that_was_suspended_past_its_leases_writes_no_older_file(
    postgres: Postgres, database: str, tmp_path: Path, record_property: Record
) -> None:
    dsn = postgres.dsn(database)
    async with fleet(tmp_path, dsn, dsn, replicas=1, lease=f"{LEASE:g}s", module=SLOW) as running:
        (suspended,) = running.replicas
        await eventually(lambda: len(running.told("settled")) > 10)
        # This leaves time between two transactions.
        running.lake.delay, running.senders.pause = 0.1, 0.2
        with anyio.fail_after(STOPPED_WITHIN):
            process = await _stopped(running, suspended, dsn)
        other = running.start()
        await eventually(lambda: other.told("settled"))
        lengths = running.lake.lengths()
        await eventually(lambda: not running.lake.behind(lengths))
        process.resume()
        await eventually(lambda: suspended.told("lease lost"))
        settled = len(suspended.told("settled"))
        await eventually(lambda: len(suspended.told("settled")) > settled)
        figures = await running.ended_well(stops=1)
    record_property("suspended", asdict(figures))


async def _stopped(running: Fleet, replica: Replica, dsn: str) -> psutil.Process:
    """Suspend a process while it has claims, but neither a transaction nor a lock of a folder, which delay others."""
    assert replica.service is not None
    process = replica.service.child()
    while True:
        process.suspend()
        (transactions,) = await stored(dsn, IN_TRANSACTION)
        (leased,) = await stored(dsn, LEASED)
        if leased > 1 and not transactions and not _is_any_locked(running.lake):
            replica.service = None
            return process
        process.resume()
        await anyio.sleep(running.senders.chance.uniform(0.01, 0.1))


def _is_any_locked(lake: Lake) -> bool:
    for table in lake.tables.values():
        for folder in (table.directory / "metadata", table.directory / "metadata" / "_sfn"):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
    return False


async def test_no_event_is_lost_when_connections_are_cut_around_commits(
    postgres: Postgres, database: str, tmp_path: Path, record_property: Record
) -> None:
    chance = random.Random(1)
    dsn = postgres.dsn(database)
    async with cutting(postgres.port) as wire:
        url = f"{dsn.replace(f':{postgres.port}/', f':{wire.port}/')}?sslmode=disable"
        # At first, every other COMMIT of a start.
        wire.cut = lambda: Cut.AFTER if wire.commits < 2 * STEPS and wire.commits % 2 else None
        async with fleet(tmp_path, url, dsn) as running:
            wire.cut = lambda: chance.choices(list(CUTS), list(CUTS.values()))[0]
            await eventually(lambda: min(wire.counts[cut] for cut in Cut) >= 2 * ROUNDS, within=30 * ROUNDS)
            wire.cut = lambda: None
            figures = await running.ended_well(commits=wire.commits, **wire.counts)
    record_property("cuts", asdict(figures))
    # An append has no COMMIT, so no event is refused.
    assert figures.attempts == 1


@pytest.mark.parametrize("is_pooled", [False, True], ids=["direct", "pooled"])
async def test_every_event_is_applied_once_when_connections_are_cut_before_commits(
    postgres: Postgres, database: str, tmp_path: Path, record_property: Record, *, is_pooled: bool
) -> None:
    """The server rolls these transactions back. Behind a pooler an append is such a transaction, too."""
    chance = random.Random(1)
    dsn = postgres.dsn(database)
    async with AsyncExitStack() as stack:
        port = stack.enter_context(PgBouncer(postgres)).port if is_pooled else postgres.port
        wire = await stack.enter_async_context(cutting(port))
        url = f"{dsn.replace(f':{postgres.port}/', f':{wire.port}/')}?sslmode=disable"
        async with fleet(tmp_path, url, dsn) as running:
            await running.until_taken(TABLES)
            wire.cuts_statement = lambda: chance.random() < CUT_STATEMENTS
            await eventually(
                lambda: wire.cut_statements >= 20 * ROUNDS and _unchanged(running, "inbox call failed"),
                within=30 * ROUNDS,
            )
            wire.cuts_statement = lambda: False
            figures = await running.ended_well(cut_statements=wire.cut_statements)
            applied = await _applied(dsn)
            uncertain = len(running.told("events not stored")) - len(_unchanged(running, "events not stored"))
    record_property("cuts before commits", asdict(figures))
    assert figures.refused > 0
    # What was refused changed nothing: no claim without a worker, no settle without its result.
    assert (figures.attempts, figures.fenced) == (1, 0)
    assert applied == Counter(await stored(dsn, "SELECT key FROM sfn.event WHERE kind = 1"))
    if is_pooled:
        # An append that is one statement may have been committed without a COMMIT.
        assert uncertain == 0


def _unchanged(running: Fleet, event: str) -> list[str]:
    """Return the logged errors that say for certain that nothing was changed, after two lost connections in a row."""
    return [record["error"] for record in running.told(event) if f"({UNCERTAIN})" not in record["error"]]


async def _applied(dsn: str) -> Counter[str]:
    """Return how many notifications of each job were applied, once all are."""
    with anyio.fail_after(APPLIED_WITHIN):
        while await stored(dsn, "SELECT count(*) FROM sfn.pending") != [0]:  # noqa: ASYNC110 - only the server knows
            await anyio.sleep(0.1)
    return Counter({encode_key(subject): job.version for subject, job in (await stored_jobs(dsn)).items()})


async def test_no_event_is_lost_when_pgbouncer_is_restarted(
    postgres: Postgres, database: str, tmp_path: Path, record_property: Record
) -> None:
    with PgBouncer(postgres) as pooler:
        async with fleet(tmp_path, pooler.dsn(database), postgres.dsn(database)) as running:
            await anyio.sleep(1.5)
            pooler.stop()
            await anyio.sleep(0.7)
            await anyio.to_thread.run_sync(pooler.start)
            await anyio.sleep(1.5)
            figures = await running.ended_well(restarts=1)
            (opened, *_) = running.replicas[0].told("inbox opened")
    record_property("pooler", asdict(figures))
    assert opened["pooled"]
    assert figures.attempts == 1
    assert figures.refused > 0
