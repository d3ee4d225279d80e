"""Stores on a local file system."""

from __future__ import annotations

import errno
import os
import resource
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
import pytest

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, ExternalError, Forbidden, ForbiddenForTable, OutcomeUnknown, Permanent, Transient
from sfn.storage import Deleted, PreconditionFailed, ReadGroup
from sfn.storage.atomic_files import (
    LOCK_NAME,
    READ_FLAGS,
    TEMPORARY_NAME,
    LockableFolder,
    PendingFsyncs,
    make_folder,
    read_content,
)
from sfn.storage.local import PROPAGATION_SECONDS, BlockingLocalStore, LocalStore
from tests.promises.processes import NOBODY, Step, names_in, refused, told, touch_as_nobody, write_within

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


@pytest.mark.parametrize("change", ["write", "delete"])
def test_every_change_removes_what_a_dead_writer_prepared(tmp_path: Path, change: str) -> None:
    files, key = BlockingLocalStore(), key_in(tmp_path)
    held = held_at(key)
    (tmp_path / TEMPORARY_NAME).write_bytes(b"half")
    _ = files.write(key, b"2", held) if change == "write" else files.delete(key, held)
    assert TEMPORARY_NAME not in names_in(tmp_path)


async def test_questions_of_one_publish_are_answered_together(tmp_path: Path) -> None:
    store, (key, *others) = LocalStore(threads=1), [f"file://{tmp_path}/{number:02}.ver" for number in range(40)]
    held, folder = await store.write(key, b"1", None), f"file://{tmp_path}/"
    found = await store.read_group(ReadGroup((key, *others), (key, others[0]), (folder,), 9))
    assert found.contents == {key: held} | dict.fromkeys(others)
    assert (found.existence, found.folders) == ({key: True, others[0]: False}, {folder: [key]})


def test_a_file_that_is_longer_than_it_says_is_read_whole() -> None:
    version = Path("/proc/version")
    assert version.stat().st_size == 0
    assert read_content(os.open(version, READ_FLAGS)) == version.read_bytes()


TABLE, STORE, UNCLEAR = (
    ("Forbidden", ErrorScope.TABLE),
    ("Transient", ErrorScope.STORE),
    ("Forbidden", ErrorScope.STORE),
)
OPEN = Step("openat")
PREPARE = Step("openat", argument=(2, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC))
FORBIDDEN = [errno.EACCES, errno.EPERM, errno.EROFS]
VERBS = ["read", "write", "delete", "list"]


@pytest.fixture
def root() -> Iterator[Path]:
    """A root that belongs to the user who works in it, with a table of theirs and one that is forbidden to them."""
    with tempfile.TemporaryDirectory() as name:
        above = Path(name)
        folder = above / "warehouse"
        for path in (folder, folder / "open", folder / "closed"):
            path.mkdir()
            if os.geteuid() == 0:
                os.chown(path, NOBODY, NOBODY)
        (folder / "closed").chmod(0o000)
        above.chmod(0o755)
        yield folder
        for path in (above, folder, folder / "closed"):
            path.chmod(0o755)


def troubles(root: Path, *touches: tuple[str, str]) -> Sequence[tuple[str, ErrorScope] | None]:
    """The kind and scope of each touch's trouble; the store's names the root, the other the file or folder."""
    here = f"file://{root}"
    answers = told(touch_as_nobody, here, [(verb, f"{here}{place}") for verb, place in touches])
    assert isinstance(answers, list)
    for (_, place), answer in zip(touches, answers, strict=True):
        if answer is not None:
            assert answer[2] == (here if answer[:2] == STORE else f"{here}{place}")
            assert answer[3].startswith(f"EACCES ({os.strerror(errno.EACCES)})")
    return [answer and answer[:2] for answer in answers]


def in_closed(verb: str) -> tuple[str, str]:
    return verb, "/closed/" if verb == "list" else "/closed/a.ver"


def test_a_forbidden_table_is_the_stores_trouble_while_no_other_is_served(root: Path) -> None:
    assert troubles(root, *map(in_closed, VERBS)) == [UNCLEAR] * 4


def test_a_forbidden_table_is_that_tables_trouble_once_another_is_served(root: Path) -> None:
    (root / "open" / "a.ver").write_bytes(b"1")
    served = [("read", "/open/a.ver"), ("list", "/open/"), ("write", "/open/b.ver")]
    forbidden = [in_closed(verb) for verb in ("read", "list", "write")]
    assert troubles(root, *served, *forbidden) == [*[None] * 3, *[TABLE] * 3]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [0o000, 0o222, 0o333, 0o444, 0o111])
