"""Operators and roles on the running service, and the drop limit of a catalog that says that everything is gone."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import pytest

from sfn.inbox.postgres import POLL_INTERVAL
from sfn.sfnfile.document import DocumentState
from tests.faults import inspection
from tests.faults.inspection import contents
from tests.faults.lake import NAMESPACE, Mood
from tests.faults.lake import Lake as FaultLake
from tests.faults.lake import serving as serving_lake
from tests.faults.service import CATALOG, OPERATOR, Service, Setting, eventually, running, started
from tests.servers.postgres import Postgres
from tests.support.command_line import sfn
from tests.support.processes import until
from tests.support.service import Daemon, Lake, configure, serving

# Operators.


ADMIN = '[admin]\ntoken = "operators"\n'


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
    text = configuration.read_text()
    configuration.write_text(text.replace("[catalogs.prod]", '[catalogs.prod]\ncatalog_id = "new"'))
    async with serving(configuration) as daemon:
        world.commit("orders")
        await daemon.tell("orders")
        await daemon.until_logged("settled", table="prod:sales.orders", reason="foreign-catalog")
        told = await story(daemon, "orders")
        assert f"sfn adopt prod --from {reached['catalog_id']}" in told["dead_letters"][0]["detail"]
        assert await ordered(daemon, "catalogs/prod:adopt", {"from": reached["catalog_id"]}) == {"tables": 1}
        await world.until_published("orders")
        await daemon.until_logged("settled", table="prod:sales.orders", outcome="done")
        told = await story(daemon, "orders")
        assert [letter["status"] for letter in told["dead_letters"]] == ["superseded"]


async def test_a_sweep_that_an_operator_asks_for_says_what_differed(world: Lake) -> None:
    async with serving(configure(world, f'{ADMIN}[sweep]\nevery = "off"')) as daemon:
        world.commit("orders")
        asked = await ordered(daemon, "reconcile")
        assert asked["catalogs"] == ["prod"]
        await daemon.until_logged("settled", table="prod:sales.orders", outcome="done")
        status = await ordered(daemon, "status", method="GET")
        (prod,) = status["catalogs"]
        assert prod["sweep"]["started_at"] >= asked["requested_at"]
        (difference,) = prod["sweep"]["differences"]
        assert (prod["sweep"]["state"], difference["table"], difference["kind"]) == ("ended", "sales.orders", "missing")
        assert (status["ready"], prod["tables"]["scheduled"]) == (True, 1)


async def test_a_dead_letter_is_replayed_once_its_cause_is_gone(world: Lake) -> None:
    configuration = configure(world, ADMIN)
    async with serving(configuration) as daemon:
        world.commit("orders")
        blocked = world.directory("orders") / "metadata" / "_sfn"
        blocked.mkdir()
        (blocked / "sales_orders_main.ver").write_text("no document of ours")
        await daemon.tell("orders")
        await daemon.until_logged("settled", table="prod:sales.orders", reason="foreign-file")
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
        await daemon.until_logged("settled", table="prod:sales.orders", outcome="done")
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


# Roles.


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
        own = self.folder / name, self.lake.uri, self.lake.warehouse
        setting = Setting(*own, url=self.dsn, roles=roles, sweep=sweep, lease=f"{LEASE:g}s")
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


async def status_of(service: Service) -> dict[str, Any]:
    """What a process says of all of them."""
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    async with service.session.get(f"{service.url}/admin/v1/status", headers=headers) as answer:
        status: dict[str, Any] = await answer.json()
        return status


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
    assert max(took) < POLL_INTERVAL.total_seconds() + SLACK
    # Notified: of those who only look once a second hardly any would be that early.
    assert sorted(took)[EVENTS // 2] < POLL_INTERVAL.total_seconds() / 2
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
    # The process without a worker has what the worker sees: the catalog's answers, and how late publishes were.
    (catalog,) = (await status_of(admin))["catalogs"]
    while not (catalog["catalog_id"] and catalog["answered_at"] and catalog["lag"]):
        await anyio.sleep(0.1)
        (catalog,) = (await status_of(admin))["catalogs"]
    seen = {tuple(one["roles"]) for one in (await status_of(admin))["processes"]}
    assert seen == {("admin",), ("receiver",), ("worker",)}
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
    assert took < LEASE + POLL_INTERVAL.total_seconds() + SLACK


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


TABLES, REPORTED, DROPPED = 120, 100, 3
SWEEPS = 3
MOST = 10
MINUTES = 120.0
"""Seconds for what is only prepared, on however slow a machine."""
Record = Callable[[str, object], None]


@dataclass(frozen=True, slots=True)
class Published:
    """A service that has published 120 tables and was stopped: the same one for every test.

    Attributes:
        kept: its folder as it was left.
        folder: where that folder is put back for each test: the tables' places are part of what is in it.
        lake: the catalog as it was.
    """

    kept: Path
    folder: Path
    lake: FaultLake

    @asynccontextmanager
    async def again(self, sweep: str = "1s") -> AsyncGenerator[tuple[FaultLake, Service, AsyncExitStack]]:
        """Its catalog, the service started again, and the stack that holds the catalog's server."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.kept, self.folder)
        lake = deepcopy(self.lake)
        async with AsyncExitStack() as server:
            await server.enter_async_context(serving_lake(lake))
            async with running(_setting(self.folder, lake, sweep)) as service:
                yield lake, service, server


