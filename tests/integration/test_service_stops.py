"""Stops of the service."""

from __future__ import annotations

import signal
import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import httpx
import pytest

from tests.support.processes import until
from tests.support.service import Daemon, Lake, configure, lake, refused, serving, start

# ── Signals and failures


SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture(name="world")
async def fixture_world(tmp_path: Path) -> AsyncGenerator[Lake]:
    async with lake(tmp_path) as made:
        yield made


def assert_one_line(told: str, part: str) -> None:
    assert part in told
    assert told.count("\n") == 1
    assert "Traceback" not in told


async def post_until_refused(daemon: Daemon, sender: int, acknowledged: list[str], world: Lake) -> None:
    for number in range(10_000):
        name = f"t{sender}_{number}"
        world.commit(name)
        try:
            answer = await daemon.tell(name)
        except httpx.TransportError:
            return
        if answer.status_code != 202:
            assert answer.status_code == 503
            return
        acknowledged.append(name)


async def test_a_stop_under_load_loses_nothing_that_was_acknowledged(world: Lake) -> None:
    world.delay = 0.5
    configuration = configure(world, '[worker]\nconcurrency = 4\n[sweep]\nevery = "off"')
    acknowledged: list[str] = []
    async with serving(configuration) as daemon:
        async with anyio.create_task_group() as senders:
            for sender in range(8):
                senders.start_soon(post_until_refused, daemon, sender, acknowledged, world)
            await until(lambda: len(acknowledged) >= 60)
            daemon.send(signal.SIGTERM)
        assert await daemon.ended() == 0
        assert daemon.records("ended")
    assert any(world.published(name) is None for name in acknowledged)
    world.delay = 0
    async with serving(configuration) as daemon:
        await world.until_published(*acknowledged)
        assert {record["attempt"] for record in daemon.records("settled")} == {1}


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_stop_waits_for_what_runs(world: Lake, number: signal.Signals) -> None:
    world.delay = 1.0
    world.commit("orders")
    async with serving(configure(world, '[sweep]\nevery = "off"')) as daemon:
        await daemon.tell("orders")
        await until(lambda: world.loads)
        daemon.send(number)
        assert await daemon.ended() == 0
    await world.until_published("orders")


async def test_a_stop_waits_for_no_sweep(world: Lake) -> None:
    world.delay = 60
    world.commit("orders")
    configuration = configure(world, drain="60s")
    async with serving(configuration) as daemon:
        await until(lambda: world.loads)
        daemon.send(signal.SIGTERM)
        assert await daemon.ended(10) == 0
        (record,) = daemon.records("settled", table=None)
        assert (record["outcome"], record["why"]) == ("returned", "the service stops")
    world.delay = 0
    async with serving(configuration):
        await world.until_published("orders")