def test_what_lies_below_a_root_that_may_not_be_read_or_searched_is_the_stores_trouble(root: Path, mode: int) -> None:
    root.chmod(mode)
    assert troubles(root, *map(in_closed, VERBS)) == [STORE] * 4


def test_a_root_that_lies_in_a_forbidden_folder_is_the_stores_trouble(root: Path) -> None:
    root.parent.chmod(0o000)
    assert troubles(root, *map(in_closed, VERBS)) == [STORE] * 4


def test_the_right_to_write_in_the_root_itself_is_not_needed(root: Path) -> None:
    """Somebody else may make the tables' folders."""
    root.chmod(0o555)
    touches = [("write", "/open/a.ver"), in_closed("write")]
    assert troubles(root, *touches) == [None, TABLE]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("verb", ["read", "write", "delete"])
def test_credentials_that_have_expired_are_the_stores_trouble(tmp_path: Path, number: int, verb: str) -> None:
    """Nothing can be opened any more, whatever the modes say."""
    location = f"file://{tmp_path}"
    files, key = BlockingLocalStore(location), f"{location}/a.ver"
    held = files.write(key, b"1", None)
    assert isinstance(held, StoredObject)
    calls = {
        "read": lambda: files.read(key),
        "write": lambda: files.write(key, b"2", held),
        "delete": lambda: files.delete(key, held),
    }
    trouble = trouble_of(OPEN, number, calls[verb])
    assert (type(trouble), trouble.scope, trouble.where) == (Transient, ErrorScope.STORE, location)
    assert trouble.found.startswith(errno.errorcode[number])
    assert key in trouble.found
    assert "credentials" in trouble.remedy
    assert files.read(key) == held


TOUCHED: Mapping[str, Callable[[BlockingLocalStore, str], object]] = {
    "read": lambda files, home: files.read(f"{home}/a.ver"),
    "part": lambda files, home: files.read_range(f"{home}/00001-a.metadata.json", 0, 9),
    "list": lambda files, home: files.list(f"{home}/", 9),
    "write": lambda files, home: files.write(f"{home}/b.ver", b"1", None),
    "delete": lambda files, home: files.delete(f"{home}/b.ver", files.read(f"{home}/b.ver") or StoredObject(b"", "")),
}
OF_ITS_PLACE = [*FORBIDDEN, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN]


def two_tables(tmp_path: Path) -> tuple[BlockingLocalStore, list[str], list[float]]:
    """A store of two tables that were served, the places of both, and its clock."""
    homes, clock = [f"file://{tmp_path}/{name}" for name in ("a", "b")], [1000.0]
    files = BlockingLocalStore(f"file://{tmp_path}", seconds=lambda: clock[0])
    for home in homes:
        folder = Path(home.removeprefix("file://"))
        folder.mkdir()
        (folder / "a.ver").write_bytes(b"1")
        (folder / "00001-a.metadata.json").write_bytes(b"1")
        for verb in TOUCHED:
            TOUCHED[verb](files, home)
    files.write(f"{homes[0]}/b.ver", b"1", None)
    return files, homes, clock


@pytest.mark.parametrize("number", OF_ITS_PLACE, ids=errno.errorcode.get)
@pytest.mark.parametrize("verb", TOUCHED)
def test_what_is_refused_everywhere_is_the_stores_trouble(tmp_path: Path, number: int, verb: str) -> None:
    files, (home, _), clock = two_tables(tmp_path)
    for _ in range(2):
        trouble = trouble_of(OPEN, number, partial(TOUCHED[verb], files, home))
        assert (isinstance(trouble, Transient), trouble.scope) == (True, ErrorScope.STORE)
        clock[0] += 2 * PROPAGATION_SECONDS


