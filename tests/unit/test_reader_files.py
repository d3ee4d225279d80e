"""A reader's files: ranges, and stores that refuse, fail or do not exist."""

from __future__ import annotations

import errno
import http.server
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from uuid import uuid4

import pytest
from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem
from typing_extensions import override

import sfn
from sfn.errors import NotFound, NotPermitted, Unreachable
from sfn.reader.files import LocalFileSystem, run_synchronously
from sfn.reader.remote_files import FsspecFileSystem
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, Naming
from tests.promises.processes import NOBODY
from tests.promises.test_files import s3_error
from tests.support.table_directory import Directory

BODY = bytes(range(200)) * 100
URL = "excessive://lake/x"


class Server(http.server.BaseHTTPRequestHandler):
    """A web server with one file.

    Attributes:
        heeds: whether it gives parts.
        tells: whether it says how long the file is.
    """

    heeds = False
    tells = True

    @override
    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._begin(200, len(BODY))

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        if asked is None or not self.heeds:
            self._begin(200, len(BODY))
            self.wfile.write(BODY)
            return
        first, last = map(int, asked.removeprefix("bytes=").split("-"))
        part = BODY[first : last + 1]
        self._begin(206 if part else 416, len(part))
        self.wfile.write(part)

    def _begin(self, status: int, length: int) -> None:
        self.send_response(status)
        if self.tells:
            self.send_header("Content-Length", str(length))
        self.end_headers()


class Excessive(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """A driver that minds neither where a part begins nor where it ends."""

    protocol = "excessive"

    @override
    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        return BODY


@pytest.fixture(name="url")
def fixture_url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=partial(server.serve_forever, poll_interval=0.01), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/orders/x"
        server.shutdown()


@pytest.mark.parametrize("heeds", [True, False])
def test_from_the_beginning_no_more_is_taken_than_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, url: str, heeds: bool
) -> None:
    monkeypatch.setattr(Server, "heeds", heeds)
    files = FsspecFileSystem("http", {})
    assert run_synchronously(files.read(url, 10)) == BODY[:10]
    assert run_synchronously(files.read(url, 1 << 20)) == BODY


@pytest.mark.parametrize("most", [10, len(BODY), 1 << 20])
@pytest.mark.parametrize("start", [1, 10_000, len(BODY), 1_000_000])
def test_a_part_of_a_server_that_gives_parts_is_taken(
    monkeypatch: pytest.MonkeyPatch, url: str, start: int, most: int
) -> None:
    monkeypatch.setattr(Server, "heeds", True)
    assert run_synchronously(FsspecFileSystem("http", {}).read(url, most, start)) == BODY[start : start + most]


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("most", [10, len(BODY), 1 << 20])
@pytest.mark.parametrize("start", [1, 10_000, len(BODY), 1_000_000])
def test_the_whole_is_not_taken_for_a_part(
    monkeypatch: pytest.MonkeyPatch, url: str, start: int, most: int, tells: bool
) -> None:
    monkeypatch.setattr(Server, "tells", tells)
    with pytest.raises(Unreachable, match=f"bytes from {start:,} on, found 20,000 bytes, which may be the whole file"):
        run_synchronously(FsspecFileSystem("http", {}).read(url, most, start))


def test_more_than_a_part_is_not_taken_for_one_whatever_the_driver() -> None:
    register_implementation("excessive", Excessive, clobber=True)
    files = FsspecFileSystem("excessive", {})
    assert run_synchronously(files.read(URL, 4)) == BODY[:4]
    with pytest.raises(Unreachable, match="at most 4 bytes from 2 on, found 20,000 bytes"):
        run_synchronously(files.read(URL, 4, 2))


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


class Silent(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """A store that may not be listed, and so does not tell what is missing from what is forbidden: as S3."""

    protocol = "silent"
    error: Exception = PermissionError("Access Denied")

    @override
    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        try:
            return bytes(super().cat_file(path.replace("silent://", "memory://"), start, end))
        except FileNotFoundError:
            raise self.error from self.error.__cause__

    @override
    def ls(self, path: str, detail: bool = True, **_: object) -> list[object]:
        raise self.error from self.error.__cause__


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
    register_implementation("silent", Silent, clobber=True)
    register_implementation("remembering", Remembering, clobber=True)
    monkeypatch.setattr(Refusing, "lists", True)


def by_s3fs(code: str, status: int) -> OSError:
    """An answer of S3 for which s3fs has no error of its own."""
    error = OSError(errno.EIO, f"An error occurred ({code}) when calling the GetObject operation")
    error.__cause__ = s3_error(code, status)
    return error


BY_GCSFS = OSError(
    "Forbidden: https://storage.googleapis.com/download/storage/v1/b/lake/o/x?alt=media\n"
    "me@lake does not have storage.objects.get access to the Google Cloud Storage object."
)
FORBIDDEN = {
    "of the system": PermissionError("Access Denied"),
    "401": Answered(401),
    "403": Answered(403),
    "s3fs": by_s3fs("UnauthorizedAccess", 403),
    "gcsfs": BY_GCSFS,
}


@pytest.mark.parametrize("error", FORBIDDEN.values(), ids=FORBIDDEN)
@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_a_missing_permission_is_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch, error: Exception, lists: bool, table: str | None
) -> None:
    monkeypatch.setattr(Refusing, "error", error)
    monkeypatch.setattr(Refusing, "lists", lists)
    with pytest.raises(NotPermitted, match=r"credentials go into storage_options \(--storage-option KEY=VALUE\)$"):
        sfn.resolve("refusing://lake/orders", table)