async def test_a_stop_during_the_start_is_a_stop_too(world: Lake) -> None:
    log = world.folder / "start.log"
    process = start(configure(world), log)
    try:
        await until(lambda: "listening" in log.read_text())
        process.send_signal(signal.SIGTERM)
        await until(lambda: process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0


async def test_what_does_not_end_in_time_is_given_back_without_an_attempt(world: Lake) -> None:
    world.delay = 60
    world.commit("orders")
    configuration = configure(world, '[sweep]\nevery = "off"', drain="300ms")
    async with serving(configuration) as daemon:
        await daemon.tell("orders")
        await until(lambda: "orders" in world.loads)
        daemon.send(signal.SIGTERM)
        assert await daemon.ended(10) == 0
        (record,) = daemon.records("settled", table="sales.orders")
        assert (record["outcome"], record["why"]) == ("returned", "the service stops")
    world.delay = 0
    async with serving(configuration) as daemon:
        done = await daemon.until_logged("settled", table="sales.orders", outcome="done")
        assert done["attempt"] == 1


async def test_while_it_drains_it_takes_nothing_and_says_so(world: Lake) -> None:
    world.delay = 60
    world.commit("orders")
    async with serving(configure(world, '[sweep]\nevery = "off"', drain="3s")) as daemon:
        await daemon.tell("orders")
        await until(lambda: "orders" in world.loads)
        daemon.send(signal.SIGTERM)
        await daemon.until_logged("draining")
        answers = [await daemon.tell("customers"), await daemon.client.get("/readyz")]
        assert [answer.status_code for answer in answers] == [503, 503]
        assert "draining" in answers[1].text
        assert (await daemon.client.get("/livez")).status_code == 200
        assert await daemon.ended() == 0


@pytest.mark.parametrize("second", SIGNALS)
async def test_a_second_signal_ends_it_at_once(world: Lake, second: signal.Signals) -> None:
    world.delay = 60
    world.commit("orders")
    async with serving(configure(world, '[sweep]\nevery = "off"', drain="60s")) as daemon:
        await daemon.tell("orders")
        await until(lambda: world.loads)
        daemon.send(signal.SIGTERM)
        await daemon.until_logged("draining")
        daemon.send(second)
        assert await daemon.ended(10) == 1


async def test_an_inbox_that_is_lost_ends_it_and_nothing_more_is_acknowledged(world: Lake) -> None:
    async with serving(configure(world)) as daemon:
        assert (await daemon.tell("orders")).status_code == 202
        (world.folder / "inbox" / "inbox.db").rename(world.folder / "elsewhere.db")
        try:
            answer = await daemon.tell("customers")
        except httpx.TransportError:
            pass
        else:
            assert answer.status_code == 503
        assert await daemon.ended() == 1
        record = daemon.records("service failed")[0]
        assert (record["level"], "inbox.db" in record["error"]) == ("error", True)
        assert not daemon.records("ended")


async def test_a_second_process_on_the_same_inbox_is_refused(world: Lake) -> None:
    configuration = configure(world)
    async with serving(configuration) as daemon:
        status, told = await refused(configuration)
        assert_one_line(told, "inbox.db")
        assert status == 1
        world.commit("orders")
        assert (await daemon.tell("orders")).status_code == 202
        await world.until_published("orders")


async def test_a_port_that_is_taken_is_one_line_and_1(world: Lake) -> None:
    configuration = configure(world)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, told = await refused(configuration, {"SFN_LISTENER__PORT": port})
    assert_one_line(told, f"127.0.0.1:{port}: expected a free address")
    assert status == 1
    assert not (world.folder / "inbox").exists()


async def test_an_inbox_that_cannot_be_written_is_one_line_and_1(world: Lake) -> None:
    file = world.folder / "file"
    file.write_text("not a folder")
    status, told = await refused(configure(world), {"SFN_INBOX__URL": f"sqlite:///{file}/inbox.db"})
    assert_one_line(told, str(file))
    assert status == 1


async def test_a_store_of_an_unknown_kind_is_one_line_and_2(world: Lake) -> None:
    status, told = await refused(configure(world, '[stores.far]\nprefix = "hdfs://cluster"'))
    assert_one_line(told, "[stores.far] prefix")
    assert status == 2


async def test_without_a_token_it_does_not_listen_to_the_network(world: Lake) -> None:
    configuration = configure(world)
    configuration.write_text(configuration.read_text().split("[senders.etl]", maxsplit=1)[0])
    status, told = await refused(configuration, {"SFN_LISTENER__HOST": "0.0.0.0"})  # noqa: S104 - must be refused
    assert_one_line(told, "loopback")
    assert status == 2


# ── Parts that never return


QUIET = '[sweep]\nevery = "off"'
HUNG = ("tests.integration.child_processes", "hung")


async def until_it_hangs(daemon: Daemon, world: Lake) -> None:
    """Tell of a table, and give the publish the time to come to its first read."""
    world.commit("orders")
    await daemon.tell("orders")
    await until(lambda: world.loads)
    await anyio.sleep(0.5)


async def test_a_file_system_that_hangs_does_not_keep_the_process_alive(world: Lake) -> None:
    configuration = configure(world, QUIET, drain="300ms")
    async with serving(configuration, command=(*HUNG, "files")) as daemon:
        await until_it_hangs(daemon, world)
        daemon.send(signal.SIGTERM)
        assert await daemon.ended(10) == 1
        (given_back,) = daemon.records("settled", table="sales.orders")
        assert (given_back["outcome"], given_back["why"]) == ("returned", "the service stops")
        (told,) = daemon.records("hanging calls abandoned")
        assert told["level"] == "error"
        assert told["hanging"]
        assert all(f"{world.directory('orders')}/metadata/" in call for call in told["hanging"])
    async with serving(configuration) as daemon:
        done = await daemon.until_logged("settled", table="sales.orders", outcome="done")
        assert done["attempt"] == 1


async def test_a_wait_that_nobody_bounded_does_not_keep_the_process_alive(world: Lake) -> None:
    configuration = configure(world, QUIET, drain="300ms")
    async with serving(configuration, command=(*HUNG, "wait")) as daemon:
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
