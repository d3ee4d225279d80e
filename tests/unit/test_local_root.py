"""What is forbidden below the configured root: one table's trouble, or the store's, which spends nobody's budget."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sfn.errors import Permanent, Scope, Transient, Trouble
from sfn.store.local import LocalFiles
from sfn.words import Held
from tests.promises.kernel import Step, refused
from tests.promises.stores import NOBODY, told, touch_as_nobody

TABLE, STORE = ("Permanent", Scope.TABLE), ("Transient", Scope.STORE)
OPEN = Step("openat")
PREPARE = Step("openat", argument=(2, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC))
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


def troubles(root: Path, *touches: tuple[str, str]) -> Sequence[tuple[str, Scope] | None]:
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


def test_a_forbidden_table_below_a_root_in_order_is_that_tables_trouble(root: Path) -> None:
    assert troubles(root, *map(in_closed, VERBS)) == [TABLE] * 4


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
    touches = [("write", "/open/a.ver"), *map(in_closed, VERBS)]
    assert troubles(root, *touches) == [None, *[TABLE] * 4]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("verb", ["read", "write", "delete"])
def test_credentials_that_have_expired_are_the_stores_trouble(tmp_path: Path, number: int, verb: str) -> None:
    """Nothing can be opened any more, whatever the modes say."""
    location = f"file://{tmp_path}"
    files, key = LocalFiles(location), f"{location}/a.ver"
    held = files.write(key, b"1", None)
    assert isinstance(held, Held)
    calls = {
        "read": lambda: files.read(key),
        "write": lambda: files.write(key, b"2", held),
        "delete": lambda: files.delete(key, held),
    }
    trouble = trouble_of(OPEN, number, calls[verb])
    assert (type(trouble), trouble.scope, trouble.where) == (Transient, Scope.STORE, location)
    assert trouble.found.startswith(errno.errorcode[number])
    assert key in trouble.found
    assert "credentials" in trouble.remedy
    assert files.read(key) == held


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_file_that_may_not_be_made_below_a_root_in_order_is_the_tables_trouble(tmp_path: Path, number: int) -> None:
    files, key = LocalFiles(f"file://{tmp_path}"), f"file://{tmp_path}/a.ver"
    trouble = trouble_of(PREPARE, number, lambda: files.write(key, b"1", None))
    assert (type(trouble), trouble.scope, trouble.where) == (Permanent, Scope.TABLE, key)


@pytest.mark.parametrize("location", ["file://", "file:///"])
def test_the_whole_machine_is_nobodys_root(tmp_path: Path, location: str) -> None:
    files, key = LocalFiles(location), f"file://{tmp_path}/a.ver"
    trouble = trouble_of(OPEN, errno.EACCES, lambda: files.write(key, b"1", None))
    assert (type(trouble), trouble.scope, trouble.where) == (Permanent, Scope.TABLE, key)


def trouble_of(step: Step, number: int, call: Callable[[], object]) -> Trouble:
    with pytest.raises(Trouble) as trouble:
        refused(step, number, call)
    return trouble.value
