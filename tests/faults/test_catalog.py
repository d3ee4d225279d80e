"""A catalog in trouble, and one that lost its database: events are taken, no file changes, and all heals."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx

from sfn.demo.environment import RestCatalogServer
from sfn.sfnfile.document import DocumentState
from tests.faults import inspection
from tests.faults.inspection import contents, pointed
from tests.faults.lake import NAMESPACE, Lake, Mood, serving
from tests.faults.service import Service, Setting, eventually, running
from tests.support.programs import runtime

TABLES = 20
TROUBLE = 3.0
"""Seconds: long enough for the breaker's longest pause, a sweep, and three looks at each table."""
HEALED_WITHIN = 5.0
Record = Callable[[str, object], None]

ALL_TABLES, DROPPED = 40, 3
SWEEPS = 3
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}


@asynccontextmanager
async def _published(folder: Path) -> AsyncGenerator[tuple[Lake, Service, AsyncExitStack]]:
    """A service whose tables are published, and the stack that holds its catalog's server."""
    lake = Lake(folder / "warehouse")
    for number in range(TABLES):
        lake.create(f"t{number}")
    async with AsyncExitStack() as server:
        await server.enter_async_context(serving(lake))
        async with running(Setting(folder / "sfn", lake.uri, lake.warehouse, sweep="1s")) as service:
            await eventually(lambda: not lake.wrong())
            yield lake, service, server


async def _told(lake: Lake, service: Service, prefix: str) -> set[str]:
    """Commit to every table, and tell of it twice: with its pointer, and without; the events' ids."""
    told = set()
    for name, table in lake.tables.items():
        table.commit()
        for floor in (table.pointer, None):
            event_id = f"{prefix}-{name}-{floor is None}"
            assert await service.post(name, event_id, metadata_location=floor) == 202
            told.add(event_id)
    return told


async def _endured(lake: Lake, service: Service) -> set[str]:
    """What the service must do while its catalog is in trouble; the ids of the events that it took."""
    before = contents(lake.warehouse)
    told = await _told(lake, service, "first")
    await anyio.sleep(TROUBLE / 2)
    told |= await _told(lake, service, "second")
    await anyio.sleep(TROUBLE / 2)
    assert await service.get("/livez") == 200
    assert contents(lake.warehouse) == before
    # Nobody's budget is spent on the catalog's trouble.
    assert service.told("retry") == 0
    return told


async def _healed(lake: Lake, service: Service, told: set[str], record: Callable[[object], None]) -> None:
    """What must be so once the catalog is well again."""
    began = anyio.current_time()
    await eventually(lambda: not lake.wrong(), within=HEALED_WITHIN)
    letters, lost = inspection.letters(service.setting.database), told - inspection.logged(service.setting.database)
    record(
        {
            "accepted": len(told),
            "lost": len(lost),
            "letters": letters,
            "healed_in": round(anyio.current_time() - began, 2),
        }
    )
    assert (letters, lost) == ({}, set())


async def test_a_catalog_that_answers_nonsense(tmp_path: Path, record_property: Record) -> None:
    """Each kind of nonsense has a catalog and a service of its own. They are in trouble at the same time."""
    async with anyio.create_task_group() as tasks:
        for mood in (Mood.ERROR, Mood.BUSY, Mood.GARBAGE, Mood.HALF, Mood.HTML):
            tasks.start_soon(_answers_nonsense, mood, tmp_path / mood.name, record_property, name=mood.name)


async def _answers_nonsense(mood: Mood, folder: Path, record_property: Record) -> None:
    def record(figures: object) -> None:
        record_property(mood.name, figures)
        print(f"{mood}:", figures)

    async with _published(folder) as (lake, service, _):
        lake.mood = mood
        told = await _endured(lake, service)
        lake.mood = Mood.WELL
        await _healed(lake, service, told, record)


async def test_a_catalog_that_is_gone(tmp_path: Path, record_property: Record) -> None:
    def record(figures: object) -> None:
        record_property("gone", figures)
        print("gone:", figures)

    async with _published(tmp_path) as (lake, service, server):
        await server.aclose()
        told = await _endured(lake, service)
        async with serving(lake):
            await _healed(lake, service, told, record)


