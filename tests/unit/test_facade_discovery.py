"""Discovery of the tables of a facade."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from sfn.errors import Ambiguous, NotPermitted, TooManyFiles, Unreachable, Unreadable
from sfn.facade import FileTree, TablePlace, discovery
from sfn.facade.discovery import MAX_DEPTH, ScannedTables, folder_scans
from sfn.facade.metadata_files import open_tree
from sfn.reader.files import FolderEntries
from sfn.sfnfile.document import DocumentState
from sfn.sfnfile.naming import ORDINAL, UUID
from tests.support.facade import Tables, placed, shown
from tests.support.table_directory import Directory

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


@pytest.mark.slow
async def test_a_look_that_takes_long_holds_nobody_up(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "FIRST_SCAN_TIMEOUT", 0.05)
    index = ScannedTables([tables], 0, 0, timeout=0.05)
    tables.pause = anyio.Event()
    for _ in range(2):
        with pytest.raises(Unreachable, match="a scan that is still running"):
            await index.find(("sales",), "orders")
        with pytest.raises(Unreachable, match="a scan that is still running"):
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


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    (tmp_path / "w").mkdir()
    return tmp_path.resolve() / "w"


async def found(trees: Mapping[str, FileTree]) -> list[tuple[str, str]]:
    """Dotted names, each with the directory that it is looked up in."""
    return sorted([(name, place.question.directory.removeprefix("file://")) for name, place in await places(trees)])


async def places(trees: Mapping[str, FileTree]) -> list[tuple[str, TablePlace]]:
    return [
        (".".join((*namespace, name)), place) for scan in folder_scans(trees) async for namespace, name, place in scan()
    ]


async def below(*roots: Path) -> list[tuple[str, str]]:
    return await found({f"file://{root}": open_tree(f"file://{root}", {}) for root in roots})


async def test_tables_are_found_wherever_their_files_lie(root: Path) -> None:
    shown(root / "sales" / "inside", "sales.inside")
    shown(root / "sales" / "alongside", "sales.alongside", folder="_sfn")
    shown(root / "pointers" / "sales" / "apart", "sales.apart", folder="")
    Directory(root / "one", naming=UUID).write("named.by_uuid")
    for identifier in ("shared.a", "shared.b"):
        shown(root / "shared", identifier)
    assert await below(root) == [
        ("named.by_uuid", f"{root}/one"),
        ("sales.alongside", f"{root}/sales/alongside"),
        ("sales.apart", f"{root}/pointers/sales/apart"),
        ("sales.inside", f"{root}/sales/inside"),
        ("shared.a", f"{root}/shared"),
        ("shared.b", f"{root}/shared"),
    ]


async def test_a_head_leads_where_each_commit_has_a_file(root: Path) -> None:
    place = Directory(root / "t", naming=ORDINAL)
    place.commit(1)
    place.commit(2)
    assert await below(root) == []
    place.write()
    assert await below(root) == [("sales.orders", f"{root}/t")]


async def test_the_root_itself_may_be_a_table_and_a_namespace_be_called_metadata(root: Path) -> None:
    shown(root / "metadata" / "t", "metadata.t")
    assert await below(root) == [("metadata.t", f"{root}/metadata/t")]
    assert await below(root / "metadata" / "t") == [("metadata.t", f"{root}/metadata/t")]


async def test_what_was_dropped_renamed_or_is_a_branch_is_not_shown(root: Path) -> None:
    place = shown(root / "t", "sales.new")
    place.write("sales.dropped", state=DocumentState.DROPPED)
    place.renamed("sales.old", "sales.new")
    place.write("sales.branch", ref="audit")
    assert await below(root) == [("sales.new", f"{root}/t")]


async def test_what_is_no_file_of_ours_hides_none(root: Path) -> None:
    place = shown(root / "a" / "t")
    (place.folder / "broken_main.ver").write_text("{")
    (place.folder / "long_main.ver").write_bytes(b" " * 100_000)
    os.mkfifo(place.folder / "pipe_main.ver")
    (place.folder / "out_main.ver").symlink_to("/etc/passwd")
    (root / "foreign.ver").write_text("1.2.3")
    (root / "a" / "foreign_main.ver").write_text("1.2.3")
    (root / "a" / "_sfn").mkdir()
    (root / "b" / "metadata").mkdir(parents=True)
    (root / "b" / "metadata" / "_sfn").symlink_to("/etc")
    (root / "c").mkdir()
    (root / "c" / "metadata").symlink_to("metadata")
    assert await below(root) == [("sales.orders", f"{root}/a/t")]


async def test_below_a_table_nothing_is_looked_for(root: Path) -> None:
    shown(root / "t")
    shown(root / "t" / "data" / "inner", "sales.inner")
    shown(root / "_hidden", "sales.hidden")
    shown(root / ".hidden", "sales.hidden")
    assert await below(root) == [("sales.orders", f"{root}/t")]


async def test_links_lead_a_walk_nowhere(root: Path) -> None:
    shown(root / "a" / "t")
    for name in ("one", "two", "three"):
        (root / "a" / name).symlink_to(root)
        (root / name).symlink_to("a")
    (root / "copy").symlink_to("a/t")
    assert await below(root) == [("sales.orders", f"{root}/a/t")]


async def test_of_roots_inside_each_other_the_inner_one_shows_a_table(root: Path) -> None:
    shown(root / "a" / "t")
    inner = root / "a"
    trees = {f"file://{one}": open_tree(f"file://{one}", {}) for one in (root, inner)}
    [(_, place)] = await places(trees)
    assert place.question.allowed == (f"file://{inner}",)
    assert place.tree is trees[f"file://{inner}"]


async def test_a_walk_ends(root: Path) -> None:
    deep = root.joinpath(*["d"] * MAX_DEPTH)
    shown(deep / "far", "too.deep")
    shown(deep, "deep.enough", folder="_sfn")
    assert ("too.deep", f"{deep}/far") not in await below(root)


@pytest.mark.parametrize("most", [1, 2, 5, 6, 9, 20])
async def test_a_walk_that_came_to_its_bound_has_what_lies_highest(
    root: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    for name in ("a/b/c/d/e/f/far", "near"):
        shown(root / name, f"sales.{name[-4:].strip('/')}")
    shared = Directory(root / "wide")
    for number in range(50):
        shared.write(f"sales.t{number}")
    looked: list[str] = []

    class Counting(Refusing):
        @override
        def _check(self, key: str) -> None:
            looked.append(key)

    monkeypatch.setattr(discovery, "MAX_VISITED", most)
    [scan] = folder_scans({f"file://{root}": Counting(open_tree(f"file://{root}", {}))})
    found: list[str] = []

    async def look() -> None:
        async for _, name, _ in scan():
            found.append(name)

    with pytest.raises(TooManyFiles, match=f"at most {most} folders and SFN files"):
        await look()
    assert len(looked) <= most
    assert "far" not in found
    assert ("near" in found) == (most >= 6)


async def test_what_is_hidden_is_told_once(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        (shown(root / name, f"sales.{name}").folder / "broken_main.ver").write_text("{")
    [scan] = folder_scans({f"file://{root}": open_tree(f"file://{root}", {})})

    async def told() -> int:
        assert len([row async for row in scan()]) == 2
        return capsys.readouterr().out.count("file skipped")

    assert [await told(), await told()] == [2, 0]
    (root / "a" / "metadata" / "_sfn" / "more_main.ver").write_text("{")
    assert [await told(), await told()] == [1, 0]


@dataclass
class Refusing:
    """A tree of which some folders or files are refused."""

    tree: FileTree
    refused: dict[str, Unreadable] = field(default_factory=dict)

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        self._check(key)
        return await self.tree.read(key, most, start)

    async def list(self, prefix: str, limit: int) -> list[str]:
        self._check(prefix)
        return await self.tree.list(prefix, limit)

    async def entries(self, prefix: str) -> FolderEntries:
        self._check(prefix)
        return await self.tree.entries(prefix)

    def _check(self, key: str) -> None:
        for end, refusal in self.refused.items():
            if key.endswith(end):
                raise refusal


@pytest.mark.parametrize("end", ["/a/", "/a/metadata/", "/a/metadata/_sfn/", "sales_a_main.ver"])
async def test_what_nobody_may_read_hides_no_other_table_and_what_does_not_answer_may(root: Path, end: str) -> None:
    for name in "abc":
        shown(root / name, f"sales.{name}")
    files = Refusing(open_tree(f"file://{root}", {}))
    for kind in (NotPermitted, TooManyFiles):
        files.refused = {end: kind("x", expected="a right", found="none")}
        assert [name for name, _ in await found({f"file://{root}": files})] == ["sales.b", "sales.c"]
    files.refused = {end: Unreachable("x", expected="an answer", found="none")}
    with pytest.raises(Unreachable):
        await found({f"file://{root}": files})
