"""Symbolic links: none below a table's location is followed, and none above it out of where the table belongs."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sfn
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Permanent, Unsafe
from sfn.reader import files as reader
from sfn.reader.files import run_synchronously
from sfn.reader.verify import verify
from sfn.sfnfile.naming import depth_below_table
from sfn.storage.atomic_files import LOCK_NAME
from sfn.storage.local import BlockingLocalStore
from tests.promises.processes import names_in
from tests.support.real_table import real_table
from tests.support.table_directory import Directory

HINT, DOCUMENT, ALONGSIDE = "metadata/version-hint.text", "metadata/_sfn/n_a_main.ver", "_sfn/n_a_main.ver"
SOME = StoredObject(b"1", "0" * 64)
_HERE, _EXCHANGE = -100, 2
"""`AT_FDCWD` and `RENAME_EXCHANGE`: two names are swapped in one step."""
WRITES, MOST_WRITES = 300, 50_000
"""Writes beside the swaps; on a busy machine more are made, until one has met a link and another has not."""


@pytest.fixture(name="lake")
def fixture_lake(tmp_path: Path) -> Path:
    """Two tables of two owners, and what lies outside of the store."""
    lake = tmp_path / "lake"
    for owner in ("a", "b"):
        (lake / owner / "orders" / "metadata" / "_sfn").mkdir(parents=True)
        (lake / owner / "orders" / "_sfn").mkdir()
        for name in (HINT, DOCUMENT, ALONGSIDE):
            (lake / owner / "orders" / name).write_bytes(owner.encode())
    outside = tmp_path / "outside"
    (outside / "_sfn").mkdir(parents=True)
    (outside / "metadata" / "_sfn").mkdir(parents=True)
    return lake


def files_of(lake: Path, *bounds: str, links_to: tuple[Path, ...] = ()) -> BlockingLocalStore:
    """The store of a lake."""
    folders = [f"file://{folder}" for folder in links_to]
    return BlockingLocalStore(f"file://{lake}", [f"file://{lake}/{bound}" for bound in bounds], folders)


def verbs(files: BlockingLocalStore, key: str) -> dict[str, Callable[[], object]]:
    """Every verb on a key."""
    return {
        "read": lambda: files.read(key),
        "part": lambda: files.read_range(key, 0, 1),
        "create": lambda: files.write(key, b"2", None),
        "replace": lambda: files.write(key, b"2", SOME),
        "delete": lambda: files.delete(key, SOME),
        "list": lambda: files.list(key.rpartition("/")[0] + "/", 10),
    }


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, not through links."""
    found = (Path(at) / name for at, _, names in os.walk(folder) for name in names)
    return {str(path): path.read_bytes() for path in found if path.is_file() and not path.is_symlink()}


def replaced(path: Path, target: Path) -> None:
    """A link in a folder's or a file's place; what was there lies beside it."""
    path.rename(path.parent / f"{path.name}.kept")
    path.symlink_to(target, target_is_directory=True)


@pytest.mark.parametrize("verb", ["read", "part", "create", "replace", "delete", "list"])
@pytest.mark.parametrize("target", ["b/orders", "a/orders", "../outside"])
@pytest.mark.parametrize(
    ("link", "name"), [("metadata", HINT), ("metadata", DOCUMENT), ("metadata/_sfn", DOCUMENT), ("_sfn", ALONGSIDE)]
)
def test_a_folder_below_the_location_that_is_a_link_is_refused(
    lake: Path, verb: str, target: str, link: str, name: str
) -> None:
    """Also one to the table's own files: whoever reads it can't tell."""
    within = f"{link}.kept" if target == "a/orders" else link
    replaced(lake / "a" / "orders" / link, (lake / target).resolve() / within)
    before = contents(lake.parent)
    with pytest.raises(Permanent) as refused:
        verbs(files_of(lake), f"file://{lake}/a/orders/{name}")[verb]()
    assert refused.value.scope is ErrorScope.TABLE
    assert refused.value.where.endswith(f"/a/orders/{link}")
    assert "no symbolic link" in refused.value.expected
    assert "folder in its place" in refused.value.remedy
    assert contents(lake.parent) == before


