"""Notifications to a service manager, received at a real socket."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from sfn.app.service_manager import NO_MANAGER, ServiceManager
from sfn.settings.environment import ServiceManagerAddress

WATCHDOG = timedelta(milliseconds=300)


@contextmanager
def bound(address: str) -> Iterator[socket.socket]:
    """The notification socket of a manager, at an address as systemd writes it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        manager.setblocking(False)
        yield manager


def received(manager: socket.socket) -> list[str]:
    """All notifications that wait."""
    found = []
    while True:
        try:
            found.append(manager.recv(4096).decode())
        except BlockingIOError:
            return found


@pytest.fixture(name="folder")
def fixture_folder() -> Iterator[Path]:
    """A folder with a short path: the address of a socket has 108 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="sfn-") as name:
        yield Path(name)


@pytest.mark.parametrize("is_abstract", [False, True])
def test_each_notification_is_one_datagram(folder: Path, is_abstract: bool) -> None:
    address = f"@{folder}" if is_abstract else str(folder / "notify")
    with bound(address) as socket_of_manager:
        manager = ServiceManager(ServiceManagerAddress(address))
        manager.starting("opening the inbox")
        manager.ready("ready")
        manager.stopping("draining", timedelta(seconds=1.5))
        assert received(socket_of_manager) == [
            "STATUS=opening the inbox",
            "READY=1\nSTATUS=ready",
            "STOPPING=1\nEXTEND_TIMEOUT_USEC=1500000\nSTATUS=draining",
        ]


async def test_signs_of_life_come_more_often_than_the_watchdog_expects(folder: Path) -> None:
    address = str(folder / "notify")
    with bound(address) as socket_of_manager:
        manager = ServiceManager(ServiceManagerAddress(address, WATCHDOG))
        with anyio.move_on_after(5 * WATCHDOG.total_seconds()):
            await manager.keep_alive()
        # Two for each time limit, on a machine that is busy with other tests.
        assert len(received(socket_of_manager)) >= 10


async def test_a_hanging_event_loop_sends_no_signs_of_life(folder: Path) -> None:
    address = str(folder / "notify")
    with bound(address) as socket_of_manager:
        manager = ServiceManager(ServiceManagerAddress(address, WATCHDOG))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.keep_alive)
            await anyio.sleep(0.01)
            assert received(socket_of_manager) == ["WATCHDOG=1"]
            time.sleep(2 * WATCHDOG.total_seconds())  # noqa: ASYNC251 - the loop hangs
            assert received(socket_of_manager) == []
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("manager", [NO_MANAGER, ServiceManager(ServiceManagerAddress("@none-has-this-name"))])
async def test_without_a_watchdog_there_is_nothing_to_keep_alive(manager: ServiceManager) -> None:
    with anyio.fail_after(5), capture_logs() as logs:
        await manager.keep_alive()
    assert logs == []


def test_without_a_manager_nothing_is_sent() -> None:
    with capture_logs() as logs:
        NO_MANAGER.starting("a")
        NO_MANAGER.ready("b")
        NO_MANAGER.stopping("c", timedelta(seconds=1))
    assert logs == []


def test_a_socket_that_nothing_reads_is_logged_once(folder: Path) -> None:
    manager = ServiceManager(ServiceManagerAddress(str(folder / "notify")))
    with capture_logs() as logs:
        manager.ready("ready")
        manager.stopping("draining", timedelta(seconds=1))
    assert [(entry["event"], entry["error"]) for entry in logs] == [
        ("service manager not notified", "No such file or directory")
    ]


def test_a_full_queue_does_not_block(folder: Path) -> None:
    address = str(folder / "notify")
    with bound(address), capture_logs() as logs:
        manager = ServiceManager(ServiceManagerAddress(address))
        begun = time.monotonic()
        for _ in range(5000):
            manager.starting("again")
        assert time.monotonic() - begun < 30
    assert [entry["error"] for entry in logs] == ["Resource temporarily unavailable"]