@pytest.fixture(name="published", scope="module")
async def fixture_published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("brake") / "now"
    lake = FaultLake(folder / "warehouse")
    for number in range(TABLES):
        lake.create(f"t{number:03d}")
    async with serving_lake(lake), running(_setting(folder, lake, "off")) as service:
        for name in lake.tables:
            assert await service.post(name) == 202
        await eventually(lambda: inspection.unsettled(service.setting.database) == 0, MINUTES)
        assert (lake.wrong(), len(contents(lake.warehouse))) == ([], 2 * TABLES)
        assert await anyio.to_thread.run_sync(service.process.terminate, MINUTES) == 0
    return Published(shutil.copytree(folder, folder.with_name("kept")), folder, lake)


def _setting(folder: Path, lake: FaultLake, sweep: str) -> Setting:
    return Setting(folder / "sfn", lake.uri, lake.warehouse, sweep=sweep)


async def _swept(lake: FaultLake, kind: str) -> None:
    """Return once three sweeps have begun, and the last has had its time."""
    lake.asked.clear()
    await eventually(lambda: lake.asked[kind] > SWEEPS)


async def _told(lake: FaultLake, service: Service) -> None:
    """Post events about 100 tables, half of them events of a drop; return once each was looked at."""
    for number, name in enumerate(list(lake.tables)[:REPORTED]):
        more = {"operation": "drop"} if number % 2 else {"metadata_location": lake.tables[name].pointer}
        assert await service.post(name, f"gone-{number}", **more) == 202
    # The longest that a look may be put off: absence_delay.
    await anyio.sleep(3)
    assert await service.get("/livez") == 200


def _changed(lake: FaultLake, before: dict[Path, bytes]) -> set[Path]:
    after = contents(lake.warehouse)
    return {path for path in before if after.get(path) != before[path]} | (set(after) - set(before))


def _tables(paths: set[Path]) -> set[str]:
    """The directories of the tables that files belong to."""
    return {path.as_posix().split("/metadata/")[0] for path in paths}