@pytest.mark.parametrize("name", [HINT, DOCUMENT, ALONGSIDE])
def test_a_file_that_is_a_hard_link_to_another_tables_is_replaced_and_not_written_to(lake: Path, name: str) -> None:
    mine, theirs = lake / "a" / "orders" / name, lake / "b" / "orders" / name
    mine.unlink()
    mine.hardlink_to(theirs)
    files, key = files_of(lake), f"file://{lake}/a/orders/{name}"
    assert isinstance(files.write(key, b"2", files.read(key)), StoredObject)
    assert (mine.read_bytes(), theirs.read_bytes()) == (b"2", b"b")


def test_a_link_above_the_location_is_followed_where_it_stays_in_the_store(lake: Path) -> None:
    (lake / "c").symlink_to("a")
    (lake / "d").symlink_to(lake / "c" / "orders")
    files = files_of(lake)
    for name in (HINT, DOCUMENT, ALONGSIDE):
        expected = files.read(f"file://{lake}/a/orders/{name}")
        assert expected == files.read(f"file://{lake}/c/orders/{name}") == files.read(f"file://{lake}/d/{name}")
    held = files.write(f"file://{lake}/d/metadata/_sfn/new.ver", b"2", None)
    assert held == files.read(f"file://{lake}/a/orders/metadata/_sfn/new.ver")


@pytest.mark.parametrize("verb", ["read", "part", "create", "replace", "delete", "list"])
@pytest.mark.parametrize("target", ["outside", "lake/../outside", "{lake}/../outside"])
def test_a_link_above_the_location_does_not_lead_out_of_the_store(lake: Path, verb: str, target: str) -> None:
    (lake / "t").symlink_to(target.format(lake=lake) if "{" in target else f"../{target}")
    before = contents(lake.parent)
    with pytest.raises(Permanent, match="links_to") as refused:
        verbs(files_of(lake), f"file://{lake}/t/{DOCUMENT}")[verb]()
    assert refused.value.scope is ErrorScope.TABLE
    assert contents(lake.parent) == before


def test_a_link_above_the_location_leads_where_the_settings_say(lake: Path) -> None:
    outside = lake.parent / "outside"
    (lake / "t").symlink_to(outside)
    (lake / "u").symlink_to("../outside")
    files = files_of(lake, links_to=(outside,))
    held = files.write(f"file://{lake}/t/{DOCUMENT}", b"2", None)
    assert held == files.read(f"file://{lake}/u/{DOCUMENT}")
    assert (outside / DOCUMENT).read_bytes() == b"2"
    (outside / "further").symlink_to(lake.parent / "elsewhere")
    with pytest.raises(Permanent):
        files.read(f"file://{lake}/t/further/{DOCUMENT}")


def test_a_link_does_not_lead_from_one_allowed_location_into_another(lake: Path) -> None:
    """Who may have tables in the one folder may not have any in the other."""
    (lake / "a" / "evil").symlink_to(lake / "b" / "orders")
    key = f"file://{lake}/a/evil/{HINT}"
    assert files_of(lake).read(key) is not None
    with pytest.raises(Permanent):
        files_of(lake, "a", "b").read(key)


def test_the_prefix_of_a_store_may_be_a_link(lake: Path) -> None:
    (lake.parent / "named").symlink_to(lake)
    files = files_of(lake.parent / "named")
    held = files.write(f"file://{lake.parent}/named/a/orders/metadata/_sfn/new.ver", b"2", None)
    assert held == files_of(lake).read(f"file://{lake}/a/orders/metadata/_sfn/new.ver")


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_lies_in_the_lock_files_place_is_not_waited_for(lake: Path, kind: str) -> None:
    folder = lake / "a" / "orders" / "metadata" / "_sfn"
    plants = {"pipe": os.mkfifo, "link": lambda path: path.symlink_to("x"), "folder": os.mkdir}
    plants[kind](folder / LOCK_NAME)
    with pytest.raises(Permanent) as refused:
        files_of(lake).write(f"file://{folder}/new.ver", b"2", None)
    assert refused.value.scope is ErrorScope.TABLE
    assert not (folder / "new.ver").exists()


