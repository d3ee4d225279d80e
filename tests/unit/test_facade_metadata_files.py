"""Metadata files below the root of a facade."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
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
    SfnError,
    TooManyFiles,
    Transient,
    Unauthenticated,
    Unreachable,
    Unsafe,
)
from sfn.facade import FileTree, metadata_files
from sfn.facade.metadata_files import LocalTree, StoreFiles, ThreadedTree, open_tree
from sfn.reader.files import FileReader, FolderEntries
from sfn.safe_open import open_without_links
from sfn.storage import PrefixRouter
from sfn.storage.memory import MemoryStore
from tests.promises.processes import NOBODY, plant_file, told

SECRET = b"secret of the machine"
LOOKS, MOST_LOOKS = 1_500, 150_000
"""At what is swapped meanwhile; more than the first where not all that may be seen was seen."""


@pytest.fixture(name="place", params=["plain", "by a link"])
def fixture_place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The root, with a secret beside it; with a link on the way nothing can be opened at once."""
    folder = tmp_path.resolve()
    (folder / "real" / "w" / "t").mkdir(parents=True)
    (folder / "real" / "secret").mkdir()
    (folder / "real" / "secret" / "x").write_bytes(SECRET)
    (folder / "real" / "w" / "t" / "x").write_bytes(b"inside")
    (folder / "link").symlink_to("real")
    return folder / ("real" if request.param == "plain" else "link") / "w"


def read(place: Path, name: str) -> bytes | None:
    return LocalTree(f"file://{place}").read(f"file://{place}/{name}", 100)


def listed(place: Path, name: str = "") -> tuple[set[str], set[str], set[str]]:
    found = LocalTree(f"file://{place}").entries(f"file://{place}/{name}")
    return set(found.files), set(found.folders), set(found.links)


@pytest.mark.parametrize("target", ["t", "./t", "t/.", "t/../t", "../w/t/..//t"])
def test_a_link_that_stays_inside_is_followed(place: Path, target: str) -> None:
    (place / "to").symlink_to(target)
    assert read(place, "to/x") == b"inside"
    assert listed(place, "to/") == ({"x"}, set(), set())
    assert listed(place) == (set(), {"t", "to"}, {"to"})


@pytest.mark.parametrize("is_real", [True, False])
def test_an_absolute_link_that_stays_inside_is_followed(place: Path, is_real: bool) -> None:
    target = place.resolve() if is_real else place
    (place / "to").symlink_to(target / "t")
    (place / "file").symlink_to(target / "t" / "x")
    (place / "a").mkdir()
    (place / "a" / "again").symlink_to("../to")
    assert read(place, "to/x") == read(place, "file") == read(place, "a/again/x") == b"inside"
    assert listed(place) == (set(), {"t", "to", "file", "a"}, {"to", "file"})


@pytest.mark.parametrize(
    "target",
    [
        "../secret/x",
        "t/../../secret/x",
        "{w}/../secret/x",
        "{w}/t/../../secret/x",
        "{secret}/x",
        "/etc/passwd",
        "..",
        "../..",
        "/",
        "/proc/self/root/etc/passwd",
    ],
)
def test_a_link_that_leads_outside_is_refused(place: Path, target: str) -> None:
    (place / "to").symlink_to(target.format(w=place, secret=place.parent / "secret"))
    (place / "t" / "again").symlink_to("../to")
    for name in ("to", "to/x", "t/again", "t/again/x"):
        with pytest.raises(Unsafe):
            read(place, name)
    with pytest.raises(Unsafe):
        listed(place, "to/")
    # It is there. Nobody looked where it leads.
    assert listed(place) == (set(), {"t", "to"}, {"to"})


def test_links_in_a_circle_end(place: Path) -> None:
    (place / "a").symlink_to("b")
    (place / "b").symlink_to("a")
    (place / "self").symlink_to("self/self")
    for name in ("a", "b/x", "self"):
        with pytest.raises(Unsafe, match="links on the way"):
            read(place, name)
    assert listed(place) == (set(), {"t", "a", "b", "self"}, {"a", "b", "self"})
    with pytest.raises(Unsafe):
        listed(place, "a/")


def test_a_link_to_nowhere_is_nothing(place: Path) -> None:
    (place / "to").symlink_to("none/none")
    (place / "through").symlink_to("t/x/below")
    assert read(place, "to") is None
    assert read(place, "through") is None
    for name in ("to/", "through/"):
        assert listed(place, name) == (set(), set(), set())
    assert listed(place) == (set(), {"t", "to", "through"}, {"to", "through"})


