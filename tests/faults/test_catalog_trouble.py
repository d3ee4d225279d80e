"""A catalog in trouble: events are taken, nothing is lost or dropped, and when it heals every file is right."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.faults import inboxes
from tests.faults.files import contents
from tests.faults.lake import Lake, Mood, serving
from tests.faults.service import Service, Setting, eventually, running

TABLES = 20
TROUBLE = 3.0
"""Seconds: long enough for the breaker's longest pause, a sweep, and three looks at each table."""
HEALED_WITHIN = 5.0
Record = Callable[[str, object], None]


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
    letters, lost = inboxes.letters(service.setting.database), told - inboxes.logged(service.setting.database)
    record(
        {
            "accepted": len(told),
            "lost": len(lost),
            "letters": letters,
            "healed_in": round(anyio.current_time() - began, 2),
        }
    )
    assert (letters, lost) == ({}, set())


@pytest.mark.parametrize("mood", [Mood.ERROR, Mood.BUSY, Mood.GARBAGE, Mood.HALF, Mood.HTML])
async def test_a_catalog_that_answers_nonsense(mood: Mood, tmp_path: Path, record_property: Record) -> None:
    def record(figures: object) -> None:
        record_property(mood.name, figures)
        print(f"{mood}:", figures)

    async with _published(tmp_path) as (lake, service, _):
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