def test_the_lock_files_mode_is_not_given_to_another_file_that_has_its_name_too(lake: Path) -> None:
    """A hard link that the table's owner made, to a file of the service's own."""
    folder, secret = lake / "a" / "orders" / "metadata" / "_sfn", lake / "secret"
    secret.touch(0o600)
    (folder / LOCK_NAME).hardlink_to(secret)
    files_of(lake).write(f"file://{folder}/new.ver", b"2", None)
    assert secret.stat().st_mode & 0o777 == 0o600


def test_a_lock_that_a_dead_writer_left_is_taken_and_nothing_stays(lake: Path) -> None:
    folder = lake / "a" / "orders" / "metadata" / "_sfn"
    (folder / LOCK_NAME).touch()
    files = files_of(lake)
    assert isinstance(files.write(f"file://{folder}/new.ver", b"2", None), StoredObject)
    assert names_in(folder) == ["n_a_main.ver", "new.ver"]
    assert files.list(f"file://{folder}/", 10) == [f"file://{folder}/n_a_main.ver", f"file://{folder}/new.ver"]


@pytest.fixture(name="swapping")
def fixture_swapping(lake: Path) -> Iterator[Path]:
    """Its owner puts a link to another table's folder in a folder's place and back, as fast as can be."""
    metadata = lake / "a" / "orders" / "metadata"
    (metadata / "evil").symlink_to(lake / "b" / "orders" / "metadata" / "_sfn")
    names = [os.fsencode(metadata / name) for name in ("_sfn", "evil")]
    stop = threading.Event()
    exchange = ctypes.CDLL(None, use_errno=True).renameat2

    def swap() -> None:
        pause = 0.0
        # As long as a write takes the folder is in its place, and then the link is for a moment.
        while not stop.wait(pause := 0.0 if pause else 0.002):
            assert exchange(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0

    thread = threading.Thread(target=swap)
    thread.start()
    yield lake
    stop.set()
    thread.join()


def test_a_link_that_is_swapped_in_meanwhile_has_nothing_written_elsewhere(swapping: Path) -> None:
    files, theirs = files_of(swapping), swapping / "b" / "orders" / "metadata" / "_sfn"
    written, said = 0, set[str]()
    for number in range(MOST_WRITES):
        if number >= WRITES and written and said:
            break
        key = f"file://{swapping}/a/orders/metadata/_sfn/{number}.ver"
        try:
            written += isinstance(files.write(key, b"2", None), StoredObject)
        except Permanent as refused:
            said.add(refused.expected)
    # Which of the two depends on the step that met the link.
    no_link = "folders and files below a table's location, and no symbolic link"
    assert said
    assert said <= {no_link, "a regular file, no link to one, in a folder"}
    assert names_in(theirs) == ["n_a_main.ver"]
    assert (theirs / "n_a_main.ver").read_bytes() == b"b"
    assert written


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (f"file:///w/t/{DOCUMENT}", 3),
        (f"file:///w/t/{HINT}", 2),
        (f"file:///w/t/{ALONGSIDE}", 2),
        ("file:///sfn/n/t/n_t_main.ver", 1),
        ("file:///w/t/data/part.parquet", 1),
        ("file:///x", 1),
    ],
)
def test_how_many_names_of_a_key_lie_below_the_location(key: str, expected: int) -> None:
    assert depth_below_table(key) == expected


@pytest.mark.parametrize("link", ["metadata", "metadata/_sfn"])
def test_a_reader_is_not_shown_another_table_by_a_link(tmp_path: Path, link: str) -> None:
    mine, theirs = Directory(tmp_path / "mine"), Directory(tmp_path / "theirs")
    for place in (mine, theirs):
        place.metadata()
        place.write()
    replaced(tmp_path / "mine" / link, tmp_path / "theirs" / link)
    with pytest.raises(Unsafe, match="link"):
        sfn.resolve(tmp_path / "mine")
    (tmp_path / "named").symlink_to(tmp_path / "theirs")
    assert sfn.resolve(tmp_path / "named").metadata_location == sfn.resolve(tmp_path / "theirs").metadata_location


