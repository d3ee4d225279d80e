"""A Cloud Storage, or whatever else answers at its address, that says what a test tells it to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
import pytest
from aiohttp import web
from multidict import CIMultiDictProxy

from sfn.google_auth import GoogleIdentity
from sfn.storage import RequestFailed
from sfn.storage.gcs import GcsClient, GcsOptions
from sfn.storage.remote_store import HttpPool
from tests.unit.rest_server import served

KEY = "gs://lake/sales/metadata/_sfn/orders.ver"
TAG = "1700000000000001"
PRIVATE = "s3cret-of-ours"


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

    async def respond(_: Asked) -> web.StreamResponse:
        return web.Response(
            body=content, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )

    return respond


def found(body: object, status: int = 200, **headers: str) -> Responder:
    """An object, or what was written."""
    return reply(body, status, x_goog_generation=TAG, **headers)


def complaint(status: int, reason: str, **headers: str) -> Responder:
    """An error of the JSON API."""
    error = {"domain": "global", "reason": reason, "message": f"{reason}, told so"}
    return reply({"error": {"errors": [error], "code": status, "message": "told so"}}, status, **headers)


def xml_complaint(status: int, code: str, **headers: str) -> Responder:
    """An error of the XML API."""
    text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>told so</Message></Error>"
    return reply(text.encode(), status, **headers)


@dataclass(slots=True)
class Server:
    """What it answers, and what it was asked.

    Attributes:
        url: where it listens.
        object: answers what is asked of objects, and listings.
        bucket: answers what is asked of the bucket itself.
        requests: all of them.
    """

    url: str = ""
    object: Responder = field(default_factory=lambda: reply(b"", 500))
    bucket: Responder = field(default_factory=lambda: reply({"name": "lake"}))
    requests: list[Asked] = field(default_factory=list)

    @property
    def asked(self) -> list[str]:
        return [f"{asked.method} {asked.path}" for asked in self.requests]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = Asked(request.method, request.raw_path, request.headers, await request.read())
        self.requests.append(asked)
        of_bucket = asked.path == "/storage/v1/b/lake?fields=name"
        return await (self.bucket if of_bucket else self.object)(asked)


@asynccontextmanager
async def running() -> AsyncGenerator[Server]:
    """A server that listens on the loopback interface."""
    server = Server()
    async with served(server.answer) as server.url:
        yield server


@asynccontextmanager
async def asking(
    server: Server,
    identity: GoogleIdentity | None = None,
    *,
    billing_project: str | None = None,
    pauses: Sequence[float] = (),
) -> AsyncGenerator[GcsClient]:
    """The adapter's requests to a server."""
    pool = HttpPool(limit=5.0)
    terms = GcsOptions(identity=identity, endpoint=server.url, billing_project=billing_project)
    try:
        yield GcsClient(terms, pool, pauses=pauses)
    finally:
        await pool.close()


async def refusal(verb: Awaitable[object]) -> RequestFailed:
    """What a request is refused with."""
    with pytest.raises(RequestFailed) as refused:
        await verb
    return refused.value
