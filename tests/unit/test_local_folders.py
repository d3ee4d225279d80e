"""Where local files may lie: keys, the root, the folders that are made, the lock, permissions and limits."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Permanent, Transient
from sfn.storage import Deleted, PreconditionFailed
from sfn.storage.atomic_files import LOCK_NAME, READ_FLAGS, TEMPORARY_NAME, LockableFolder, PendingFsyncs, read_content
from sfn.storage.local import BlockingLocalStore, LocalStore
from tests.promises.stores import names_in, told, touch_as_nobody, write_within

SOME = StoredObject(b"1", "0" * 64)


@pytest.mark.parametrize(
    "key",
    [
        "/a/b.ver",
        "s3://bucket/a/b.ver",
        "file://host/a/b.ver",
        "file:/a/b.ver",
        "file:///a//b.ver",
        "file:///a/./b.ver",
        "file:///a/../b.ver",
        "file:///a/b.ver/",
        "file:///a/b\0.ver",
        "file:///a/\ud800.ver",
        f"file:///a/{TEMPORARY_NAME}",
        f"file:///a/{LOCK_NAME}",
    ],
)
def test_a_key_that_is_no_plain_path_is_refused(key: str) -> None:
    files = BlockingLocalStore()
    for call in (
        lambda: files.read(key),
        lambda: files.write(key, b"1", None),
        lambda: files.delete(key, SOME),
        lambda: files.list(f"{key}/", 10),
    ):
        with pytest.raises(Permanent) as refused:
            call()
        assert refused.value.scope is ErrorScope.TABLE


def test_a_key_outside_of_the_root_is_refused(tmp_path: Path) -> None:
    files = BlockingLocalStore(f"file://{tmp_path}/warehouse")
    (tmp_path / "warehouse").mkdir()
    for outside in (f"file://{tmp_path}/a.ver", f"file://{tmp_path}/warehouse2/a.ver"):
        with pytest.raises(Permanent) as refused:
            files.write(outside, b"1", None)
        assert refused.value.scope is ErrorScope.TABLE
    assert isinstance(files.write(f"file://{tmp_path}/warehouse/a.ver", b"1", None), StoredObject)


def test_the_whole_machine_may_be_the_root(tmp_path: Path) -> None:
    for root in ("file://", "file:///"):
        files = BlockingLocalStore(root)
        assert files.read(f"file://{tmp_path}/a.ver") is None
        assert files.list("file:///", 10**6) == sorted(
            f"file:///{path.name}" for path in Path("/").iterdir() if path.is_symlink() or not path.is_dir()
        )


def test_what_lies_below_a_missing_root_is_out_of_reach_and_not_absent(tmp_path: Path) -> None:
    files = BlockingLocalStore(f"file://{tmp_path}/unmounted")
    key = f"file://{tmp_path}/unmounted/a.ver"
    for call in (
        lambda: files.read(key),
        lambda: files.write(key, b"1", None),
        lambda: files.write(key, b"1", SOME),
        lambda: files.delete(key, SOME),
        lambda: files.list(f"file://{tmp_path}/unmounted/", 10),
    ):
        with pytest.raises(Transient) as trouble:
            call()
        assert trouble.value.scope is ErrorScope.STORE
    assert names_in(tmp_path) == []


def test_two_folders_are_made_and_not_a_third(tmp_path: Path) -> None:
    files = BlockingLocalStore()
    key = f"file://{tmp_path}/orders/metadata/_sfn/a.ver"
    with pytest.raises(Transient) as trouble:
        files.write(key, b"1", None)
    assert trouble.value.scope is ErrorScope.TABLE
    assert trouble.value.remedy.startswith("mount")
    assert names_in(tmp_path) == []
    (tmp_path / "orders").mkdir()
    assert isinstance(files.write(key, b"1", None), StoredObject)


def test_only_a_creation_makes_folders(tmp_path: Path) -> None:
    files = BlockingLocalStore()
    key = f"file://{tmp_path}/metadata/_sfn/a.ver"
    assert files.read(key) is None
    assert files.write(key, b"1", SOME) == PreconditionFailed()
    assert files.delete(key, SOME) == Deleted()
    assert files.list(f"file://{tmp_path}/metadata/_sfn/", 10) == []
    assert names_in(tmp_path) == []


def test_a_listing_shows_no_name_that_could_not_be_a_key(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.ver")).write_bytes(b"1")
    (tmp_path / TEMPORARY_NAME).write_bytes(b"1")
    assert BlockingLocalStore().list(f"file://{tmp_path}/", 10) == []


def test_a_listing_hides_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    assert BlockingLocalStore().list(f"file://{tmp_path}/", 10) == [
        f"file://{tmp_path}/.hidden",
        f"file://{tmp_path}/link",
    ]


def test_a_file_longer_than_a_document_is_replaced_and_deleted_by_nobody(tmp_path: Path) -> None:
    files, key = BlockingLocalStore(), f"file://{tmp_path}/a.ver"
    (tmp_path / "a.ver").write_bytes(b"x" * 100_000)
    held = files.read(key)
    assert held is not None
    for call in (lambda: files.write(key, b"1", held), lambda: files.delete(key, held)):
        with pytest.raises(Permanent) as refused:
            call()
        assert refused.value.scope is ErrorScope.TABLE
    assert (tmp_path / "a.ver").stat().st_size == 100_000


async def test_a_change_waits_for_the_lock(tmp_path: Path) -> None:
    store, key = LocalStore(), f"file://{tmp_path}/a.ver"
    written: list[StoredObject | PreconditionFailed] = []

    async def write() -> None:
        written.append(await store.write(key, b"1", None))

    async with anyio.create_task_group() as tasks:
        with LockableFolder(str(tmp_path), "the folder", PendingFsyncs()) as other:
            assert other.lock()
            tasks.start_soon(write)
            await anyio.sleep(0.05)
            assert await store.read(key) is None
            assert not written
    assert written == [await store.read(key)]


async def test_a_change_does_not_wait_for_ever(tmp_path: Path) -> None:
    store, key = LocalStore(lock_timeout=0.05), f"file://{tmp_path}/a.ver"
    with LockableFolder(str(tmp_path), "the folder", PendingFsyncs()) as other:
        assert other.lock()
        for call in (lambda: store.write(key, b"1", None), lambda: store.delete(key, SOME)):
            with pytest.raises(Transient) as trouble:
                await call()
            assert trouble.value.scope is ErrorScope.TABLE
    assert isinstance(await store.write(key, b"1", None), StoredObject)


async def test_those_who_wait_for_one_folder_hold_up_no_other(tmp_path: Path) -> None:
    store = LocalStore(threads=1)
    (tmp_path / "stuck").mkdir()
    async with anyio.create_task_group() as tasks:
        with LockableFolder(str(tmp_path / "stuck"), "the folder", PendingFsyncs()) as other:
            assert other.lock()
            for number in range(4):
                tasks.start_soon(store.write, f"file://{tmp_path}/stuck/{number}.ver", b"1", None)
            await anyio.sleep(0.01)
            assert isinstance(await store.write(f"file://{tmp_path}/free/a.ver", b"1", None), StoredObject)
    assert len(names_in(tmp_path / "stuck")) == 4


async def test_a_cancelled_change_is_done_or_not_done(tmp_path: Path) -> None:
    store, key = LocalStore(), f"file://{tmp_path}/a.ver"
    held = await store.write(key, b"0", None)
    for number in range(1, 20):
        assert isinstance(held, StoredObject)
        with anyio.move_on_after(number / 10_000):
            await store.write(key, b"%d" % number, held)
        now = await store.read(key)
        assert now is not None
        assert now.body in {held.body, b"%d" % number}
        assert names_in(tmp_path) == ["a.ver"]
        held = now


@pytest.fixture
def forbidden() -> Iterator[Path]:
    """A folder that everybody may search and nobody may change, and a file in it that nobody may read."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, mode in ((folder / "closed", 0o000), (folder / "shown", 0o555)):
            path.mkdir()
            (path / "a.ver").write_bytes(b"1")
            (path / "a.ver").chmod(0o000)
            path.chmod(mode)
        folder.chmod(0o755)
        yield folder
        for path in folder.iterdir():
            path.chmod(0o755)


