"""Which tables a walk through folders finds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typing_extensions import override

from sfn.errors import NotPermitted, TooManyFiles, Unreachable, Unreadable
from sfn.facade import FileTree, TablePlace, discovery
from sfn.facade.discovery import MAX_DEPTH, folder_scans
from sfn.facade.metadata_files import open_tree
from sfn.reader.files import FolderEntries
from sfn.sfnfile.document import DocumentState
from sfn.sfnfile.naming import ORDINAL, UUID
from tests.unit.directory import Directory
from tests.unit.faced import shown


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
        return capsys.readouterr().out.count("file not shown")

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
