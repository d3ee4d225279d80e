"""What local files promise among processes, some of which die in the middle."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfn.domain.jobs import StoredObject
from sfn.storage import content_etag
from sfn.storage.atomic_files import LOCK_NAME, TEMPORARY_NAME, LockableFolder, PendingFsyncs
from sfn.storage.local import BlockingLocalStore, LockBusy
from tests.promises.processes import (
    Step,
    alternate,
    count_up,
    count_up_by_the_folders_lock,
    die_half_written,
    die_locked,
    die_writing,
    ended,
    names_in,
    started,
    told,
    write_as,
)

USERS = 65_531, 65_532
OLD, NEW = b"o" * 2000, b"n" * 3000


def key_in(folder: Path) -> str:
    return f"file://{folder}/_sfn/sales_orders_main.ver"


def written(key: str, body: bytes) -> StoredObject:
    held = BlockingLocalStore().write(key, body, None)
    assert isinstance(held, StoredObject)
    return held


def body_at(key: str) -> bytes | None:
    held = BlockingLocalStore().read(key)
    return None if held is None else held.body


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that every user may write, below one that every user may pass."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "shared")
        folder.mkdir()
        folder.chmod(0o777)
        Path(name).chmod(0o755)
        yield folder


def names_beside(key: str) -> list[str]:
    return names_in(Path(key.removeprefix("file://")).parent)


@pytest.mark.slow
def test_concurrent_processes_lose_no_update(tmp_path: Path) -> None:
    key = key_in(tmp_path)
    written(key, b"0")
    processes = [started(count_up, key, 50) for _ in range(8)]
    assert [ended(process) for process in processes] == [0] * 8
    assert body_at(key) == b"400"
    assert names_beside(key) == ["sales_orders_main.ver"]


@pytest.mark.slow
def test_reader_never_sees_a_partial_write(tmp_path: Path) -> None:
    key = key_in(tmp_path)
    bodies = (b"a" * 60_000, b"b" * 30_000, b"c")
    written(key, bodies[0])
    writer = started(alternate, key, bodies, 400)
    seen: set[bytes] = set()
    reads = 0
    files = BlockingLocalStore()
    while writer.is_alive():
        held = files.read(key)
        assert held is not None
        assert held.body in bodies
        assert files.list(f"file://{tmp_path}/_sfn/", 10) == [key]
        seen.add(held.body)
        reads += 1
    assert ended(writer) == 0
    assert len(seen) > 1, f"{reads} reads saw no change: nothing was tried"


CREATING = [Step("write"), Step("fsync"), Step("linkat"), Step("fsync", of_folder=True)]
REPLACING = [Step("write"), Step("fsync"), Step("renameat"), Step("fsync", of_folder=True)]


@pytest.mark.slow
@pytest.mark.parametrize("step", CREATING, ids=str)
def test_crash_during_create_leaves_all_or_nothing(tmp_path: Path, step: Step) -> None:
    key = key_in(tmp_path)
    written(f"{key}.other", b"")
    assert ended(started(die_writing, key, NEW, step)) == -signal.SIGSYS
    assert body_at(key) == (NEW if step.of_folder else None)
    check_mended(key, body_at(key))


@pytest.mark.slow
@pytest.mark.parametrize("step", REPLACING, ids=str)
def test_crash_during_replace_leaves_the_old_or_the_new_content(tmp_path: Path, step: Step) -> None:
    key = key_in(tmp_path)
    written(key, OLD)
    assert ended(started(die_writing, key, NEW, step)) == -signal.SIGSYS
    assert body_at(key) == (NEW if step.of_folder else OLD)
    check_mended(key, body_at(key))


@pytest.mark.slow
@pytest.mark.parametrize("before", [None, OLD], ids=["creating", "replacing"])
def test_half_written_content_is_invisible(tmp_path: Path, before: bytes | None) -> None:
    key = key_in(tmp_path)
    if before is None:
        written(f"{key}.other", b"")
    else:
        written(key, before)
    assert ended(started(die_half_written, key, NEW, 1000)) == -signal.SIGXFSZ
    leftover = tmp_path / "_sfn" / TEMPORARY_NAME
    assert leftover.read_bytes() == NEW[:1000]
    assert body_at(key) == before
    check_mended(key, before)


def check_mended(key: str, present: bytes | None) -> None:
    """No listing shows what a dead writer left, and the next writer goes on and removes it."""
    folder = key.rpartition("/")[0] + "/"
    files = BlockingLocalStore()
    assert f"{folder}{TEMPORARY_NAME}" not in files.list(folder, 10)
    held = files.read(key)
    assert (None if held is None else held.body) == present
    assert files.write(key, b"next", held) == StoredObject(b"next", written(f"{key}.same", b"next").etag)
    assert TEMPORARY_NAME not in names_beside(key)


@pytest.mark.slow
def test_writer_killed_at_any_moment_leaves_complete_content(tmp_path: Path) -> None:
    key = key_in(tmp_path)
    bodies = (b"a" * 60_000, b"b" * 30_000)
    written(key, bodies[0])
    moved = 0
    for _ in range(6):
        before = (tmp_path / "_sfn").stat().st_mtime_ns
        writer = started(alternate, key, bodies, 10**9)
        while (tmp_path / "_sfn").stat().st_mtime_ns == before:
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.03))
        writer.kill()
        assert ended(writer) == -signal.SIGKILL
        moved += 1
        assert body_at(key) in bodies
        assert BlockingLocalStore().list(f"file://{tmp_path}/_sfn/", 10) == [key]
    assert moved == 6
    check_mended(key, body_at(key))


def test_temporary_file_of_a_running_writer_is_not_removed(tmp_path: Path) -> None:
    """Why cleaning up is safe: only the holder of the lock prepares, and only the holder of the lock cleans up."""
    key = key_in(tmp_path)
    held = written(key, OLD)
    prepared = tmp_path / "_sfn" / TEMPORARY_NAME
    files = BlockingLocalStore()
    with LockableFolder(str(tmp_path / "_sfn"), "the folder", PendingFsyncs()) as living:
        assert living.lock()
        prepared.write_bytes(b"half")
        assert files.write(key, NEW, held) == LockBusy()
        assert files.write(f"{key}.other", NEW, None) == LockBusy()
        assert files.delete(key, held) == LockBusy()
        assert prepared.read_bytes() == b"half"
        assert files.read(key) == held
    assert isinstance(files.write(f"{key}.other", NEW, None), StoredObject)
    assert not prepared.exists()


@pytest.mark.slow
def test_folder_locking_version_and_this_one_lose_no_update(tmp_path: Path) -> None:
    """As in a rolling upgrade: both versions prepare contents under one name."""
    key = key_in(tmp_path)
    written(key, b"0")
    processes = [started(count, key, 50) for count in (count_up, count_up_by_the_folders_lock) for _ in range(3)]
    assert [ended(process) for process in processes] == [0] * 6
    assert body_at(key) == b"300"


def test_folder_locking_version_and_this_one_exclude_each_other(tmp_path: Path) -> None:
    before = os.open(tmp_path, os.O_RDONLY)
    with LockableFolder(str(tmp_path), "the folder", PendingFsyncs()) as now:
        assert now.lock()
        with pytest.raises(BlockingIOError):
            fcntl.flock(before, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(before, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with LockableFolder(str(tmp_path), "the folder", PendingFsyncs()) as now:
        assert not now.lock()
    os.close(before)
    assert names_in(tmp_path) == []
    with LockableFolder(str(tmp_path), "the folder", PendingFsyncs()) as now:
        assert now.lock()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="takes on two users' ids")
@pytest.mark.parametrize("mode", [0o777, 0o1777], ids=["plain", "sticky"])
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_leftover_lock_file_is_usable_by_another_user(open_to_all: Path, umask: int, mode: int) -> None:
    """Both may write the folder; the file has the first one's id, and the mode that its mask leaves."""
    folder = open_to_all
    folder.chmod(mode)
    first = started(die_locked, USERS[0], umask, str(folder))
    assert ended(first) == -signal.SIGKILL
    lock = (folder / LOCK_NAME).stat()
    assert (lock.st_uid, lock.st_size) == (USERS[0], 0)
    assert written_as(USERS[1], umask, f"file://{folder}/a.ver") == StoredObject(b"1", content_etag(b"1"))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="takes on two users' ids")
