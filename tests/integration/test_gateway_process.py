"""A gateway in a process of its own: what it costs, where it listens, how it ends."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import anyio
import psutil
import pytest

from tests.integration.gateways import Answering, Catalog, Line, Message, asked, catalog, parted
from tests.support.listener import Open, chunk
from tests.support.processes import until
from tests.support.service import SFN, Daemon, Lake, configure, serving

MIB = 1 << 20
LONG = 200 * MIB
SHORTER = 64 * MIB
"""Enough to show of the other ways to pass that nothing is gathered."""
PART = b"x" * 65_536
MOST_MORE = {LONG: 40 * MIB, SHORTER: 16 * MIB}
"""By the length of what passes."""
COMMIT = "/v1/namespaces/sales/tables/t"
CREATE = "/v1/namespaces/sales/tables"
TAKES = 2.0
"""Seconds, of a commit."""
Record = Callable[[str, object], None]


@pytest.fixture(name="behind")
async def fixture_behind() -> AsyncGenerator[Catalog]:
    """What is behind the gateway: it is no catalog that the service itself asks."""
    async with catalog() as made:
        yield made


def settings(world: Lake, behind: Catalog, more: str = "", drain: str = "10s") -> Path:
    gateway = f'[sweep]\nevery = "off"\n[gateway.prod]\nupstream = "{behind.uri}"\n{more}'
    return configure(world, gateway, drain)


def door(daemon: Daemon) -> Open:
    """Opens connections to the listener."""
    return Open(daemon.records("started")[0]["port"], None)


class Memory:
    """How much more a process takes than at first."""

    def __init__(self, daemon: Daemon) -> None:
        self._process = psutil.Process(daemon.process.pid)
        self._before = self._process.memory_info().rss
        self.most = 0

    async def watch(self) -> None:
        """For ever."""
        while True:
            self.most = max(self.most, self._process.memory_info().rss - self._before)
            await anyio.sleep(0.02)


async def warmed(daemon: Daemon) -> Memory:
    """A process that has served requests before it is measured."""
    for _ in range(20):
        async with door(daemon)() as wire:
            await wire.send(asked("/v1/x"))
            await wire.rest()
    return Memory(daemon)


def pouring(size: int, *, chunked: bool) -> Answering:
    """An answer of so many bytes."""

    async def pour(_request: Message, line: Line) -> None:
        length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size
        await line.send(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % length)
        for _ in range(size // len(PART)):
            await line.send(chunk(PART) if chunked else PART)
        await line.send(b"0\r\n\r\n" if chunked else b"")

    return pour


@pytest.mark.parametrize(("size", "target"), [(LONG, "/v1/x"), (SHORTER, COMMIT)])
async def test_a_long_answer_passes_in_little_memory(
    world: Lake, behind: Catalog, size: int, target: str, record_property: Record
) -> None:
    """Its client is slower than the catalog; that to a commit comes in chunks."""
    is_commit = target == COMMIT
    async with serving(settings(world, behind), command=SFN) as daemon:
        memory = await warmed(daemon)
        behind.answer = pouring(size, chunked=is_commit)
        async with anyio.create_task_group() as tasks, door(daemon)() as wire:
            tasks.start_soon(memory.watch)
            await wire.send(asked(target, method="POST" if is_commit else "GET"))
            await wire.head()
            await anyio.sleep(1)
            received = await wire.skip()
            tasks.cancel_scope.cancel()
    record_property("memory", memory.most)
    print({"long answer": memory.most / MIB})
    assert received >= size
    assert memory.most < MOST_MORE[size]


@pytest.mark.parametrize(
    ("size", "target", "chunked"),
    [(LONG, COMMIT, False), (SHORTER, COMMIT, True)]
    + [(SHORTER, target, chunked) for target in ("/v1/x", CREATE) for chunked in (False, True)],
)
async def test_a_long_body_passes_in_little_memory(
    world: Lake, behind: Catalog, size: int, target: str, chunked: bool, record_property: Record
) -> None:
    """The catalog is slower than the client; of a create the first part is read for the name in it."""
    taken = 0

    async def take(_: Message, line: Line) -> None:
        nonlocal taken
        await anyio.sleep(1)
        while taken < size:
            taken += len(await line.buffer.receive())
        await line.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    async with serving(settings(world, behind), command=SFN) as daemon:
        memory = await warmed(daemon)
        behind.answer, behind.reads = take, False
        length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
        async with anyio.create_task_group() as tasks, door(daemon)() as wire:
            tasks.start_soon(memory.watch)
            await wire.send(asked(target, length, method="POST"))
            for _ in range(size // len(PART)):
                await wire.send(chunk(PART) if chunked else PART)
            await wire.send(b"0\r\n\r\n" if chunked else b"")
            answer = parted(await wire.rest())
            tasks.cancel_scope.cancel()
    record_property("memory", memory.most)
    print({"long body": memory.most / MIB})
    assert (answer.status, taken >= size) == (200, True)
    assert memory.most < MOST_MORE[size]


async def test_a_gateway_has_a_listener_of_its_own(world: Lake, behind: Catalog) -> None:
    async with serving(settings(world, behind, 'host = "127.0.0.1"\nport = 0')) as daemon:
        (record,) = daemon.records("gateway listening")
        async with Open(record["port"], None)() as wire:
            await wire.send(asked("/v1/a%2Eb", root=""))
            assert parted(await wire.rest()).body == b"{}"
        assert behind.last.target == "/v1/a%2Eb"
        assert behind.last.value(b"x-forwarded-prefix") == b""


async def test_a_stop_waits_for_commits_that_are_on_their_way(world: Lake, behind: Catalog) -> None:
    async def commit(_: Message, line: Line) -> None:
        await anyio.sleep(TAKES)
        await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    behind.answer = commit
    answers: list[Message] = []

    async def send() -> None:
        async with door(daemon)() as wire:
            await wire.send(asked(COMMIT, method="POST").replace(b"Connection: close\r\n", b""))
            answers.append(parted(await wire.rest()))

    async with serving(settings(world, behind)) as daemon:
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(send)
            await until(lambda: len(behind.requests) == 8)
            daemon.send(signal.SIGTERM)
        assert await daemon.ended() == 0
        assert daemon.records("ended")
    assert [(one.status, one.body, one.value(b"connection")) for one in answers] == [(200, b"{}", b"close")] * 8


async def test_while_it_drains_each_connection_ends_with_its_next_answer(world: Lake, behind: Catalog) -> None:
    release = anyio.Event()

    async def hold(request: Message, line: Line) -> None:
        if request.target == COMMIT:
            await release.wait()
        await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    world.delay = 60
    world.commit("orders")
    async with serving(settings(world, behind, drain="5s")) as daemon:
        async with door(daemon)() as idle, door(daemon)() as busy:
            await idle.send(asked("/v1/x").replace(b"Connection: close\r\n", b""))
            assert "connection" not in (await idle.reply()).headers
            behind.answer = hold
            await busy.send(asked(COMMIT, method="POST").replace(b"Connection: close\r\n", b""))
            await daemon.tell("orders")
            await until(lambda: world.loads and len(behind.requests) == 2)
            daemon.send(signal.SIGTERM)
            await daemon.until_logged("draining")
            async with door(daemon)() as new:
                for wire in (idle, new):
                    await wire.send(asked("/v1/x").replace(b"Connection: close\r\n", b""))
                    assert (await wire.reply()).headers["connection"] == "close"
                    assert await wire.ended()
            release.set()
            assert (await busy.reply()).headers["connection"] == "close"
            assert await busy.ended()
        assert await daemon.ended() == 0
