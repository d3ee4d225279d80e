"""Two processes on one inbox, of which one is killed or stands still: the other one goes on, and no file goes back."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import anyio
import psutil

from tests.faults.fleet import ROUNDS, Fleet, Replica, fleet, leased
from tests.faults.lake import Lake
from tests.faults.service import eventually
from tests.servers.postgres import Postgres
from tests.support.shared_inboxes import stored

LEASE = 2.0
STOPPED_WITHIN = 30.0
KILLED_EVERY = 1.0
SLOW = "tests.faults.slow_service"
IN_TRANSACTION = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'iceberg-sfn' "
    "AND xact_start IS NOT NULL"
)
Record = Callable[[str, object], None]


async def test_one_of_two_is_killed_every_second(
    postgres: Postgres, database: str, tmp_path: Path, record_property: Record
) -> None:
    dsn = postgres.dsn(database)
    async with fleet(tmp_path, dsn, dsn, lease=f"{LEASE:g}s", module=SLOW) as running:
        for _ in range(ROUNDS):
            # Whichever it is, there is somebody who takes events.
            await running.until_taken(1)
            await anyio.sleep(running.senders.chance.uniform(0.5, 1.5) * KILLED_EVERY)
            running.senders.chance.choice(running.replicas).kill()
        figures = await running.ended_well(kills=ROUNDS)
        taken_over = [record for record in running.told("settled") if record["attempt"] > 1]
    record_property("kills", asdict(figures) | {"taken_over": len(taken_over)})
    assert taken_over


async def test_a_process_that_slept_through_its_leases_writes_nothing_that_is_older(
    postgres: Postgres, database: str, tmp_path: Path, record_property: Record
) -> None:
    dsn = postgres.dsn(database)
    async with fleet(tmp_path, dsn, dsn, replicas=1, lease=f"{LEASE:g}s", module=SLOW) as running:
        (zombie,) = running.replicas
        await eventually(lambda: len(running.told("settled")) > 10)
        # Time enough between two transactions.
        running.lake.delay, running.senders.pause = 0.1, 0.2
        with anyio.fail_after(STOPPED_WITHIN):
            process = await _stopped(running, zombie, dsn)
        other = running.start()
        await eventually(lambda: other.told("settled"))
        lengths = running.lake.lengths()
        await eventually(lambda: not running.lake.behind(lengths))
        process.resume()
        await eventually(lambda: zombie.told("lease lost"))
        settled = len(zombie.told("settled"))
        await eventually(lambda: len(zombie.told("settled")) > settled)
        figures = await running.ended_well(stops=1)
    record_property("zombie", asdict(figures))


async def _stopped(running: Fleet, replica: Replica, dsn: str) -> psutil.Process:
    """Stop a process while it has claims, but no transaction and no folder's lock: who needs those waits for long."""
    assert replica.service is not None
    process = replica.service.child()
    while True:
        process.suspend()
        (transactions,) = await stored(dsn, IN_TRANSACTION)
        if await leased(dsn) > 1 and not transactions and not _is_any_locked(running.lake):
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
