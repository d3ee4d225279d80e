"""Stores that refuse, fail or do not exist: each is an error of its own, that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem
from typing_extensions import override

import sfn
from sfn.errors import NotFound, NotPermitted, Unreachable
from sfn.reader.files import finish
from sfn.reader.remote import FsspecFiles
from tests.promises.stores import NOBODY
from tests.unit.directory import Directory


class Answered(Exception):
    """What a driver's own library raises for an HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the store answered {status}")
        self.status = status


class Refusing(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """A store that fails in one way; `option` reaches it."""

    protocol = "refusing"
    error: Exception = PermissionError("Access Denied")
    lists = True

    def __init__(self, option: str = "", **kwargs: object) -> None:
        super().__init__(**kwargs)
        if option == "wrong":
            raise ValueError("no such option")

    @override
    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        raise self.error

    @override
    def ls(self, path: str, detail: bool = True, **_: object) -> list[str]:
        if self.lists:
            return [f"{path}a_main.ver", f"{path}b_main.ver", f"{path}c_main.ver"]
        raise self.error


class Remembering(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """A store whose driver remembers what it listed, as those of object stores do."""

    protocol = "remembering"

    @override
    def ls(self, path: str, detail: bool = True, **_: object) -> list[object]:
        path = self._strip_protocol(path.replace("remembering://", "memory://"))
        if path not in self.dircache:
            self.dircache[path] = super().ls(path, detail)
        return list(self.dircache[path])

    @override
    def invalidate_cache(self, path: str | None = None) -> None:
        self.dircache.clear()


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    register_implementation("refusing", Refusing, clobber=True)
    register_implementation("remembering", Remembering, clobber=True)
    monkeypatch.setattr(Refusing, "lists", True)


@pytest.mark.parametrize("error", [PermissionError("Access Denied"), Answered(401), Answered(403)], ids=str)
@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_a_missing_permission_is_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch, error: Exception, lists: bool, table: str | None
) -> None:
    monkeypatch.setattr(Refusing, "error", error)
    monkeypatch.setattr(Refusing, "lists", lists)
    with pytest.raises(NotPermitted, match="credentials go into storage_options"):
        sfn.resolve("refusing://lake/orders", table)


@pytest.mark.parametrize(
    "error", [Answered(500), TimeoutError("no answer"), OSError(5, "EIO"), KeyError("x")], ids=repr
)
@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_a_store_that_fails_is_not_taken_for_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, error: Exception, table: str | None
) -> None:
    monkeypatch.setattr(Refusing, "error", error)
    with pytest.raises(Unreachable, match=type(error).__name__):
        sfn.resolve("refusing://lake/orders", table)


@pytest.mark.parametrize(("status", "expected"), [(404, None), (416, b"")])
def test_what_a_store_says_by_its_status_is_understood(
    monkeypatch: pytest.MonkeyPatch, status: int, expected: bytes | None
) -> None:
    monkeypatch.setattr(Refusing, "error", Answered(status))
    assert finish(FsspecFiles("refusing", {}).read("refusing://lake/x", 10)) == expected


def test_what_a_driver_remembers_of_a_folder_is_not_believed() -> None:
    files, folder = FsspecFiles("remembering", {}), f"lake-{uuid4()}"
    MemoryFileSystem().pipe_file(f"/{folder}/a.ver", b"")
    assert finish(files.list(f"remembering://{folder}/", 10)) == [f"remembering://{folder}/a.ver"]
    MemoryFileSystem().pipe_file(f"/{folder}/b.ver", b"")
    assert len(finish(files.list(f"remembering://{folder}/", 10))) == 2


def test_options_reach_the_driver_of_the_directorys_scheme_alone() -> None:
    with pytest.raises(Unreachable, match="ValueError: no such option"):
        sfn.resolve("refusing://lake/orders", storage_options={"option": "wrong"})
    assert finish(FsspecFiles("refusing", {"option": "wrong"}).list("memory://nothing/", 10)) == []


def test_a_scheme_that_nobody_knows_is_refused() -> None:
    with pytest.raises(Unreachable, match="nonsense, which fsspec has no driver for"):
        sfn.resolve("nonsense://lake/orders")


@pytest.mark.parametrize("url", ["simplecache::s3://lake/orders", "s3:lake/orders", "memory://x::s3://lake/orders"])
def test_a_chain_of_file_systems_is_refused(url: str) -> None:
    with pytest.raises(Unreachable, match="a URL of one file system"):
        sfn.resolve(url)


def test_a_driver_that_is_not_installed_is_named() -> None:
    code = (
        "import sys, sfn; sys.modules['s3fs'] = None\n"
        "try: sfn.resolve('s3a://lake/orders')\n"
        "except sfn.NotInstalled as no: print(no)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "s3://lake: expected fsspec's driver for it" in told.stdout
    assert told.stdout.endswith("; pip install s3fs\n")


@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_a_folder_of_this_machine_that_may_not_be_read_is_told_from_a_missing_one(
    tmp_path: Path, table: str | None
) -> None:
    place = Directory(tmp_path / "orders")
    place.metadata()
    place.write()
    code = (
        "import os, sys, sfn; sfn.resolve, sfn.NotPermitted\n"
        f"os.geteuid() or os.setuid({NOBODY})\n"
        "try: print(sfn.resolve(sys.argv[1], *sys.argv[2:]))\n"
        "except sfn.NotPermitted as refusal: print(type(refusal).__name__, refusal)"
    )
    place.folder.chmod(0)
    arguments = [sys.executable, "-c", code, str(place.path), *([table] if table else [])]
    told = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    place.folder.chmod(0o755)
    assert told.stdout.startswith("NotPermitted file://"), told
    assert "give the user who reads the right to read it" in told.stdout


def test_a_pipe_in_the_place_of_a_metadata_file_does_not_hang_the_reader(tmp_path: Path) -> None:
    place = Directory(tmp_path / "orders")
    os.mkfifo(place.path / "metadata" / "00001-a.metadata.json")
    place.write()
    with pytest.raises(Unreachable, match="a pipe or a device"):
        sfn.resolve(place.path)


def test_a_folder_in_the_place_of_a_file_is_no_file(tmp_path: Path) -> None:
    place = Directory(tmp_path / "orders")
    place.sfn_file().mkdir()
    with pytest.raises(NotFound):
        sfn.resolve(place.path)


def test_a_pointer_to_a_device_is_refused(tmp_path: Path) -> None:
    place = Directory(tmp_path / "orders")
    place.write(metadata_file_path="/dev/zero")
    with pytest.raises(Unreachable, match="a pipe or a device"):
        sfn.resolve(place.path)
