"""A catalog that says that everything is gone: nothing is given up before an operator has looked."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from sfn.sfnfile.document import DocumentState
from tests.faults import inspection
from tests.faults.inspection import contents
from tests.faults.lake import Lake, Mood, serving
from tests.faults.service import Service, Setting, eventually, running

TABLES, EVENTS, DROPPED = 500, 100, 3
SWEEPS = 3
MOST = 10
MINUTES = 120.0
"""Seconds for what is only prepared, on however slow a machine."""
Record = Callable[[str, object], None]


@dataclass(frozen=True, slots=True)
class Published:
    """A service that has published 500 tables and was stopped: the same one for every test.

    Attributes:
        kept: its folder as it was left.
        folder: where that folder is put back for each test: the tables' places are part of what is in it.
        lake: the catalog as it was.
    """

    kept: Path
    folder: Path
    lake: Lake

    @asynccontextmanager
    async def again(self, sweep: str = "1s") -> AsyncGenerator[tuple[Lake, Service, AsyncExitStack]]:
        """Its catalog, the service started again, and the stack that holds the catalog's server."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.kept, self.folder)
        lake = deepcopy(self.lake)
        async with AsyncExitStack() as server:
            await server.enter_async_context(serving(lake))
            async with running(_setting(self.folder, lake, sweep)) as service:
                yield lake, service, server


@pytest.fixture(name="published", scope="module")
async def fixture_published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("brake") / "now"
    lake = Lake(folder / "warehouse")
    for number in range(TABLES):
        lake.create(f"t{number:03d}")
    async with serving(lake), running(_setting(folder, lake, "off")) as service:
        for name in lake.tables:
            assert await service.post(name) == 202
        await eventually(lambda: inspection.unsettled(service.setting.database) == 0, MINUTES)
        assert (lake.wrong(), len(contents(lake.warehouse))) == ([], 2 * TABLES)
        assert await anyio.to_thread.run_sync(service.process.terminate, MINUTES) == 0
    return Published(shutil.copytree(folder, folder.with_name("kept")), folder, lake)


def _setting(folder: Path, lake: Lake, sweep: str) -> Setting:
    return Setting(folder / "sfn", lake.uri, lake.warehouse, sweep=sweep)


async def _swept(lake: Lake, kind: str) -> None:
    """Return once three sweeps have begun, and the last has had its time."""
    lake.asked.clear()
    await eventually(lambda: lake.asked[kind] > SWEEPS)


async def _told(lake: Lake, service: Service) -> None:
    """Post events about 100 tables, half of them events of a drop; return once each was looked at."""
    for number, name in enumerate(list(lake.tables)[:EVENTS]):
        more = {"operation": "drop"} if number % 2 else {"metadata_location": lake.tables[name].pointer}
        assert await service.post(name, f"gone-{number}", **more) == 202
    # The longest that a look may be put off: absence_delay.
    await anyio.sleep(3)
    assert await service.get("/livez") == 200


def _changed(lake: Lake, before: dict[Path, bytes]) -> set[Path]:
    after = contents(lake.warehouse)
    return {path for path in before if after.get(path) != before[path]} | (set(after) - set(before))


def _tables(paths: set[Path]) -> set[str]:
    """The directories of the tables that files belong to."""
    return {path.as_posix().split("/metadata/")[0] for path in paths}


async def _released(lake: Lake, service: Service) -> dict[str, object]:
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


def _state(lake: Lake, name: str) -> DocumentState | None:
    document = lake.pointed(name).document
    return None if document is None else document.state


async def _braked(lake: Lake, service: Service, asked: Lake, sweep: str = "namespaces") -> dict[str, object]:
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
        empty = Lake(lake.warehouse, namespaces=(), port=lake.port)
        async with serving(empty):
            figures = await _braked(lake, service, empty)
        async with serving(lake):
            figures |= await _released(lake, service)
    record_property("empty", figures)
    print("empty:", figures)
    assert figures["letters"] == {"held-drop": TABLES}


async def test_events_alone_give_up_ten_tables_at_most(published: Published, record_property: Record) -> None:
    """No sweep has held anything: the brake alone stands in the way of a hundred events of a drop."""
    async with published.again(sweep="off") as (lake, service, _):
        lake.mood = Mood.ABSENT
        before = contents(lake.warehouse)
        told = list(lake.tables)[:EVENTS]
        for name in told:
            assert await service.post(name, f"gone-{name}", operation="drop") == 202
        await eventually(lambda: inspection.letters(service.setting.database) == {"held-drop": EVENTS - MOST})
        await anyio.sleep(1)
        changed = _tables(_changed(lake, before))
        letters = inspection.letters(service.setting.database)
        lake.mood = Mood.WELL
        for name in told:
            assert await service.post(name, f"back-{name}") == 202
        figures = {"changed_by_events": len(changed), "letters": letters, **await _released(lake, service)}
    record_property("events_alone", figures)
    print("events alone:", figures)
    assert (len(changed), letters) == (MOST, {"held-drop": EVENTS - MOST})
