"""A store that becomes read-only for a while: no table is given up for it, and all are published once it is back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.faults import inboxes
from tests.faults.disks import mounted_alone, remount
from tests.faults.lake import Lake, serving
from tests.faults.service import OPERATOR, Service, Setting, eventually, running

TABLES = [f"t{number:02d}" for number in range(12)]
LATE = 2.0
"""Seconds that tables wait at least: each of them is tried more than once meanwhile."""
Change = Callable[[Service, Path, str], None]


def remounted(service: Service, warehouse: Path, mode: str) -> None:
    """EROFS: the file system is mounted anew."""
    remount(service, warehouse, mode)


def forbidden(_service: Service, warehouse: Path, mode: str) -> None:
    """EACCES: the modes of all folders change."""
    for folder, _, _ in os.walk(warehouse, topdown=False):
        Path(folder).chmod(0o755 if mode == "rw" else 0o555)


def launched(change: Change, warehouse: Path) -> list[str]:
    """A launcher of a process that the change applies to."""
    if change is remounted:
        return list(mounted_alone(warehouse))
    # Root may write everywhere, unless it gives that up.
    return ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"] if os.geteuid() == 0 else []


@contextmanager
def read_only(change: Change, service: Service, warehouse: Path) -> Iterator[None]:
    change(service, warehouse, "ro")
    try:
        yield
    finally:
        change(service, warehouse, "rw")


async def status(service: Service) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    async with service.session.get(f"{service.url}/admin/v1/status", headers=headers) as answer:
        return dict(await answer.json())


async def metric(service: Service, name: str) -> float:
    async with service.session.get(f"{service.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.parametrize("change", [remounted, forbidden])
@pytest.mark.parametrize("warm", [6, 0], ids=["half of the tables published before", "nothing published before"])
async def test_a_store_that_is_read_only_for_a_while_gives_no_table_up(
    tmp_path: Path, change: Change, warm: int
) -> None:
    lake = Lake(tmp_path / "warehouse")
    for name in TABLES:
        lake.create(name)
    setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, launcher=launched(change, lake.warehouse))
    async with serving(lake), running(setting) as service:
        for name in TABLES[:warm]:
            assert await service.post(name) == 202
        await eventually(lambda: not set(TABLES[:warm]) & set(lake.wrong()))
        for name in TABLES:
            lake.tables[name].commit()
        with read_only(change, service, lake.warehouse):
            for name in TABLES:
                assert await service.post(name) == 202
            await eventually(lambda: any(record.get("event") == "store unreachable" for record in service.records()))
            # So long that each would have been tried again, if it were its own trouble.
            await anyio.sleep(LATE)
            seen = await status(service)
            assert [one["scope"] for one in seen["breakers"] if one["allowed_probes"] <= 1]
            assert seen["dead_letters"] == {}
            assert await metric(service, 'sfn_oldest_pending_age_seconds{catalog="lake"}') >= LATE
        await eventually(lambda: not lake.wrong())
        assert (await status(service))["dead_letters"] == {}
        assert inboxes.letters(setting.database) == {}
        assert not service.told("dead")
        assert not service.told("retry")
