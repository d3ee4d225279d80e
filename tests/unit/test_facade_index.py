"""Which tables a facade knows, and when it looks anew."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from sfn.errors import Ambiguous, NotPermitted, TooManyFiles, Unreachable
from sfn.facade import discovery
from sfn.facade.discovery import ScannedTables
from tests.unit.faced import Tables, placed

AWAY = Unreachable("store", expected="an answer", found="none")


@pytest.fixture(name="tables")
def fixture_tables(tmp_path: Path) -> Tables:
    return Tables([(("sales",), "orders", placed(tmp_path, tmp_path / "orders"))])


async def test_a_listing_is_kept_for_a_while(tables: Tables) -> None:
    index = ScannedTables([tables], 60, 60)
    for _ in range(3):
        assert set((await index.tables())["sales",]) == {"orders"}
        assert await index.find(("sales",), "none") is None
    assert tables.scans == 1
    index = ScannedTables([tables], 0, 0)
    for _ in range(2):
        await index.tables()
        await index.find(("sales",), "none")
    assert tables.scans == 5


async def test_a_table_that_is_known_is_found_without_a_look_and_another_one_by_a_new_one(
    tables: Tables, tmp_path: Path
) -> None:
    index = ScannedTables([tables], 0, 0)
    place = await index.find(("sales",), "orders")
    assert place == tables.found[0][2]
    assert await index.find(("sales",), "orders") is place
    assert tables.scans == 1
    tables.found.append((("sales",), "items", placed(tmp_path, tmp_path / "items")))
    assert await index.find(("sales",), "items") == tables.found[1][2]
    assert tables.scans == 2


async def test_a_table_that_went_elsewhere_is_found_there_by_who_asks_anew(tables: Tables, tmp_path: Path) -> None:
    index = ScannedTables([tables], 60, 0)
    await index.find(("sales",), "orders")
    there = placed(tmp_path, tmp_path / "elsewhere")
    tables.found = [(("sales",), "orders", there)]
    assert await index.find(("sales",), "orders") != there
    assert await index.find(("sales",), "orders", refresh=True) == there
    assert await index.find(("sales",), "orders") == there


async def test_of_several_directories_of_one_name_none_is_chosen(tables: Tables, tmp_path: Path) -> None:
    index = ScannedTables([tables], 60, 0)
    for name in ("copy", "orders", *"abcdefgh"):
        tables.found.append((("sales",), "orders", placed(tmp_path, tmp_path / name)))
    with pytest.raises(Ambiguous, match=f"{tmp_path}/a, .*/copy, .*/orders") as refused:
        await index.find(("sales",), "orders")
    assert str(refused.value).count("file://") == 6
    assert set((await index.tables())["sales",]) == {"orders"}
    # Once the copies are gone it is looked for anew, however new the listing is.
    del tables.found[1:]
    assert await index.find(("sales",), "orders") == tables.found[0][2]


async def test_what_can_t_be_listed_forgets_nothing_and_a_table_that_may_be_there_is_not_denied(tables: Tables) -> None:
    index = ScannedTables([tables], 0, 0)
    known = await index.find(("sales",), "orders")
    tables.failure = AWAY
    assert set(await index.tables()) == {("sales",)}
    with pytest.raises(Unreachable):
        await index.find(("sales",), "none")
    assert await index.find(("sales",), "orders") is known
    assert await index.find(("sales",), "orders", refresh=True) is known
    tables.failure = None
    assert await index.find(("sales",), "none") is None


async def test_before_the_first_look_nothing_is_denied(tables: Tables) -> None:
    tables.failure = AWAY
    index = ScannedTables([tables], 60, 0)
    for _ in range(2):
        with pytest.raises(Unreachable):
            await index.tables()
        with pytest.raises(Unreachable):
            await index.find(("sales",), "orders")
    assert tables.scans == 4
    tables.failure = None
    assert await index.find(("sales",), "orders") == tables.found[0][2]


async def test_one_scan_that_fails_hides_no_other_s_tables(tables: Tables, tmp_path: Path) -> None:
    other = Tables([(("sales",), "items", placed(tmp_path, tmp_path / "items"))])
    index = ScannedTables([tables, other], 60, 0)
    other.failure = AWAY
    assert await index.find(("sales",), "orders") == tables.found[0][2]
    for namespace, name in (
        (("sales",), "items"),
        (("sales",), "none"),
        (("sales", "none"), "snapshots"),
        ((), "none"),
    ):
        with pytest.raises(Unreachable):
            await index.find(namespace, name)
    # As a metadata table is looked for.
    assert await index.find(("sales", "orders"), "snapshots") is None
    other.failure = None
    assert await index.find(("sales",), "items") == other.found[0][2]
    assert set((await index.tables())["sales",]) == {"items", "orders"}
    other.found.append((("sales",), "orders", placed(tmp_path, tmp_path / "copy")))
    assert await index.find(("sales",), "none") is None
    with pytest.raises(Ambiguous, match=f"{tmp_path}/copy, .*/orders"):
        await index.find(("sales",), "orders")


async def test_of_a_scan_that_came_to_its_bound_what_it_found_is_there(tables: Tables) -> None:
    tables.failure = TooManyFiles("root", expected="fewer", found="more")
    index = ScannedTables([tables], 60, 0)
    assert await index.find(("sales",), "orders") == tables.found[0][2]
    assert set(await index.tables()) == {("sales",)}
    with pytest.raises(TooManyFiles):
        await index.find(("sales",), "none")


async def test_a_look_that_takes_long_holds_nobody_up(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "FIRST_SCAN_TIMEOUT", 0.05)
    index = ScannedTables([tables], 0, 0, timeout=0.05)
    tables.pause = anyio.Event()
    for _ in range(2):
        with pytest.raises(Unreachable, match="a look that goes on"):
            await index.find(("sales",), "orders")
        with pytest.raises(Unreachable, match="a look that goes on"):
            await index.tables()
    monkeypatch.undo()
    tables.pause.set()
    assert await index.find(("sales",), "orders") == tables.found[0][2]
    tables.found.append((("sales",), "items", placed(Path("/w"), Path("/w/items"))))
    tables.pause = anyio.Event()
    with anyio.fail_after(10):
        while tables.scans == 1:
            assert set(await index.tables()) == {("sales",)}
            await anyio.sleep(0.01)
        assert await index.find(("sales",), "none") is None
        # One look for all of them, and it goes on.
        assert tables.scans == 2
        await anyio.sleep(0.5)
        tables.pause.set()
        while await index.find(("sales",), "items") is None:  # noqa: ASYNC110 - how long it waits is what is tried
            await anyio.sleep(0.001)
    # Now it rests for as long as it took.
    for _ in range(3):
        assert await index.find(("sales",), "none") is None
    assert tables.scans == 2


async def test_who_goes_away_ends_no_look(tables: Tables) -> None:
    index = ScannedTables([tables], 60, 60)
    tables.pause = anyio.Event()
    with anyio.move_on_after(0.02):
        await index.tables()
    tables.pause.set()
    assert set(await index.tables()) == {("sales",)}
    assert tables.scans == 1


async def test_who_prepares_waits_for_the_first_look_whatever_it_takes(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "FIRST_SCAN_TIMEOUT", 0.01)
    tables.pause = anyio.Event()
    away = Tables(failure=AWAY)
    index = ScannedTables([tables, away], 60, 0)
    found: list[Exception | None] = []

    async def prepare() -> None:
        found.append(await index.wait_until_listed())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prepare)
        await anyio.sleep(0.05)
        assert not found
        tables.pause.set()
    assert found == [None]
    assert await ScannedTables([away], 60, 0).wait_until_listed() is AWAY


async def test_a_failure_is_not_tried_again_by_everybody_who_waits(tables: Tables) -> None:
    index = ScannedTables([tables], 60, 60)
    tables.failure = NotPermitted("store", expected="a right", found="none")
    for _ in range(5):
        with pytest.raises(NotPermitted):
            await index.tables()
    assert tables.scans == 1


async def test_whatever_else_goes_wrong_is_no_answer(tables: Tables) -> None:
    index = ScannedTables([tables], 60, 0)
    tables.failure = RuntimeError("an error of ours")
    with pytest.raises(RuntimeError):
        await index.tables()
    tables.failure = None
    assert await index.tables()


async def test_those_who_ask_at_once_have_one_look(tables: Tables) -> None:
    index = ScannedTables([tables], 60, 60)
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(index.tables)
    assert tables.scans == 1
