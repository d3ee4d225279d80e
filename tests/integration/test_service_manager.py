"""What a real `sfn serve` sends to the service manager that started it."""

from __future__ import annotations

import json
import re
import signal
import socket
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import pytest

from tests.support.processes import Running, until
from tests.support.service import Lake, configure, serving, start

LIMIT: Final = 0.6
"""Seconds within which the watchdog expects a sign of life."""
PING: Final = "WATCHDOG=1"


@dataclass(slots=True)
class Manager:
    """A service manager's notification socket.

    Attributes:
        address: as the process is given it.
        received: notifications so far, each with the time of its arrival.
    """

    address: str
    socket: socket.socket
    received: list[tuple[float, str]] = field(default_factory=list)

    @property
    def environ(self) -> Mapping[str, str]:
        return {"NOTIFY_SOCKET": self.address, "WATCHDOG_USEC": f"{LIMIT * 1e6:.0f}"}

    def take(self) -> list[str]:
        """Read what has arrived, and return it."""
        taken: list[str] = []
        while True:
            try:
                text = self.socket.recv(4096).decode()
            except BlockingIOError:
                return taken
            self.received.append((time.monotonic(), text))
            taken.append(text)

    async def until(self, start: str, within: float = 20.0) -> str:
        """Wait for a notification that begins so, and return it."""

        def arrived() -> str | None:
            return next((one for one in self.take() if one.startswith(start)), None)

        with anyio.fail_after(within):
            while (found := arrived()) is None:  # noqa: ASYNC110 - no event crosses processes
                await anyio.sleep(0.01)
        return found


@pytest.fixture(name="manager", params=["path", "abstract"])
def fixture_manager(request: pytest.FixtureRequest) -> Iterator[Manager]:
    """A manager. The path of its socket is short, because an address has 108 bytes at most."""
    with (
        tempfile.TemporaryDirectory(prefix="sfn-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified,
    ):
        path = f"{folder}/notify"
        is_abstract = request.param == "abstract"
        notified.bind(f"\0{path}" if is_abstract else path)
        notified.setblocking(False)
        yield Manager(f"@{path}" if is_abstract else path, notified)


@asynccontextmanager
async def begun(world: Lake, environ: Mapping[str, str]) -> AsyncGenerator[tuple[Running, Path]]:
    """A process that begins to start, with its log; killed in the end if it still runs."""
    log = world.folder / "0.log"
    process = start(configure(world), log, environ)
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


def record(log: Path, event: str) -> dict[str, Any]:
    found = (json.loads(line) for line in log.read_text().splitlines())
    return next(one for one in found if one["event"] == event)


async def test_ready_is_sent_once_requests_are_answered(world: Lake, manager: Manager) -> None:
    async with begun(world, manager.environ) as (_, log):
        assert await manager.until("READY=1") == "READY=1\nSTATUS=ready"
        url = record(log, "started")["url"]
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"{url}/readyz")).status_code == 200
    texts = [text for _, text in manager.received if text != PING]
    assert texts == ["STATUS=opening the inbox", "READY=1\nSTATUS=ready"]


async def test_ready_waits_for_the_inbox(world: Lake, manager: Manager) -> None:
    async with serving(configure(world)) as holder, begun(world, manager.environ) as (process, log):
        # The inbox is in use, so the process ends.
        await until(lambda: process.poll() is not None)
        assert process.returncode == 1, log.read_text()
        assert manager.take() == ["STATUS=opening the inbox"]
        assert holder.process.poll() is None


async def test_signs_of_life_come_in_time_and_stop_with_the_process(world: Lake, manager: Manager) -> None:
    async with begun(world, manager.environ) as (process, _):
        await manager.until("READY=1")
        for _ in range(5):
            await manager.until(PING)
        process.send_signal(signal.SIGSTOP)
        manager.take()
        await anyio.sleep(LIMIT * 2)
        assert len(manager.take()) <= 1
        process.send_signal(signal.SIGCONT)
        await manager.until(PING)


async def test_stopping_is_sent_before_the_end(world: Lake, manager: Manager) -> None:
    async with serving(configure(world, drain="10s"), manager.environ) as daemon:
        # Work that is under way delays the end.
        world.delay = 1.0
        world.commit("orders")
        assert (await daemon.tell("orders")).status_code == 202
        await until(lambda: world.loads)
        daemon.send(signal.SIGTERM)
        told = await manager.until("STOPPING=1")
        assert daemon.process.poll() is None
        assert told.endswith("\nSTATUS=draining for at most 10 s after SIGTERM")
        limit = re.search(r"^EXTEND_TIMEOUT_USEC=(\d+)$", told, re.MULTILINE)
        assert limit is not None
        # The drain, and what the process takes at most to end by force.
        assert int(limit[1]) == 100_000_000
        assert await daemon.ended() == 0


@pytest.mark.parametrize("address", ["/nonexistent/notify", "@no-manager-has-this-name"])
async def test_a_socket_that_nothing_reads_disturbs_nothing(world: Lake, address: str) -> None:
    async with serving(configure(world), {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "300000"}) as daemon:
        assert (await daemon.client.get("/livez")).status_code == 200
        daemon.send(signal.SIGTERM)
        assert await daemon.ended() == 0
        assert len(daemon.records("service manager not notified")) == 1


async def test_without_a_service_manager_nothing_is_logged_of_one(world: Lake) -> None:
    async with serving(configure(world), {"NOTIFY_SOCKET": ""}) as daemon:
        daemon.send(signal.SIGTERM)
        assert await daemon.ended() == 0
        assert not daemon.records("service manager not notified")