async def test_a_catalog_that_is_not_there_yet(tmp_path: Path, record_property: Record) -> None:
    def record(figures: object) -> None:
        record_property("not there yet", figures)
        print("not there yet:", figures)

    lake = Lake(tmp_path / "warehouse")
    for number in range(TABLES):
        lake.create(f"t{number}")
    async with running(Setting(tmp_path / "sfn", lake.uri, lake.warehouse, sweep="1s")) as service:
        assert await service.get("/readyz") == 200
        told = await _endured(lake, service)
        async with serving(lake):
            await _healed(lake, service, told, record)


async def test_a_real_catalog_that_lost_its_database(tmp_path: Path, record_property: Record) -> None:
    with RestCatalogServer(tmp_path / "catalog", runtime()) as server:
        truth = _made(server)
        warehouse = server.folder / "warehouse"
        async with running(Setting(tmp_path / "sfn", server.uri, warehouse, sweep="2s")) as service:
            await eventually(lambda: not _wrong_files(warehouse, truth))
            before = contents(warehouse)
            server.stop()
            database, kept = server.folder / "catalog.db", shutil.move(server.folder / "catalog.db", tmp_path)
            server.start()
            letters = await _swept_empty(service)
            changed = [path for path, body in contents(warehouse).items() if before.get(path) != body]
            server.stop()
            shutil.copy(kept, database)
            server.start()
            held = await service.release()
            await eventually(lambda: not inspection.letters(service.setting.database))
            assert _wrong_files(warehouse, truth) == []
            await _dropped(server, service, warehouse, truth)
    figures = {"tables": ALL_TABLES, "changed": len(changed), "letters": letters, "released": held, "dropped": DROPPED}
    record_property("emptied", figures)
    print("emptied:", figures)
    assert (changed, letters, held) == ([], {"held-drop": ALL_TABLES}, ALL_TABLES)


async def _swept_empty(service: Service) -> dict[str, int]:
    """Three sweeps of the empty catalog, then an event for each table; the dead letters."""
    done = service.told("swept")
    await eventually(lambda: service.told("swept") >= done + SWEEPS)
    for number in range(ALL_TABLES):
        assert await service.post(f"t{number}", f"gone-{number}", operation="drop") == 202
    await eventually(lambda: inspection.unsettled(service.setting.database) == 0)
    return inspection.letters(service.setting.database)


async def _dropped(server: RestCatalogServer, service: Service, warehouse: Path, truth: dict[str, str]) -> None:
    """Three tables are really dropped, and their files say so; those of no other."""
    gone = list(truth)[:DROPPED]
    for name in gone:
        del truth[name]
        path = f"{server.uri}/v1/namespaces/{NAMESPACE}/tables/{name}?purgeRequested=false"
        async with service.session.delete(path) as answer:
            answer.raise_for_status()
        assert await service.post(name, f"drop-{name}", operation="drop") == 202
    await eventually(lambda: all(_state(warehouse, name) is DocumentState.DROPPED for name in gone))
    assert _wrong_files(warehouse, truth) == []


def _made(server: RestCatalogServer) -> dict[str, str]:
    """New tables by name, and their pointers."""
    with httpx.Client(base_url=server.uri, trust_env=False, timeout=30) as client:
        client.post("/v1/namespaces", json={"namespace": [NAMESPACE]}).raise_for_status()
        pointers = {}
        for number in range(ALL_TABLES):
            wanted = {"name": f"t{number}", "schema": SCHEMA}
            made = client.post(f"/v1/namespaces/{NAMESPACE}/tables", json=wanted).raise_for_status()
            pointers[f"t{number}"] = str(made.json()["metadata-location"])
        return pointers


def _wrong_files(warehouse: Path, truth: dict[str, str]) -> list[str]:
    return [
        name
        for name, pointer in truth.items()
        if not pointed(warehouse / NAMESPACE / name, NAMESPACE, name).says(pointer)
    ]


def _state(warehouse: Path, name: str) -> DocumentState | None:
    document = pointed(warehouse / NAMESPACE / name, NAMESPACE, name).document
    return None if document is None else document.state
