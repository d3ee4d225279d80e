"""What a store promises to several processes at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from sfn.domain.jobs import StoredObject
from tests.promises.stores import ADAPTERS, Ground, Opened
from tests.support.processes import Fork

PROCESSES, SWAPS = 8, 20


@pytest.fixture(params=[name for name in ADAPTERS if name != "memory"])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    async with ADAPTERS[request.param](request, tmp_path) as ground:
        yield ground


def count_up(opened: Opened, key: str) -> None:
    """Add 1 to the number in a file, so many times, each by compare-and-swap."""

    async def run() -> None:
        async with opened() as store:
            turns = SWAPS
            while turns:
                held = await store.read(key)
                assert held is not None
                written = await store.write(key, b"%d" % (int(held.body) + 1), held)
                turns -= isinstance(written, StoredObject)

    anyio.run(run)


@pytest.mark.slow
async def test_concurrent_processes_lose_no_update(ground: Ground) -> None:
    assert isinstance(await ground.store.write(ground.key, b"0", None), StoredObject)
    processes = [Fork(count_up, ground.elsewhere, ground.key) for _ in range(PROCESSES)]
    for process in processes:
        assert await anyio.to_thread.run_sync(process.wait, 60) == 0
    held = await ground.store.read(ground.key)
    assert held is not None
    assert int(held.body) == PROCESSES * SWAPS