@pytest.mark.parametrize("number", [*FORBIDDEN, errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.get)
def test_what_is_refused_in_one_folder_alone_is_its_tables_trouble(tmp_path: Path, number: int) -> None:
    """The first step of the write alone is refused: the witness, asked right after it, is served."""
    files, (home, _), clock = two_tables(tmp_path)
    kinds = []
    for _ in range(4):
        trouble = trouble_of(Step("mkdirat"), number, lambda: files.write(f"{home}/new/b.ver", b"1", None))
        kinds.append((type(trouble), trouble.scope))
        clock[0] += PROPAGATION_SECONDS
    now, lasting = (Forbidden, ForbiddenForTable) if number in FORBIDDEN else (Transient, Transient)
    assert kinds == [(kind, ErrorScope.TABLE) for kind in (now, now, lasting, lasting)]


def test_a_read_only_file_system_lets_no_witness_be_written(tmp_path: Path) -> None:
    """Its folders can still be opened and locked."""
    files, (home, _), _ = two_tables(tmp_path)
    trouble = trouble_of(PREPARE, errno.EROFS, lambda: files.write(f"{home}/c.ver", b"1", None))
    assert (type(trouble), trouble.scope) == (Forbidden, ErrorScope.STORE)


def test_the_whole_machine_has_no_root_that_could_be_forbidden(tmp_path: Path) -> None:
    files, key = BlockingLocalStore("file://"), f"file://{tmp_path}/a.ver"
    trouble = trouble_of(OPEN, errno.EACCES, lambda: files.write(key, b"1", None))
    assert (type(trouble), trouble.scope, trouble.where) == (Forbidden, ErrorScope.STORE, key)


def trouble_of(step: Step, number: int, call: Callable[[], object]) -> ExternalError:
    with pytest.raises(ExternalError) as trouble:
        refused(step, number, call)
    return trouble.value


SYNC = Step("fsync")
FOLDER_SYNC = Step("fsync", of_folder=True)


def key_in(folder: Path) -> str:
    return f"file://{folder}/sales_orders_main.ver"


def held_at(key: str, body: bytes = b"1") -> StoredObject:
    held = BlockingLocalStore().write(key, body, None)
    assert isinstance(held, StoredObject)
    return held


def verbs(key: str, files: BlockingLocalStore | None = None) -> Mapping[str, Callable[[], object]]:
    """Every verb on a key, but for the listing."""
    files, some = files or BlockingLocalStore(), StoredObject(b"1", "0" * 64)
    return {
        "read": lambda: files.read(key),
        "create": lambda: files.write(key, b"2", None),
        "replace": lambda: files.write(key, b"2", some),
        "delete": lambda: files.delete(key, some),
    }


def body_of(held: StoredObject | None) -> bytes | None:
    return None if held is None else held.body


def check_refused(call: Callable[[], object], kind: type[ExternalError], scope: ErrorScope, number: int) -> None:
    with pytest.raises(ExternalError) as trouble:
        call()
    assert type(trouble.value) is kind
    assert trouble.value.scope is scope
    assert errno.errorcode[number] in trouble.value.found


def check_unsure(step: Step, call: Callable[[], object]) -> None:
    check_refused(lambda: refused(step, errno.EIO, call), OutcomeUnknown, ErrorScope.STORE, errno.EIO)


REFUSALS = [
    (PREPARE, errno.ENOSPC, Transient, ErrorScope.STORE),
    (PREPARE, errno.EDQUOT, Transient, ErrorScope.STORE),
    (PREPARE, errno.EMFILE, Transient, ErrorScope.PROCESS),
    (PREPARE, errno.EROFS, Forbidden, ErrorScope.STORE),
    (PREPARE, errno.EACCES, Forbidden, ErrorScope.STORE),
    (PREPARE, errno.EPERM, Forbidden, ErrorScope.STORE),
    (PREPARE, errno.ENOENT, Transient, ErrorScope.TABLE),
    (PREPARE, errno.EXDEV, Transient, ErrorScope.TABLE),
    (Step("write"), errno.ENOSPC, Transient, ErrorScope.STORE),
    (Step("write"), errno.EFBIG, Permanent, ErrorScope.STORE),
    (SYNC, errno.EIO, Transient, ErrorScope.STORE),
    (Step("flock"), errno.EBADF, Permanent, ErrorScope.STORE),
    (Step("flock"), errno.ENOLCK, Permanent, ErrorScope.STORE),
    (Step("flock"), errno.ENOMEM, Transient, ErrorScope.PROCESS),
]


@pytest.mark.parametrize(("step", "number", "kind", "scope"), REFUSALS)
@pytest.mark.parametrize("verb", ["create", "replace"])
def test_a_refused_write_leaves_what_was_there(
    tmp_path: Path, step: Step, number: int, kind: type[ExternalError], scope: ErrorScope, verb: str
) -> None:
    key = key_in(tmp_path)
    held = held_at(key) if verb == "replace" else None
    before = names_in(tmp_path)
    check_refused(
        lambda: refused(step, number, lambda: BlockingLocalStore().write(key, b"2", held)), kind, scope, number
    )
    assert set(names_in(tmp_path)) - {LOCK_NAME} == set(before)
    assert BlockingLocalStore().read(key) == held


@pytest.mark.parametrize(
    ("number", "kind", "scope"),
    [
        (errno.EPERM, Permanent, ErrorScope.STORE),
        (errno.EOPNOTSUPP, Permanent, ErrorScope.STORE),
        (errno.EINVAL, Permanent, ErrorScope.STORE),
        (errno.EMLINK, Permanent, ErrorScope.STORE),
        (errno.EXDEV, Permanent, ErrorScope.STORE),
        (errno.ENOSPC, Transient, ErrorScope.STORE),
        (errno.EIO, OutcomeUnknown, ErrorScope.STORE),
    ],
)
def test_a_file_that_cannot_be_linked_is_not_created(
    tmp_path: Path, number: int, kind: type[ExternalError], scope: ErrorScope
) -> None:
    key = key_in(tmp_path)
    call = Step("linkat")
    check_refused(
        lambda: refused(call, number, lambda: BlockingLocalStore().write(key, b"2", None)), kind, scope, number
    )
    assert names_in(tmp_path) == []


def test_a_file_that_another_program_creates_at_the_last_moment_is_not_replaced(tmp_path: Path) -> None:
    """The system's own refusal, which comes where the look before it found nothing."""
    key = key_in(tmp_path)
    assert (
        refused(Step("linkat"), errno.EEXIST, lambda: BlockingLocalStore().write(key, b"2", None))
        == PreconditionFailed()
    )
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, Transient), (errno.EIO, OutcomeUnknown), (errno.ESTALE, OutcomeUnknown)]
)
def test_a_rename_is_unsure_only_where_nobody_can_tell(tmp_path: Path, number: int, kind: type[ExternalError]) -> None:
    key = key_in(tmp_path)
    held = held_at(key)
    call = Step("renameat")
    check_refused(
        lambda: refused(call, number, lambda: BlockingLocalStore().write(key, b"2", held)),
        kind,
        ErrorScope.STORE,
        number,
    )
    assert names_in(tmp_path) == ["sales_orders_main.ver"]


