"""Processes that each do a part of the service, on one inbox in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import anyio
import anyio.to_thread
import pytest

from sfn.inbox.postgres.worklist import POLLED
from tests.acceptance.command import sfn
from tests.faults.lake import NAMESPACE, Lake, serving
from tests.faults.service import CATALOG, OPERATOR, Service, Setting, eventually, started
from tests.servers.postgres import Postgres

SLACK = 2.0
"""Seconds that this machine may be late."""
LEASE = 2.0
DRAINED_WITHIN = 10.0
EVENTS = 9


@dataclass
class Ground:
    """A catalog, a database, and what processes are configured with.

    Attributes:
        stack: what they run in.
    """

    folder: Path
    lake: Lake
    dsn: str
    session: aiohttp.ClientSession
    stack: AsyncExitStack

    async def start(self, name: str, roles: str, sweep: str = "off") -> Service:
        """A process that is ready."""
        setting = Setting(
            self.folder / name,
            self.lake.uri,
            self.lake.warehouse,
            url=self.dsn,
            roles=roles,
            sweep=sweep,
            lease=f"{LEASE:g}s",
        )
        service = self.stack.enter_context(started(setting, self.session))
        await service.ready()
        return service


@pytest.fixture(name="ground")
async def fixture_ground(tmp_path: Path, postgres: Postgres, database: str) -> AsyncGenerator[Ground]:
    lake = Lake(tmp_path / "warehouse")
    for name in ("orders", "customers"):
        lake.create(name)
    connector = aiohttp.TCPConnector(keepalive_timeout=2)
    async with serving(lake), aiohttp.ClientSession(connector=connector) as session, AsyncExitStack() as stack:
        yield Ground(tmp_path, lake, postgres.dsn(database), session, stack)


async def ended(service: Service) -> int:
    """What a process ends with that is told to."""
    return await anyio.to_thread.run_sync(service.process.terminate, DRAINED_WITHIN)


async def found(service: Service, path: str) -> int:
    """The status of an operator's question."""
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    async with service.session.get(f"{service.url}{path}", headers=headers) as answer:
        return answer.status


async def published_in(ground: Ground, receiver: Service) -> float:
    """Seconds from the acknowledgement of a commit's event to the file that says so."""
    table = ground.lake.tables["orders"]
    pointer = table.commit()
    assert await receiver.post("orders", metadata_location=pointer) == 202
    began = anyio.current_time()
    while not ground.lake.pointed("orders").says(pointer):  # noqa: ASYNC110 - no event crosses processes
        await anyio.sleep(0.005)
    return anyio.current_time() - began


async def test_what_one_process_takes_another_one_publishes_and_a_third_one_tells_of(ground: Ground) -> None:
    receiver = await ground.start("receiver", "receiver")
    worker = await ground.start("worker", "worker")
    admin = await ground.start("admin", "admin")
    took = [await published_in(ground, receiver) for _ in range(EVENTS)]
    print("seconds to a file of another process:", [round(seconds, 3) for seconds in took])
    assert max(took) < POLLED.total_seconds() + SLACK
    # Notified: of those who only look once a second hardly any would be that early.
    assert sorted(took)[EVENTS // 2] < POLLED.total_seconds() / 2
    for service in (receiver, worker, admin):
        assert [await service.get(path) for path in ("/livez", "/readyz", "/metrics")] == [200] * 3
    table = f"/admin/v1/tables/{CATALOG}/{NAMESPACE}/orders"
    assert [await found(one, table) for one in (receiver, worker, admin)] == [404, 404, 200]
    assert [await one.post("orders") for one in (worker, admin)] == [404, 404]
    settings = ("--config", str(admin.setting.folder / "sfn.toml"), "--url", admin.url)
    told = await sfn("status", *settings)
    assert (told.status, "admin alone" in told.out) == (0, True), told
    told = await sfn("status", f"{NAMESPACE}.orders", *settings)
    assert ground.lake.tables["orders"].pointer in told.out
    assert [await ended(service) for service in (receiver, worker, admin)] == [0] * 3


async def test_an_order_of_one_process_is_carried_out_by_another(ground: Ground) -> None:
    worker = await ground.start("worker", "worker")
    admin = await ground.start("admin", "admin")
    settings = ("--config", str(admin.setting.folder / "sfn.toml"), "--url", admin.url)
    told = await sfn("reconcile", "--no-wait", *settings)
    assert told.status == 0, told
    await eventually(lambda: not ground.lake.wrong())
    assert (worker.told("swept"), admin.told("swept")) == (1, 0)


async def test_a_sweep_is_one_worker_s_and_the_other_one_s_when_that_dies(ground: Ground) -> None:
    workers = [await ground.start(name, "worker,admin", sweep="1s") for name in ("first", "second")]
    await eventually(lambda: not ground.lake.wrong())
    walks, swept = ground.lake.asked["tables"], sum(worker.told("swept") for worker in workers)
    await anyio.sleep(3)
    # Were each to sweep, there would be twice as many.
    assert 1 <= ground.lake.asked["tables"] - walks <= 4
    assert abs(sum(worker.told("swept") for worker in workers) - swept - ground.lake.asked["tables"] + walks) <= 1
    ground.lake.delay = 1.0
    victim = await sweeping(workers)
    (heir,) = [worker for worker in workers if worker is not victim]
    assert not await is_sweeping(heir)
    victim.process.kill()
    died = anyio.current_time()
    while not await is_sweeping(heir):  # noqa: ASYNC110 - as above
        await anyio.sleep(0.05)
    took = anyio.current_time() - died
    print("seconds from the death of one to the other one's sweep:", round(took, 2))
    assert took < LEASE + POLLED.total_seconds() + SLACK


async def sweeping(workers: Sequence[Service]) -> Service:
    """The one of them that sweeps."""
    while True:
        for worker in workers:
            if await is_sweeping(worker):
                return worker
        await anyio.sleep(0.05)


async def is_sweeping(service: Service) -> bool:
    """Whether it is at a sweep just now."""
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    async with service.session.get(f"{service.url}/admin/v1/status", headers=headers) as answer:
        (catalog,) = (await answer.json())["catalogs"]
    return catalog["sweep"] is not None and catalog["sweep"]["state"] == "running"