@pytest.mark.parametrize(
    "error",
    [Answered(500), TimeoutError("no answer"), OSError(5, "EIO"), KeyError("x"), by_s3fs("SlowDown", 503)],
    ids=repr,
)
@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_a_store_that_fails_is_not_taken_for_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, error: Exception, table: str | None
) -> None:
    monkeypatch.setattr(Refusing, "error", error)
    with pytest.raises(Unreachable, match=type(error).__name__):
        sfn.resolve("refusing://lake/orders", table)


def test_an_error_that_is_its_own_cause_is_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    error = KeyError("x")
    error.__cause__ = error
    monkeypatch.setattr(Refusing, "error", error)
    with pytest.raises(Unreachable, match="KeyError"):
        sfn.resolve("refusing://lake/orders", "sales.orders")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Answered(404), None),
        (Answered(416), b""),
        (by_s3fs("NoSuchThing", 404), None),
        (by_s3fs("InvalidRange", 416), b""),
    ],
    ids=repr,
)
def test_what_a_store_says_by_its_status_is_understood(
    monkeypatch: pytest.MonkeyPatch, error: Exception, expected: bytes | None
) -> None:
    monkeypatch.setattr(Refusing, "error", error)
    assert run_synchronously(FsspecFileSystem("refusing", {}).read("refusing://lake/x", 10)) == expected


def test_what_a_driver_remembers_of_a_folder_is_not_believed() -> None:
    files, folder = FsspecFileSystem("remembering", {}), f"lake-{uuid4()}"
    MemoryFileSystem().pipe_file(f"/{folder}/a.ver", b"")
    assert run_synchronously(files.list(f"remembering://{folder}/", 10)) == [f"remembering://{folder}/a.ver"]
    MemoryFileSystem().pipe_file(f"/{folder}/b.ver", b"")
    assert len(run_synchronously(files.list(f"remembering://{folder}/", 10))) == 2


@pytest.mark.parametrize("folder", ["metadata/_sfn", "_sfn", "."])
@pytest.mark.parametrize("naming", [IDENTIFIER, ORDINAL], ids=lambda naming: naming.setting)
@pytest.mark.parametrize("error", FORBIDDEN.values(), ids=FORBIDDEN)
def test_who_may_not_list_finds_a_table_by_its_name_all_the_same(
    tmp_path: Path, folder: str, naming: Naming, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Silent, "error", error)
    place, lake = Directory(tmp_path / "orders", folder, naming), f"lake-{uuid4()}"
    pointer = f"silent://{lake}/orders/metadata/1.metadata.json"
    MemoryFileSystem().pipe_file(f"/{lake}/orders/metadata/1.metadata.json", place.metadata().read_bytes())
    file = place.write(metadata_file_path=pointer)
    MemoryFileSystem().pipe_file(f"/{lake}/orders/{file.relative_to(place.path)}", file.read_bytes())
    assert sfn.resolve(f"silent://{lake}/orders", "sales.orders").metadata_location == pointer
    with pytest.raises(NotPermitted):
        sfn.resolve(f"silent://{lake}/orders", "sales.customers")
    with pytest.raises(NotPermitted):
        sfn.resolve(f"silent://{lake}/orders")


def test_a_folder_that_may_not_be_listed_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Directory(tmp_path / "orders", "_sfn")
    place.metadata()
    place.write()
    listing = LocalFileSystem.list

    async def refused(self: LocalFileSystem, prefix: str, limit: int) -> list[str]:
        if prefix.endswith("/metadata/_sfn/"):
            raise NotPermitted(prefix, expected="the permission to read it", found="none")
        return await listing(self, prefix, limit)

    monkeypatch.setattr(LocalFileSystem, "list", refused)
    with pytest.raises(NotPermitted):
        sfn.resolve(place.path)
    assert sfn.resolve(place.path, "sales.orders").document.name == "orders"


def test_options_reach_the_driver_of_the_directorys_scheme_alone() -> None:
    with pytest.raises(Unreachable, match="ValueError: no such option"):
        sfn.resolve("refusing://lake/orders", storage_options={"option": "wrong"})
    assert len(run_synchronously(FsspecFileSystem("memory", {"option": "wrong"}).list("refusing://lake/", 10))) == 3


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
    assert "give the user who reads the permission to read it" in told.stdout


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
