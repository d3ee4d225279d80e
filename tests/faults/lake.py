"""A catalog over HTTP with known tables. A test makes it slow, puts it in trouble, or lets it hold commits back."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

import anyio
import msgspec
from aiohttp import web
from typing_extensions import override

from tests.faults.inspection import Pointed, pointed
from tests.servers.process import free_port
from tests.support.rest_catalog import Runner

NAMESPACE = "shop"
_LOG_KEPT = 50
_TABLE = re.compile(rf"/v1/namespaces/{NAMESPACE}/tables/([a-z0-9_]+)")
_KEY = "Idempotency-Key"


class Mood(StrEnum):
    """What the catalog answers."""

    WELL = "well"
    ABSENT = "Iceberg-shaped not found, empty listings"
    HTML = "404 in HTML"
    HTML_TABLES = "404 in HTML, but for /v1/config"
    ERROR = "500"
    REVOKED = "401"
    BUSY = "429"
    GARBAGE = "200 with garbage"
    HALF = "200 with half a body"


@dataclass(slots=True)
class Table:
    """One table: its history is the list of all pointers that it ever had, oldest first.

    Attributes:
        location: URL of its directory, as the catalog says it.
    """

    uuid: str
    directory: Path
    location: str
    history: list[str]

    @property
    def pointer(self) -> str:
        """The current metadata file."""
        return self.history[-1]

    def commit(self, *, by: str = "") -> str:
        """Write another metadata file; its location.

        Args:
            by: told in its name, so that two catalogs never make the same one.
        """
        name = f"{len(self.history):05d}-{by}{uuid4()}.metadata.json"
        (self.directory / "metadata" / name).touch()
        self.history.append(f"{self.location}/metadata/{name}")
        return self.pointer

    def body(self) -> bytes:
        """What a load is answered."""
        metadata = {
            "format-version": 2,
            "table-uuid": self.uuid,
            "location": self.location,
            "last-updated-ms": 1_700_000_000_000 + len(self.history),
            "metadata-log": [
                {"metadata-file": entry, "timestamp-ms": 1_700_000_000_000}
                for entry in self.history[max(0, len(self.history) - _LOG_KEPT) : -1]
            ],
        }
        return msgspec.json.encode({"metadata-location": self.pointer, "metadata": metadata})


@dataclass
class Lake:
    """The catalog's tables, and what its server was asked.

    Attributes:
        warehouse: the directory that tables lie in.
        root: URL of the warehouse where it is not the directory's own.
        delay: seconds before each answer.
        asked: requests by kind: `config`, `namespaces`, `tables`, `load`, `304` for those answered so, and `refused`
            for those answered as the mood is.
    """

    warehouse: Path
    root: str = ""
    namespaces: Sequence[str] = (NAMESPACE,)
    delay: float = 0.0
    mood: Mood = Mood.WELL
    tables: dict[str, Table] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    began: Callable[[], None] = lambda: None
    port: int = field(default_factory=free_port)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def create(self, name: str, *, uuid: str | None = None, by: str = "") -> Table:
        """Make or register a table."""
        directory = self.warehouse / NAMESPACE / name
        (directory / "metadata").mkdir(parents=True, exist_ok=True)
        location = f"{self.root or self.warehouse.as_uri()}/{NAMESPACE}/{name}"
        table = Table(uuid or str(uuid4()), directory, location, [])
        table.commit(by=by)
        self.tables[name] = table
        return table

    def pointed(self, name: str) -> Pointed:
        """What the directory of a table says."""
        return pointed(self.warehouse / NAMESPACE / name, NAMESPACE, name)

    def wrong(self) -> list[str]:
        """Tables whose files do not say what the catalog does."""
        return [name for name, table in self.tables.items() if not self.pointed(name).says(table.pointer)]

    def lengths(self) -> dict[str, int]:
        """How many pointers each table had so far."""
        return {name: len(table.history) for name, table in self.tables.items()}

    def behind(self, lengths: Mapping[str, int]) -> list[str]:
        """Tables whose files say none of the pointers that came after so many."""
        newer = {name: self.tables[name].history[length:] for name, length in lengths.items()}
        return [name for name, pointers in newer.items() if not any(map(self.pointed(name).says, pointers))]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        kind, name = _kind(request.path)
        self.asked[kind] += 1
        if kind == "load":
            self.began()
        if self.delay:
            await anyio.sleep(self.delay)
        return await self._answer(request, kind, name)

    async def _answer(self, request: web.BaseRequest, kind: str, name: str) -> web.StreamResponse:
        spared = kind == "config" and self.mood in {Mood.ABSENT, Mood.HTML_TABLES}
        if self.mood is not Mood.WELL and not spared:
            self.asked["refused"] += 1
            return await _MOODS[self.mood](request, kind)
        if kind == "config":
            return _json({"defaults": {}, "overrides": {}})
        if kind == "namespaces":
            outermost = [[name] for name in self.namespaces]
            return _json({"namespaces": [] if request.query.get("parent") else outermost})
        if kind == "tables" and not self.namespaces:
            return _complaint("NoSuchNamespaceException")
        if kind == "tables":
            return _json({"identifiers": [{"namespace": [NAMESPACE], "name": name} for name in self.tables]})
        table = self.tables.get(name)
        if table is None:
            return _complaint("NoSuchTableException")
        etag = f'"{table.uuid[:8]}-{len(table.history)}"'
        if request.headers.get("If-None-Match") == etag:
            self.asked["304"] += 1
            return web.Response(status=304, headers={"ETag": etag})
        return web.Response(body=table.body(), content_type="application/json", headers={"ETag": etag})


@asynccontextmanager
async def serving(lake: Lake) -> AsyncGenerator[Lake]:
    """The lake's server."""
    with socket.create_server(("127.0.0.1", lake.port), backlog=512) as listener:
        runner = Runner(lake.answer)
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            yield lake
        finally:
            await runner.cleanup()


