"""What every tree promises, whatever it is made of: what lies below its root, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from typing_extensions import override

from sfn.concurrency import unfinished_calls
from sfn.errors import (
    ErrorScope,
    ExternalError,
    Forbidden,
    ForbiddenForTable,
    NotPermitted,
    Permanent,
    Transient,
    Unauthenticated,
    Unreachable,
    Unsafe,
)
from sfn.facade import FileTree, metadata_files
from sfn.facade.metadata_files import StoreFiles, ThreadedTree, open_tree
from sfn.reader.files import FileReader, FolderEntries
from sfn.storage import PrefixRouter
from sfn.storage.memory import MemoryStore
from tests.promises.stores import plant_file

Plant = Callable[[str, bytes], Awaitable[None]]


@dataclass(frozen=True)
class Ground:
    """A tree, and somebody who plants files.

    Attributes:
        root: its root, below which nothing lies yet.
        plant: puts a content at a key.
        tree: the same, if it tells what lies in folders.
    """

    files: FileReader
    root: str
    plant: Plant
    tree: FileTree | None


def of_tree(root: str, plant: Plant) -> Ground:
    made = open_tree(root, {})
    return Ground(made, root, plant, made)


def local(folder: Path) -> Ground:
    async def plant(key: str, body: bytes) -> None:
        plant_file(key, body)

    root = f"file://{folder.resolve()}/w"
    return of_tree(root, plant)


def local_by_a_link(folder: Path) -> Ground:
    """Here no path can be opened at once."""
    (folder / "there" / "w").mkdir(parents=True)
    (folder / "here").symlink_to("there")
    return local(folder / "here")


def linked(folder: Path) -> Ground:
    (folder / "there").mkdir()
    (folder / "w").symlink_to("there")

    async def plant(key: str, body: bytes) -> None:
        plant_file(key, body)

    root = f"file://{folder.resolve()}/w"
    return of_tree(root, plant)


def memory_by_fsspec(_: Path) -> Ground:
    async def plant(key: str, body: bytes) -> None:
        MemoryFileSystem().pipe_file(key, body)

    root = f"memory://{uuid4()}/w"
    return of_tree(root, plant)


def stored(_: Path) -> Ground:
    store, root = MemoryStore(), "s3://lake/w"

    async def plant(key: str, body: bytes) -> None:
        await store.write(key, body, None)

    return Ground(StoreFiles(root, PrefixRouter({"s3://lake": store})), root, plant, None)


@pytest.fixture(name="ground", params=[local, local_by_a_link, linked, memory_by_fsspec, stored])
def fixture_ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    made: Ground = request.param(tmp_path)
    return made


async def test_a_file_is_read_from_anywhere_on(ground: Ground) -> None:
    key = f"{ground.root}/sales/a file%20ä.ver"
    await ground.plant(key, b"0123456789")
    assert await ground.files.read(key, 100) == b"0123456789"
    assert await ground.files.read(key, 4) == b"0123"
    assert await ground.files.read(key, 4, 8) == b"89"
    assert await ground.files.read(key, 4, 10) == b""


async def test_what_is_not_there_is_none(ground: Ground) -> None:
    await ground.plant(f"{ground.root}/sales/orders/x", b"")
    for name in ("sales/none", "none/none/none", "sales/orders/x/below", "sales/orders", "sales/" + "n" * 300):
        assert await ground.files.read(f"{ground.root}/{name}", 10) is None
    assert await ground.files.list(f"{ground.root}/none/", 10) == []
    if ground.tree is not None:
        assert await ground.tree.entries(f"{ground.root}/none/") == FolderEntries()


async def test_what_lies_in_a_folder_is_listed_in_order(ground: Ground) -> None:
    for name in ("b", "a", "c", "below/d"):
        await ground.plant(f"{ground.root}/sales/{name}", b"x")
    keys = await ground.files.list(f"{ground.root}/sales/", 10)
    files = [key for key in keys if not key.endswith("below")]
    assert files == [f"{ground.root}/sales/{name}" for name in "abc"]
    assert len(await ground.files.list(f"{ground.root}/sales/", 2)) == 2
    if ground.tree is not None:
        found = await ground.tree.entries(f"{ground.root}/sales/")
        assert (sorted(found.files), found.folders, found.links) == (["a", "b", "c"], ("below",), ())


async def test_nothing_outside_of_the_root_is_read_or_listed(ground: Ground) -> None:
    above = ground.root.rpartition("/")[0]
    await ground.plant(f"{ground.root}/x", b"inside")
    for key in (
        f"{ground.root}/../other/x",
        f"{ground.root}/./x",
        f"{above}/wide",
        f"{above}/other/x",
        f"{above}/w2/x",
        "file:///etc/passwd",
        "s3://other/w/x",
    ):
        with pytest.raises(Unsafe):
            await ground.files.read(key, 10)
    with pytest.raises(Unsafe):
        await ground.files.list(f"{above}/", 10)
    if ground.tree is not None:
        with pytest.raises(Unsafe):
            await ground.tree.entries(f"{above}/other/")


class Failing(MemoryStore):
    """A store in trouble."""

    def __init__(self, trouble: ExternalError) -> None:
        super().__init__()
        self.trouble = trouble

    @override
    async def read_range(self, key: str, start: int, most: int) -> bytes | None:
        raise self.trouble

    @override
    async def list(self, prefix: str, limit: int) -> list[str]:
        raise self.trouble


@pytest.mark.parametrize(
    ("kind", "scope", "told"),
    [
        (Transient, ErrorScope.STORE, Unreachable),
        (Permanent, ErrorScope.STORE, Unreachable),
        (Unauthenticated, ErrorScope.STORE, NotPermitted),
        (Forbidden, ErrorScope.STORE, NotPermitted),
        (ForbiddenForTable, ErrorScope.TABLE, NotPermitted),
    ],
)
async def test_a_store_s_trouble_is_told_as_a_reader_knows_it(
    kind: type[ExternalError], scope: ErrorScope, told: type[Exception]
) -> None:
    trouble = kind("s3://lake/w/x", scope=scope, expected="an answer", found="none")
    one = StoreFiles("s3://lake/w", PrefixRouter({"s3://lake": Failing(trouble)}))
    with pytest.raises(told):
        await one.read("s3://lake/w/x", 10)
    with pytest.raises(told):
        await one.list("s3://lake/w/", 10)


class Hanging:
    """What lies on a mount whose server is gone, until that is back."""

    def __init__(self) -> None:
        self.is_back = threading.Event()

    def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        self.is_back.wait()
        return None

    def entries(self, prefix: str) -> FolderEntries:
        self.is_back.wait()
        return FolderEntries()


async def test_what_hangs_is_told_in_time_and_holds_up_no_process_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_files, "CALL_TIMEOUT", 0.05)
    mount = Hanging()
    one = ThreadedTree(mount)
    try:
        with pytest.raises(Unreachable, match="see whether a mount or the network hangs"):
            await one.read("file:///w/x", 10)
        with pytest.raises(Unreachable):
            await one.entries("file:///w/")
        # Those of other tests may take a moment; these would take for ever.
        assert unfinished_calls(1) == []
    finally:
        mount.is_back.set()
