"""A reader's files: ranges, and stores that refuse or fail."""

from __future__ import annotations

import http.server
from collections.abc import Iterator
from functools import partial
from threading import Thread

import pytest
from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem
from typing_extensions import override

from sfn.errors import Unreachable
from sfn.reader.files import run_synchronously
from sfn.reader.remote_files import FsspecFileSystem

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