@pytest.mark.parametrize("name", ["../secret/x", "t/../../secret/x", "./t/x", "t//x", "t/./x", ".."])
def test_a_key_with_detours_is_refused(place: Path, name: str) -> None:
    with pytest.raises(Unsafe):
        read(place, name)


def test_what_can_be_no_path_is_refused(place: Path) -> None:
    for name in ("t\0/x", "t/\0", "t/\udc80"):
        with pytest.raises(Unreachable):
            read(place, name)
    assert read(place, "n" * 300) is None
    assert read(place, "/".join(["n" * 200] * 40)) is None


def test_pipes_and_devices_are_neither_waited_for_nor_shown(place: Path) -> None:
    os.mkfifo(place / "pipe")
    (place / "to").symlink_to("pipe")
    for name in ("pipe", "to"):
        with pytest.raises(Unreachable, match="a pipe or a device"):
            read(place, name)
    assert listed(place) == (set(), {"t", "to"}, {"to"})


def test_what_is_hidden_is_not_shown(place: Path) -> None:
    (place / ".sfn-swap.tmp").write_bytes(b"half")
    Path(os.fsdecode(os.fsencode(place) + b"/\xff")).touch()
    assert listed(place) == (set(), {"t"}, set())


def test_a_folder_of_too_many_files_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_files, "MAX_LISTED_FILES", 3)
    for number in range(3):
        (place / "t" / f"{number}").touch()
    with pytest.raises(TooManyFiles):
        listed(place, "t/")
    assert listed(place) == (set(), {"t"}, set())


@pytest.mark.slow
def test_what_nobody_may_read_is_told() -> None:
    with TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        (place / "x").touch(0)
        (place / "closed").mkdir(0)
        assert told(refused_to_nobody, place) == ["NotPermitted", "NotPermitted"]


def refused_to_nobody(place: Path, answer: Connection) -> None:
    if os.geteuid() == 0:
        os.setuid(NOBODY)
    refusals: list[str] = []
    for look in (read, listed):
        with pytest.raises(SfnError) as refused:
            look(place, "x" if look is read else "closed/")
        refusals.append(type(refused.value).__name__)
    answer.send(refusals)


def test_no_descriptor_is_left_open(place: Path) -> None:
    (place / "to").symlink_to("t")
    (place / "out").symlink_to("../secret")

    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for _ in range(20):
        read(place, "to/x")
        read(place, "t/none")
        listed(place, "to/")
        for name in ("out/x", "t/../x"):
            with pytest.raises(Unsafe):
                read(place, name)
    assert count() == before


@pytest.fixture(name="swapping")
def fixture_swapping(place: Path) -> Iterator[Path]:
    """Somebody puts a link to a secret in a folder's place and back, as fast as can be."""
    (place / "s").mkdir()
    (place / "s" / "x").write_bytes(b"inside")
    (place / "evil").symlink_to("../secret")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (place / "s").rename(place / "s.kept")
            (place / "evil").rename(place / "s")
            (place / "s").rename(place / "evil")
            (place / "s.kept").rename(place / "s")

    thread = threading.Thread(target=swap)
    thread.start()
    yield place
    stop.set()
    thread.join()


def test_what_is_swapped_while_it_is_read_leads_nowhere_else(swapping: Path) -> None:
    """It is the folder's own file, nothing in the moment between two steps, or a link that is refused."""
    expected, seen = {b"inside", None, b"refused"}, set[bytes | None]()
    for number in range(MOST_LOOKS):
        # The threads may run in step for long, and one of the three is met late.
        if number >= LOOKS and seen >= expected:
            break
        try:
            seen.add(read(swapping, "s/x"))
        except Unsafe:
            seen.add(b"refused")
    assert seen == expected


def test_a_path_without_links_is_opened_at_once(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "x").write_bytes(b"")
    (folder / "to").symlink_to("x")
    descriptor = open_without_links(f"{folder}/x", os.O_RDONLY)
    assert descriptor is not None
    os.close(descriptor)
    assert open_without_links(f"{folder}/to", os.O_RDONLY) is None
    assert open_without_links(f"{folder}/x\0", os.O_RDONLY) is None
    with pytest.raises(FileNotFoundError):
        open_without_links(f"{folder}/none", os.O_RDONLY)


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
    return local(folder)


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
        with pytest.raises(Unreachable, match="check whether a mount or the network hangs"):
            await one.read("file:///w/x", 10)
        with pytest.raises(Unreachable):
            await one.entries("file:///w/")
        # Those of other tests may take a moment; these would take for ever.
        assert unfinished_calls(10) == []
    finally:
        mount.is_back.set()
