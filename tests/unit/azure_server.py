"""A Blob Storage, or whatever else answers at its address, that says what a test tells it to."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from aiohttp import web
from multidict import CIMultiDictProxy

from sfn.storage import RequestFailed
from sfn.storage.azure import AccountKey, AzureClient, AzureIdentity, AzureOptions
from sfn.storage.remote_store import HttpPool

HOME = "abfss://lake@acct.dfs.core.windows.net/"
KEY = f"{HOME}sales/metadata/_sfn/orders.ver"
TAG = '"0x8DE2A1B2C3D4E5F"'
PRIVATE = b64encode(b"s3cret-of-ours").decode()
SOMEBODY = AccountKey(PRIVATE)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: the path as it came over the wire, with its query."""

    method: str
    path: str
    headers: CIMultiDictProxy[str]
    body: bytes


Responder = Callable[[Asked], Awaitable[web.StreamResponse]]


def reply(body: bytes = b"", status: int = 200, **headers: str) -> Responder:
    """Always the same answer; `retry_after` is Retry-After, `etag` and `content_range` come along where given."""
    named = {name if "-" in name else name.replace("_", "-"): value for name, value in headers.items()}

    async def respond(_: Asked) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers=named)

    return respond


async def never(_: Asked) -> web.StreamResponse:
    """No answer."""
    await anyio.sleep_forever()
    return web.Response()


def found(body: bytes, **headers: str) -> Responder:
    """A part of a blob that has no more, as whoever asks for a range gets it."""
    return reply(body, 206, etag=TAG, content_range=f"bytes 0-{len(body) - 1}/{len(body)}", **headers)


def complaint(status: int, code: str, **headers: str) -> Responder:
    """An error of the service: the code is in a header, and in a body with more words."""
    text = f"<?xml version='1.0' encoding='utf-8'?><Error><Code>{code}</Code><Message>told so</Message></Error>"
    return reply(text.encode(), status, x_ms_error_code=code, content_type="application/xml", **headers)


def listing(*blobs: str, prefixes: tuple[str, ...] = (), following: str = "") -> Responder:
    """A page: names, or elements `Blob` as they are."""
    items = "".join(one if one.startswith("<") else blob(one) for one in blobs)
    folders = "".join(f"<BlobPrefix><Name>{name}</Name></BlobPrefix>" for name in prefixes)
    text = (
        '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="lake"><Delimiter>/</Delimiter>'
        f"<Blobs>{items}{folders}</Blobs><NextMarker>{following}</NextMarker></EnumerationResults>"
    )
    return reply(text.encode(), content_type="application/xml")


def blob(name: str, **metadata: str) -> str:
    """One blob of a listing."""
    marks = "".join(f"<{key}>{value}</{key}>" for key, value in metadata.items())
    told = "<Content-Length>1</Content-Length><BlobType>BlockBlob</BlobType>"
    return f"<Blob><Name>{name}</Name><Properties>{told}</Properties><Metadata>{marks}</Metadata></Blob>"


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

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = Asked(request.method, request.raw_path, request.headers, await request.read())
        self.requests.append(asked)
        return await self.answer(asked)


@asynccontextmanager
async def running(certificate: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
    """A server that listens on the loopback interface, over TLS where it has a certificate."""
    server = Server()
    runner = web.ServerRunner(web.Server(server.respond, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate).start()
        server.url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def asking(
    server: Server, identity: AzureIdentity | None = SOMEBODY, *, ca_file: Path | None = None, limit: float = 5.0
) -> AsyncGenerator[AzureClient]:
    """The adapter's requests to a server."""
    pool = HttpPool(ca_file, limit=limit)
    objects = AzureClient(AzureOptions(identity=identity, endpoint=server.url), pool)
    try:
        yield objects
    finally:
        await objects.close()
        await pool.close()


async def refusal(verb: Awaitable[object]) -> RequestFailed:
    """What a request is refused with."""
    with pytest.raises(RequestFailed) as refused:
        await verb
    return refused.value
