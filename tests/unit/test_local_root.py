"""What is forbidden below the configured root: one table's trouble, or the store's, which spends nobody's budget."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, ExternalError, Forbidden, ForbiddenForTable, Transient
from sfn.storage.local import PROPAGATION_SECONDS, BlockingLocalStore
from tests.promises.kernel import Step, refused
from tests.promises.stores import NOBODY, told, touch_as_nobody

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
