"""An object store, or whatever else answers at its address, that says what a test tells it to."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import msgspec
import pytest
from aiohttp import web
from multidict import CIMultiDictProxy
from typing_extensions import override

from sfn.storage import RequestFailed
from sfn.storage.remote_store import BODY_LIMIT, HttpPool, HttpReply
from tests.support.rest_catalog import served

PRIVATE = "s3cret-of-ours"
SIGN_IN_PAGE = b"<!doctype html><title>Sign in</title>"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: the path as it came over the wire, with its query."""

    method: str
    path: str
    headers: CIMultiDictProxy[str]
    body: bytes


Responder = Callable[[Asked], Awaitable[web.StreamResponse]]


def reply(body: object = b"", status: int = 200, **headers: str) -> Responder:
    """Always the same answer: bytes as they are, anything else as JSON; `retry_after` is Retry-After."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    named = {name if "-" in name else name.replace("_", "-"): value for name, value in headers.items()}

    async def respond(_: Asked) -> web.StreamResponse:
        return web.Response(body=content, status=status, headers=named)

    return respond


def late(seconds: float, answer: Responder) -> Responder:
    """The same answer, late."""

    async def respond(asked: Asked) -> web.StreamResponse:
        await anyio.sleep(seconds)
        return await answer(asked)

    return respond


async def never(_: Asked) -> web.StreamResponse:
    """No answer."""
    await anyio.sleep_forever()
    return web.Response()


@dataclass(slots=True)
class Server:
    """What it answers, and what it was asked.

    Attributes:
        url: where it listens.
        answer: to everything.
        requests: all of them.
    """

    url: str = ""
    answer: Responder = field(default_factory=lambda: reply(b"", 500))
    requests: list[Asked] = field(default_factory=list)

    @property
    def asked(self) -> list[str]:
        return [f"{asked.method} {asked.path}" for asked in self.requests]

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = Asked(request.method, request.raw_path, request.headers, await request.read())
        self.requests.append(asked)
        return await self.respond(asked)

    async def respond(self, asked: Asked) -> web.StreamResponse:
        return await self.answer(asked)


S = TypeVar("S", bound=Server)


@asynccontextmanager
async def running(server: S, certificate: ssl.SSLContext | None = None) -> AsyncGenerator[S]:
    """A server that listens on the loopback interface, over TLS where it has a certificate."""
    async with served(server.handle, certificate) as server.url:
        yield server


class ScriptedPool(HttpPool):
    """Connections to nowhere.

    Args:
        answer: to a method and a URL.

    Attributes:
        asked: method, URL and headers of each request.
    """

    def __init__(self, answer: Callable[[str, str], HttpReply]) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, Mapping[str, str]]] = []
        self._answer = answer

    @property
    def urls(self) -> list[str]:
        return [url for _, url, _ in self.asked]

    @override
    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", most: int = BODY_LIMIT
    ) -> HttpReply:
        self.asked.append((method, url, headers))
        return self._answer(method, url)


async def refusal(verb: Awaitable[object]) -> RequestFailed:
    """What a request is refused with."""
    with pytest.raises(RequestFailed) as refused:
        await verb
    return refused.value