@pytest.mark.parametrize(
    ("verb", "place"),
    [
        ("read", "shown/a.ver"),
        ("write", "shown/a.ver"),
        ("delete", "shown/a.ver"),
        ("write", "shown/new.ver"),
        ("write", "shown/_sfn/new.ver"),
        ("read", "closed/a.ver"),
        ("write", "closed/new.ver"),
        ("delete", "closed/a.ver"),
        ("list", "closed/"),
    ],
)
def test_the_first_refusal_is_the_stores_trouble(forbidden: Path, verb: str, place: str) -> None:
    """Where no root is configured. `test_local_root.py` has the others."""
    key = f"file://{forbidden}/{place}"
    troubles = told(touch_as_nobody, "file://", [(verb, key)])
    assert troubles == [("Forbidden", ErrorScope.STORE, key, f"EACCES ({os.strerror(errno.EACCES)})")]


@pytest.mark.parametrize(
    ("limit", "value", "kind", "scope", "number"),
    [
        (resource.RLIMIT_FSIZE, 1000, "Permanent", ErrorScope.STORE, errno.EFBIG),
        (resource.RLIMIT_NOFILE, 0, "Transient", ErrorScope.PROCESS, errno.EMFILE),
    ],
)
def test_a_limit_of_the_process_is_no_tables_trouble(
    tmp_path: Path, limit: int, value: int, kind: str, scope: ErrorScope, number: int
) -> None:
    trouble = told(write_within, limit, value, f"file://{tmp_path}/a.ver")
    assert trouble == (kind, scope, f"{errno.errorcode[number]} ({os.strerror(number)})")
    assert names_in(tmp_path) == []


def test_a_file_that_is_longer_than_it_says_is_read_whole() -> None:
    version = Path("/proc/version")
    assert version.stat().st_size == 0
    assert read_content(os.open(version, READ_FLAGS)) == version.read_bytes()
