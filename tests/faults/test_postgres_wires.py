"""Connections to the inbox's database that end in the worst moment: nothing is lost, or taken for a crash."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import anyio
import anyio.to_thread

from tests.faults.cutting import Cut, cutting
from tests.faults.fleet import ROUNDS, fleet
from tests.faults.service import eventually
from tests.servers.postgres import PgBouncer, Postgres

OFTEN = {Cut.BEFORE: 0.05, Cut.AFTER: 0.1, None: 0.85}
"""Of all COMMITs."""
STEPS = 6
"""More than transactions before a process takes events."""
Record = Callable[[str, object], None]


async def test_connections_are_cut_around_a_commit(
    postgres: Postgres, database: str, tmp_path: Path, record_property: Record
) -> None:
    chance = random.Random(1)
    dsn = postgres.dsn(database)
    async with cutting(postgres.port) as wire:
        url = f"{dsn.replace(f':{postgres.port}/', f':{wire.port}/')}?sslmode=disable"
        # Every other one of those that a start makes, at first.
        wire.cut = lambda: Cut.AFTER if wire.commits < 2 * STEPS and wire.commits % 2 else None
        async with fleet(tmp_path, url, dsn) as running:
            wire.cut = lambda: chance.choices(list(OFTEN), list(OFTEN.values()))[0]
            await eventually(lambda: min(wire.counts[cut] for cut in Cut) >= 2 * ROUNDS, within=30 * ROUNDS)
            wire.cut = lambda: None
            figures = await running.ended_well(commits=wire.commits, **wire.counts)
    record_property("cuts", asdict(figures))
    assert figures.attempts == 1
    assert figures.refused > 0


async def test_pgbouncer_is_started_anew(
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