def _kind(path: str) -> tuple[str, str]:
    if (match := _TABLE.fullmatch(path)) is not None:
        return "load", match[1]
    kinds = {"/v1/config": "config", "/v1/namespaces": "namespaces", f"/v1/namespaces/{NAMESPACE}/tables": "tables"}
    return kinds.get(path, "strange"), ""


def _json(content: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), status=status, content_type="application/json")


def _complaint(kind: str) -> web.Response:
    return _json({"error": {"message": "there is no such thing", "type": kind, "code": 404}}, 404)


async def _absent(_request: web.BaseRequest, kind: str) -> web.StreamResponse:
    if kind == "namespaces":
        return _json({"namespaces": []})
    if kind == "tables":
        return _json({"identifiers": []})
    return _complaint("NoSuchTableException")


async def _html(_request: web.BaseRequest, _kind: str) -> web.StreamResponse:
    return web.Response(text="<html><body>404 Not Found</body></html>", status=404, content_type="text/html")


async def _error(_request: web.BaseRequest, _kind: str) -> web.StreamResponse:
    return _json({"error": {"message": "out of memory", "type": "InternalServerError", "code": 500}}, 500)


async def _revoked(_request: web.BaseRequest, _kind: str) -> web.StreamResponse:
    return _json({"error": {"message": "the token is revoked", "type": "NotAuthorizedException", "code": 401}}, 401)


async def _busy(_request: web.BaseRequest, _kind: str) -> web.StreamResponse:
    return web.Response(status=429, headers={"Retry-After": "1"})


async def _garbage(_request: web.BaseRequest, _kind: str) -> web.StreamResponse:
    return web.Response(body=b'{"metadata": [[\x00\xff', content_type="application/json")


async def _half(request: web.BaseRequest, _kind: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = 1_000
    await response.prepare(request)
    await response.write(b'{"metadata-location": "file:///wrong/metadata/9.metadata.json", "metadata": {')
    if request.transport is not None:
        request.transport.close()
    return response


_MOODS: dict[Mood, Callable[[web.BaseRequest, str], Awaitable[web.StreamResponse]]] = {
    Mood.ABSENT: _absent,
    Mood.HTML: _html,
    Mood.HTML_TABLES: _html,
    Mood.ERROR: _error,
    Mood.REVOKED: _revoked,
    Mood.BUSY: _busy,
    Mood.GARBAGE: _garbage,
    Mood.HALF: _half,
}


@dataclass
class Holding(Lake):
    """A lake that takes commits too.

    Attributes:
        held: commits to hold back still, by table.
        entered: is set by the first one that is.
        release: lets all go on.
        commits: that arrived, by table.
    """

    held: Counter[str] = field(default_factory=Counter)
    entered: anyio.Event = field(default_factory=anyio.Event)
    release: anyio.Event = field(default_factory=anyio.Event)
    commits: Counter[str] = field(default_factory=Counter)
    _running: set[str] = field(default_factory=set)

    @override
    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        found = _TABLE.fullmatch(request.path)
        if request.method != "POST" or found is None:
            return await super().answer(request)
        self.commits[found[1]] += 1
        return await self._commit(found[1], request.headers.get(_KEY, ""))

    async def _commit(self, name: str, key: str) -> web.StreamResponse:
        if key and key in self._running:
            error = {"message": "a request of that key runs", "type": "RequestInProgress", "code": 409}
            return web.json_response({"error": error}, status=409)
        self._running.add(key)
        if self.held[name]:
            self.held[name] -= 1
            self.entered.set()
            await self.release.wait()
        self._running.discard(key)
        table = self.tables[name]
        table.commit()
        return web.Response(body=table.body(), content_type="application/json")
