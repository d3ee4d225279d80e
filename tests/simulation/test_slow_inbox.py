"""Directed histories of an inbox that takes longer over a transaction than a lease lasts."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.script import PLACE, Stage
from tests.simulation.times import TERMS

FILE = f"{PLACE}/metadata/_sfn/n_a_main.ver"
LEASE = TERMS.lease.total_seconds()


@pytest.mark.parametrize("before", range(0, 8, 2))
def test_a_slow_inbox_takes_no_lease_from_who_works(before: int) -> None:
    """Rule 3: who asks for more is no dead process, whether its renewal waits before that question or behind it."""
    stage = Stage()

    async def act() -> None:
        stage.service.nodes.pop().stop.set()
        stage.create("a")
        working = stage.hold(f"before write {FILE}")
        await stage.hint("a")
        await working.reached.wait()
        for _ in range(5):
            await asyncio.sleep(before)
            stage.service.occupy(LEASE + 5)
            await stage.hint("b")
            await asyncio.sleep(2 * LEASE)
        row = stage.row("a")
        assert row is not None
        assert (row.attempt, row.crashes) == (1, 0)
        working.go.set()

    assert stage.run(act, briefly=True) == []
    assert stage.world.counts["fenced"] == 0