def test_what_is_visible_but_not_synced_is_unsure(tmp_path: Path) -> None:
    key, files = key_in(tmp_path), BlockingLocalStore()
    check_unsure(FOLDER_SYNC, lambda: files.write(key, b"1", None))
    held = files.read(key)
    assert held is not None
    assert held.body == b"1"
    check_unsure(FOLDER_SYNC, lambda: files.write(key, b"2", held))
    newer = files.read(key)
    assert newer is not None
    assert newer.body == b"2"
    check_unsure(FOLDER_SYNC, lambda: files.delete(key, newer))
    assert files.read(key) is None
    check_unsure(FOLDER_SYNC, lambda: files.delete(key, newer))
    assert files.delete(key, newer) == Deleted()


def test_a_new_folder_is_synced_before_a_file_is_in_it(tmp_path: Path) -> None:
    key = key_in(tmp_path / "_sfn")
    check_unsure(FOLDER_SYNC, lambda: BlockingLocalStore().write(key, b"1", None))
    assert names_in(tmp_path / "_sfn") == []


@pytest.mark.parametrize("change", ["create", "replace", "delete"])
@pytest.mark.parametrize("verb", ["read", "create", "replace", "delete", "list"])
def test_nothing_is_answered_from_a_folder_whose_change_is_not_synced(tmp_path: Path, change: str, verb: str) -> None:
    """Whoever finds the change would take it for done, and a power cut could still take it back."""
    key, files = key_in(tmp_path), BlockingLocalStore()
    held = None if change == "create" else held_at(key)
    answers = {**verbs(key, files), "list": lambda: files.list(f"file://{tmp_path}/", 10)}

    def make() -> object:
        return files.write(key, b"2", held) if held is None or change == "replace" else files.delete(key, held)

    check_unsure(FOLDER_SYNC, make)
    for _ in range(2):
        check_unsure(SYNC, answers[verb])
    left = None if change == "delete" else b"2"
    assert body_of(files.read(key)) == left
    assert body_of(refused(SYNC, errno.EIO, lambda: files.read(key))) == left, "nothing is owed any more"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_that_syncs_no_folders_is_good_enough(tmp_path: Path, number: int) -> None:
    key, files = key_in(tmp_path / "_sfn"), BlockingLocalStore()
    held = refused(FOLDER_SYNC, number, lambda: files.write(key, b"1", None))
    assert files.read(key) == held