async def _released(lake: FaultLake, service: Service) -> dict[str, object]:
    """What must follow the catalog's return and the operator's word."""
    held = await service.release()
    await eventually(lambda: not lake.wrong())
    await eventually(lambda: inspection.letters(service.setting.database) == {})
    gone = list(lake.tables)[:DROPPED]
    for name in gone:
        del lake.tables[name]
        assert await service.post(name, f"drop-{name}", operation="drop") == 202
    began = anyio.current_time()
    await eventually(lambda: all(_state(lake, name) is DocumentState.DROPPED for name in gone))
    assert lake.wrong() == []
    return {"released": held, "dropped": len(gone), "dropped_in": round(anyio.current_time() - began, 2)}


def _state(lake: FaultLake, name: str) -> DocumentState | None:
    document = lake.pointed(name).document
    return None if document is None else document.state


async def _braked(lake: FaultLake, service: Service, asked: FaultLake, sweep: str = "namespaces") -> dict[str, object]:
    """What must be so while everything seems to be gone.

    Args:
        lake: whose tables there really are.
        asked: the catalog that answers meanwhile.
        sweep: what it is asked at the beginning of each sweep.
    """
    before = contents(lake.warehouse)
    await _swept(asked, sweep)
    by_sweeps = _changed(lake, before)
    await _told(lake, service)
    by_events = _tables(_changed(lake, before))
    letters = inspection.letters(service.setting.database)
    figures = {"changed_by_sweeps": len(by_sweeps), "changed_by_events": len(by_events), "letters": letters}
    assert by_sweeps == set(), figures
    assert len(by_events) <= MOST, figures
    return figures


async def test_a_catalog_that_finds_nothing(published: Published, record_property: Record) -> None:
    async with published.again() as (lake, service, _):
        lake.mood = Mood.ABSENT
        figures = await _braked(lake, service, lake)
        lake.mood = Mood.WELL
        figures |= await _released(lake, service)
    record_property("absent", figures)
    print("absent:", figures)
    assert figures["letters"] == {"held-drop": TABLES}


@pytest.mark.parametrize("mood", [Mood.HTML, Mood.HTML_TABLES])
async def test_a_proxy_that_answers_for_the_catalog(mood: Mood, published: Published, record_property: Record) -> None:
    async with published.again() as (lake, service, _):
        lake.mood = mood
        figures = await _braked(lake, service, lake, "config" if mood is Mood.HTML else "namespaces")
        lake.mood = Mood.WELL
        figures |= await _released(lake, service)
    record_property(mood.name, figures)
    print(f"{mood}:", figures)
    assert (figures["changed_by_events"], figures["letters"]) == (0, {})


async def test_an_empty_catalog_in_its_place(published: Published, record_property: Record) -> None:
    async with published.again() as (lake, service, server):
        await server.aclose()
        empty = FaultLake(lake.warehouse, namespaces=(), port=lake.port)
        async with serving_lake(empty):
            figures = await _braked(lake, service, empty)
        async with serving_lake(lake):
            figures |= await _released(lake, service)
    record_property("empty", figures)
    print("empty:", figures)
    assert figures["letters"] == {"held-drop": TABLES}


async def test_events_alone_give_up_ten_tables_at_most(published: Published, record_property: Record) -> None:
    """No sweep has held anything: the brake alone stands in the way of a hundred events of a drop."""
    async with published.again(sweep="off") as (lake, service, _):
        lake.mood = Mood.ABSENT
        before = contents(lake.warehouse)
        told = list(lake.tables)[:REPORTED]
        for name in told:
            assert await service.post(name, f"gone-{name}", operation="drop") == 202
        await eventually(lambda: inspection.letters(service.setting.database) == {"held-drop": REPORTED - MOST})
        await anyio.sleep(1)
        changed = _tables(_changed(lake, before))
        letters = inspection.letters(service.setting.database)
        lake.mood = Mood.WELL
        for name in told:
            assert await service.post(name, f"back-{name}") == 202
        figures = {"changed_by_events": len(changed), "letters": letters, **await _released(lake, service)}
    record_property("events_alone", figures)
    print("events alone:", figures)
    assert (len(changed), letters) == (MOST, {"held-drop": REPORTED - MOST})
