"""Operators and roles on the running service."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import pytest

from sfn.inbox.postgres.job_queue import POLLED
from tests.acceptance.command import sfn
from tests.faults.lake import NAMESPACE
from tests.faults.lake import Lake as FaultLake
from tests.faults.lake import serving as serving_lake
from tests.faults.service import CATALOG, OPERATOR, Service, Setting, eventually, started
from tests.integration.lake import Lake, lake
from tests.integration.process import Daemon, configure, serving
from tests.integration.waiting import until
from tests.servers.postgres import Postgres

# ── Operators


ADMIN = '[admin]\ntoken = "operators"\n'


@pytest.fixture(name="world")
async def fixture_world(tmp_path: Path) -> AsyncGenerator[Lake]:
    async with lake(tmp_path) as made:
        yield made


async def ordered(daemon: Daemon, path: str, content: object = None, method: str = "POST") -> Any:  # noqa: ANN401 - JSON
    """The answer to an operator."""
    headers = {"Authorization": "Bearer operators"}
    answer = await daemon.client.request(method, f"/admin/v1/{path}", json=content, headers=headers)
    assert answer.status_code in {200, 202}, answer.text
    return answer.json()


async def story(daemon: Daemon, name: str) -> dict[str, Any]:
    told: dict[str, Any] = await ordered(daemon, f"tables/prod/sales/{name}", method="GET")
    return told


def ours(world: Lake, name: str) -> list[str]:
    """The files beside a table that are no catalog's."""
    found = world.directory(name).rglob("*")
    return sorted(file.name for file in found if file.suffix in {".ver", ".text"})


async def test_a_catalog_that_retires_leaves_no_file_also_after_a_restart(world: Lake) -> None:
    configuration = configure(world, ADMIN)
    async with serving(configuration) as daemon:
        world.commit("orders")
        world.commit("stock")
        await daemon.tell("orders")
        await daemon.tell("stock")
        await world.until_published("orders", "stock")
        assert await ordered(daemon, "catalogs/prod:retire") == {"tables": 2}
        await until(lambda: not ours(world, "orders") and not ours(world, "stock"))
        assert (await daemon.tell("orders")).json() == {"accepted": 0, "duplicates": 0, "ignored": 1}
    async with serving(configuration) as daemon:
        world.commit("orders")
        assert (await daemon.tell("orders")).json() == {"accepted": 0, "duplicates": 0, "ignored": 1}
        await ordered(daemon, "catalogs/prod:retire", {"undo": True})
        await world.until_published("orders", "stock")
        assert (await daemon.tell("orders")).json()["accepted"] == 1


async def test_files_under_an_old_catalog_id_are_adopted(world: Lake) -> None:
    configuration = configure(world, ADMIN)
    async with serving(configuration) as daemon:
        world.commit("orders")
        await daemon.tell("orders")
        await world.until_published("orders")
        (reached,) = daemon.records("catalog reached")
    configuration.write_text(
        configuration.read_text().replace("[catalogs.prod]", '[catalogs.prod]\ncatalog_id = "new"')
    )
    async with serving(configuration) as daemon:
        world.commit("orders")
        await daemon.tell("orders")
        await daemon.until_logged("settled", table="sales.orders", reason="foreign-catalog")
        told = await story(daemon, "orders")
        assert f"sfn adopt prod --from {reached['catalog_id']}" in told["dead_letters"][0]["detail"]
        assert await ordered(daemon, "catalogs/prod:adopt", {"from": reached["catalog_id"]}) == {"tables": 1}
        await world.until_published("orders")
        await daemon.until_logged("settled", table="sales.orders", outcome="done")
        told = await story(daemon, "orders")
        assert [letter["status"] for letter in told["dead_letters"]] == ["superseded"]


async def test_a_sweep_that_an_operator_asks_for_says_what_differed(world: Lake) -> None:
    async with serving(configure(world, f'{ADMIN}[sweep]\nevery = "off"')) as daemon:
        world.commit("orders")
        asked = await ordered(daemon, "reconcile")
        assert asked["catalogs"] == ["prod"]
        await daemon.until_logged("settled", table="sales.orders", outcome="done")
        status = await ordered(daemon, "status", method="GET")
        (prod,) = status["catalogs"]
        assert prod["sweep"]["started_at"] >= asked["requested_at"]
        assert (prod["sweep"]["state"], prod["sweep"]["differences"]) == (
            "ended",
            [{"table": "sales.orders", "kind": "new"}],
        )
        assert (status["ready"], prod["tables"]["scheduled"]) == (True, 1)


async def test_a_dead_letter_is_replayed_once_its_cause_is_gone(world: Lake) -> None:
    configuration = configure(world, ADMIN)
    async with serving(configuration) as daemon:
        world.commit("orders")
        blocked = world.directory("orders") / "metadata" / "_sfn"
        blocked.mkdir()
        (blocked / "sales_orders_main.ver").write_text("no document of ours")
        await daemon.tell("orders")
        await daemon.until_logged("settled", table="sales.orders", reason="foreign-file")
        (letter,) = (await ordered(daemon, "dead-letters", method="GET"))["dead_letters"]
        (blocked / "sales_orders_main.ver").unlink()
        newest = world.commit("orders")
        answer = await ordered(daemon, "dead-letters:replay", {"ids": [letter["id"]]})
        assert answer == {"replayed": 1, "failed": [], "skipped": [], "next": None}
        await world.until_published("orders")
        assert world.published("orders") == newest


async def test_a_backup_of_the_running_inbox_is_restored(world: Lake, tmp_path: Path) -> None:
    configuration = configure(world, ADMIN)
    inbox, copy = tmp_path / "inbox" / "inbox.db", tmp_path / "copy.db"
    async with serving(configuration) as daemon:
        world.commit("orders")
        await daemon.tell("orders")
        await world.until_published("orders")
        await daemon.until_logged("settled", table="sales.orders", outcome="done")
        with closing(sqlite3.connect(inbox)) as running, closing(sqlite3.connect(copy)) as made:
            running.backup(made)
        world.commit("orders")
        await daemon.tell("orders")
        await world.until_published("orders")
    copy.replace(inbox)
    for beside in ("-wal", "-shm"):
        inbox.with_name(f"{inbox.name}{beside}").unlink(missing_ok=True)
    world.commit("orders")
    async with serving(configuration) as daemon:
        assert not daemon.records("inbox opened", new=True)
        # The sweep of the start may have to wait: one was made less than half a minute before.
        await daemon.tell("orders")
        await world.until_published("orders")
        assert (await story(daemon, "orders"))["published"] is not None


# ── Roles


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
    lake: FaultLake
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
    lake = FaultLake(tmp_path / "warehouse")
    for name in ("orders", "customers"):
        lake.create(name)
    connector = aiohttp.TCPConnector(keepalive_timeout=2)
    async with serving_lake(lake), aiohttp.ClientSession(connector=connector) as session, AsyncExitStack() as stack:
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
    assert (told.status, "(admin only)" in told.out) == (0, True), told
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