def test_a_folder_whose_own_folder_cannot_be_opened_is_not_made(tmp_path: Path) -> None:
    """It could not be synced afterwards."""
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        refused(
            Step("openat"), errno.EMFILE, lambda: make_folder(str(tmp_path / "_sfn"), "the folder", PendingFsyncs())
        )
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("step", [SYNC, Step("mkdirat")])
def test_a_new_folder_that_is_not_durable_is_synced_before_a_file_is_in_it(tmp_path: Path, step: Step) -> None:
    folder, files = tmp_path / "metadata" / "_sfn", BlockingLocalStore()
    key = key_in(folder)
    check_unsure(step, lambda: files.write(key, b"1", None))
    folder.mkdir(parents=True, exist_ok=True)
    check_unsure(SYNC, lambda: files.read(key))
    check_unsure(SYNC, lambda: files.write(key, b"1", None))
    assert names_in(folder) == []
    held = files.write(key, b"1", None)
    assert refused(SYNC, errno.EIO, lambda: files.read(key)) == held


def test_a_folder_that_may_not_be_made_owes_nothing(tmp_path: Path) -> None:
    key, files = key_in(tmp_path / "_sfn"), BlockingLocalStore()
    for number in (errno.EACCES, errno.EEXIST):
        with pytest.raises(ExternalError):
            refused(Step("mkdirat"), number, lambda: files.write(key, b"1", None))
        assert refused(SYNC, errno.EIO, lambda: files.read(key)) is None


def test_a_folder_that_is_gone_owes_nothing(tmp_path: Path) -> None:
    key, files = key_in(tmp_path / "_sfn"), BlockingLocalStore()
    (tmp_path / "_sfn").mkdir()
    check_unsure(FOLDER_SYNC, lambda: files.write(key, b"1", None))
    (tmp_path / "_sfn").rename(tmp_path / "elsewhere")
    assert files.read(key) is None
    (tmp_path / "elsewhere").rename(tmp_path / "_sfn")
    assert body_of(refused(SYNC, errno.EIO, lambda: files.read(key))) == b"1"


@pytest.mark.parametrize("verb", ["read", "create", "replace", "delete"])
def test_a_file_that_cannot_be_opened_is_not_taken_for_absent(tmp_path: Path, verb: str) -> None:
    key = key_in(tmp_path)
    held_at(key)
    check_refused(
        lambda: refused(Step("openat"), errno.EMFILE, verbs(key)[verb]), Transient, ErrorScope.PROCESS, errno.EMFILE
    )


def test_a_folder_that_cannot_be_listed_is_not_taken_for_empty(tmp_path: Path) -> None:
    call = Step("getdents64")
    check_refused(
        lambda: refused(call, errno.EIO, lambda: BlockingLocalStore().list(f"file://{tmp_path}/", 10)),
        Transient,
        ErrorScope.STORE,
        errno.EIO,
    )


@pytest.fixture
def odd_things(tmp_path: Path) -> Iterator[Mapping[str, int]]:
    """What may lie at a key and is no file of ours, and the error that it gives."""
    (tmp_path / "outside").write_bytes(b"1")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tmp_path / "socket"))
        yield {
            "folder": errno.EISDIR,
            "link": errno.ELOOP,
            "dangling": errno.ELOOP,
            "pipe": errno.ENXIO,
            "socket": errno.ENXIO,
            "outside/below.ver": errno.ENOTDIR,
            "n" * 300: errno.ENAMETOOLONG,
        }


@pytest.mark.parametrize("verb", ["read", "create", "replace", "delete"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, odd_things: Mapping[str, int], verb: str) -> None:
    before = names_in(tmp_path)
    for name, number in odd_things.items():
        check_refused(verbs(f"file://{tmp_path}/{name}")[verb], Permanent, ErrorScope.TABLE, number)
    assert names_in(tmp_path) == before
    assert (tmp_path / "outside").read_bytes() == b"1"


def test_a_listing_of_a_file_is_refused(tmp_path: Path) -> None:
    held_at(key_in(tmp_path))
    check_refused(
        lambda: BlockingLocalStore().list(f"{key_in(tmp_path)}/", 10), Permanent, ErrorScope.TABLE, errno.ENOTDIR
    )
