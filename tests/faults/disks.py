"""A small disk of one process's own, and events that fill it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest

from tests.faults.lake import Lake
from tests.faults.service import Service

FILLING = 16_000
MOST = 2_000
_SMALL = 'mount -t tmpfs -o size=6m tmpfs "$0" && head -c 3M /dev/zero > "$0/ballast" && exec "$@"'


def small(disk: Path) -> Sequence[str]:
    """A launcher whose process sees a small disk in a folder, half of it a file `ballast`; the folder is made."""
    disk.mkdir()
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", _SMALL, str(disk)]


async def filled(service: Service, lake: Lake, filling: int = FILLING) -> tuple[set[str], int | None]:
    """Post events until one is refused: the ids of those that were not, and the refusal's status.

    The status is None if the connection ended without an answer.

    Args:
        filling: bytes of an event that mean nothing.
    """
    taken: set[str] = set()
    for number in range(MOST):
        lake.tables["orders"].commit()
        event_id = f"e{filling}-{number}"
        status: int | None
        try:
            status = await service.post("orders", event_id, filling="x" * filling)
        except aiohttp.ClientConnectionError:
            status = None
        if status != 202:
            return taken, status
        taken.add(event_id)
    pytest.fail(f"{MOST} events were taken")


def mounted_alone(folder: Path) -> Sequence[str]:
    """A launcher whose process sees a folder as a mount of its own, which `remount` changes."""
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount --bind "$0" "$0" && exec "$@"', str(folder)]


def remount(service: Service, folder: Path, mode: str) -> None:
    """Mount a folder of `mounted_alone` anew, `ro` or `rw`, under the feet of the process."""
    enter = ["nsenter", "--target", str(service.child().pid), "--user", "--mount", "--preserve-credentials"]
    subprocess.run([*enter, "mount", "-o", f"remount,bind,{mode}", str(folder)], check=True)