def test_read_only_lock_file_of_another_user_is_locked(open_to_all: Path) -> None:
    """As an earlier version left it."""
    folder = open_to_all
    (folder / LOCK_NAME).touch(0o644)
    (folder / LOCK_NAME).chmod(0o644)
    holder = os.open(folder / LOCK_NAME, os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    assert written_as(USERS[1], 0o022, f"file://{folder}/a.ver") == LockBusy()
    os.close(holder)
    assert written_as(USERS[1], 0o022, f"file://{folder}/a.ver") == StoredObject(b"1", content_etag(b"1"))
    assert names_in(folder) == ["a.ver"]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="takes on a user's id")
def test_write_to_a_read_only_folder_is_forbidden(open_to_all: Path) -> None:
    folder = open_to_all
    folder.chmod(0o755)
    for left in (False, True):
        if left:
            (folder / LOCK_NAME).touch()
        denied = written_as(USERS[1], 0o022, f"file://{folder}/a.ver")
        assert isinstance(denied, tuple)
        assert denied[0] == "Forbidden"


def written_as(user: int, umask: int, key: str) -> object:
    """What a user's creation of a file comes to."""
    return told(write_as, user, umask, key, b"1")


def test_moved_folder_is_not_locked(tmp_path: Path) -> None:
    """A lock on a folder that no longer lies where readers look protects nothing."""
    key = key_in(tmp_path)
    written(key, OLD)
    with LockableFolder(str(tmp_path / "_sfn"), "the folder", PendingFsyncs()) as late:
        (tmp_path / "_sfn").rename(tmp_path / "elsewhere")
        assert not late.lock()
        (tmp_path / "_sfn").mkdir()
        assert not late.lock()
