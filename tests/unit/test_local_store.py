"""What local files do when the system refuses: the right trouble, the right scope, nothing half done."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, ExternalError, Forbidden, OutcomeUnknown, Permanent, Transient
from sfn.storage import Deleted, PreconditionFailed
from sfn.storage.atomic_files import LOCK_NAME, PendingFsyncs, make_folder
from sfn.storage.local import BlockingLocalStore
from tests.promises.kernel import Step, refused
from tests.promises.stores import names_in

PREPARE = Step("openat", argument=(2, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC))
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
