"""A signal ends the service even where something never returns; it says what, and it ends with 1."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from tests.integration.lake import Lake, lake
from tests.integration.process import Daemon, configure, serving
from tests.integration.waiting import until

QUIET = '[sweep]\nevery = "off"'
HUNG = "tests.integration.hung_service"


@pytest.fixture(name="world")
async def fixture_world(tmp_path: Path) -> AsyncGenerator[Lake]:
    async with lake(tmp_path) as made:
        yield made


async def until_it_hangs(daemon: Daemon, world: Lake) -> None:
    """Tell of a table, and give the publish the time to come to its first read."""
    world.commit("orders")
    await daemon.tell("orders")
    await until(lambda: world.loads)
    await anyio.sleep(0.5)


async def test_a_file_system_that_hangs_does_not_keep_the_process_alive(world: Lake) -> None:
    configuration = configure(world, QUIET, drain="300ms")
    async with serving(configuration, command=(HUNG, "files")) as daemon:
        await until_it_hangs(daemon, world)
        daemon.send(signal.SIGTERM)
        assert await daemon.ended(10) == 1
        (given_back,) = daemon.records("settled", table="sales.orders")
        assert (given_back["outcome"], given_back["why"]) == ("returned", "the service stops")
        (told,) = daemon.records("the service ends without what hangs")
        assert told["level"] == "error"
        assert told["hanging"]
        assert all(f"{world.directory('orders')}/metadata/" in call for call in told["hanging"])
    async with serving(configuration) as daemon:
        done = await daemon.until_logged("settled", table="sales.orders", outcome="done")
        assert done["attempt"] == 1


async def test_a_wait_that_nobody_bounded_does_not_keep_the_process_alive(world: Lake) -> None:
    configuration = configure(world, QUIET, drain="300ms")
    async with serving(configuration, command=(HUNG, "wait")) as daemon:
        await until_it_hangs(daemon, world)
        daemon.send(signal.SIGTERM)
        assert await daemon.ended(10) == 1
        told = daemon.log.read_text()
        assert "Timeout (0:00:01.3" in told
        assert "Thread 0x" in told


async def test_the_longest_drain_ends_when_nothing_runs(world: Lake) -> None:
    configuration = configure(world, QUIET, drain="36500d")
    async with serving(configuration) as daemon:
        daemon.send(signal.SIGTERM)
        assert await daemon.ended() == 0