def test_data_behind_a_link_is_read_only_where_that_is_allowed(tmp_path: Path) -> None:
    directory = Path(real_table(tmp_path).directory)
    data, elsewhere = directory / "data", tmp_path / "elsewhere"
    data.rename(elsewhere)
    data.symlink_to(elsewhere)
    rows = sfn.read(directory).num_rows
    assert rows == sfn.read(directory, allowed=(str(elsewhere),)).num_rows > 0
    with pytest.raises(Unsafe, match="link"):
        sfn.read(directory, allowed=(str(directory),))


TARGETS = {
    "beside": "real/{}",
    "from above": "../w/real/{}",
    "from far above": "../../root/w/real/{}",
    "absolute": "{root}/w/real/{}",
    "by a link": "alias/{}",
    "outside": "../../outside/{}",
    "outside, absolute": "{root}/../outside/{}",
}


@pytest.mark.parametrize("is_bounded", [True, False])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_every_verb_of_a_reader_follows_a_link_in_the_last_place(
    tmp_path: Path, target: str, *, is_bounded: bool
) -> None:
    """Out of the root only where nothing was said of what is allowed."""
    root = tmp_path / "root"
    for folder in (root / "w" / "real", tmp_path / "outside"):
        (folder / "folder").mkdir(parents=True)
        (folder / "folder" / "x").write_bytes(b"1")
        (folder / "file").write_bytes(b"123")
    (root / "w" / "alias").symlink_to("real")
    for name in ("folder", "file"):
        (root / "w" / name).symlink_to(target.format(name, root=root))
    url = f"file://{root}/w"
    files = reader.LocalFileSystem(url, (url,) if is_bounded else ())
    found: dict[str, Callable[[], object]] = {
        "is_folder": lambda: (
            run_synchronously(files.is_folder(f"{url}/folder")),
            run_synchronously(files.is_folder(f"{url}/file")),
        ),
        "size": lambda: (run_synchronously(files.size(f"{url}/file")), run_synchronously(files.size(f"{url}/folder"))),
        "read": lambda: (
            run_synchronously(files.read(f"{url}/file", 2)),
            run_synchronously(files.read(f"{url}/folder", 2)),
        ),
        "list": lambda: run_synchronously(files.list(f"{url}/folder/", 5)),
        "opened": lambda: opened_and_read(files, f"{url}/file"),
    }
    if is_bounded and "outside" in target:
        for verb in found.values():
            with pytest.raises(Unsafe, match="link"):
                verb()
        return
    assert {name: verb() for name, verb in found.items()} == {
        "is_folder": (True, False),
        "size": (3, None),
        "read": (b"12", None),
        "list": [f"{url}/folder/x"],
        "opened": b"123",
    }


def opened_and_read(files: reader.LocalFileSystem, key: str) -> bytes:
    """What an opened file holds."""
    with files.open_file(key) as file:
        return file.read()


def test_a_link_to_nowhere_is_not_there_for_any_verb_of_a_reader(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    files, key = reader.LocalFileSystem(), f"file://{tmp_path}/link"
    assert (
        run_synchronously(files.is_folder(key)),
        run_synchronously(files.size(key)),
        run_synchronously(files.read(key, 1)),
    ) == (False, None, None)
    assert run_synchronously(files.list(f"{key}/", 1)) == []
    with pytest.raises(FileNotFoundError):
        files.open_file(key)


def test_deep_verification_finds_data_files_that_are_links(tmp_path: Path) -> None:
    directory = Path(real_table(tmp_path).directory)
    for part in list((directory / "data").rglob("*.parquet")):
        part.rename(tmp_path / part.name)
        part.symlink_to(tmp_path / part.name)
    _, findings = verify(lambda: sfn.resolve(directory), deep=True, on_progress=lambda _done, _total: None)
    assert [finding for finding in findings if not finding.ok] == []
