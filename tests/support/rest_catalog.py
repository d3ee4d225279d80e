"""A catalog's HTTP side that answers what a test tells it to, on the loopback interface; it may vend credentials."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime
from typing import Any, Protocol

import anyio
import msgspec
import pytest
from aiohttp import web
from typing_extensions import override

from sfn.catalogs.rest.catalog import RestCatalog
from sfn.catalogs.rest.settings import RestSettings
from sfn.clock import SystemClock
from sfn.domain.identifiers import TableIdentifier

PRIVATE = "s3cret-of-ours"
ORDERS = TableIdentifier("lake", ("sales",), "orders")

Responder = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

CREDENTIALS = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"
LOAD = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"
PATH = "/v1/namespaces/sales/tables/orders"


@dataclass(slots=True)
class Server:
    """What it answers, by what is asked, and what it was asked.

    Attributes:
        uri: where it listens.
        config, token: answers to `/v1/config` and `/v1/oauth/tokens`.
        other: answers everything else.
        asked: paths with queries as they came over the wire, `/v1/config` left out.
        requests: all of them.
    """

    uri: str = ""
    config: Responder = field(default_factory=lambda: reply({"defaults": {}, "overrides": {}}))
    token: Responder = field(default_factory=lambda: reply({"access_token": PRIVATE, "token_type": "bearer"}))
    other: Responder = field(default_factory=lambda: reply(b"", 500))
    requests: list[web.BaseRequest] = field(default_factory=list)

    @property
    def asked(self) -> list[str]:
        return [request.raw_path for request in self.requests if not is_config(request)]

    @property
    def configured(self) -> int:
        """How often it was asked for its configuration."""
        return sum(map(is_config, self.requests))

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        if is_config(request):
            return await self.config(request)
        if request.raw_path == "/v1/oauth/tokens":
            return await self.token(request)
        return await self.other(request)


class Open(Protocol):
    """Makes a catalog on a server, closed when the test ends."""

    def __call__(self, server: Server, **settings: object) -> RestCatalog: ...


class Runner(web.ServerRunner):
    """A server for one function, which waits for no client at its end, and leaves no connection behind."""

    def __init__(self, answer: Responder) -> None:
        super().__init__(web.Server(answer, access_log=None), shutdown_timeout=0.1)

    @override
    async def cleanup(self) -> None:
        # asyncio (Python 3.11) never closes a connection that it accepted just before its server was closed.
        for site in self.sites:
            server: Any = site._server  # noqa: SLF001 - aiohttp has no other way
            for listener in server.sockets:
                asyncio.get_running_loop().remove_reader(listener)
        for _ in range(3):
            await asyncio.sleep(0)
        await super().cleanup()


@asynccontextmanager
async def served(answer: Responder, certificate: ssl.SSLContext | None = None) -> AsyncGenerator[str]:
    """A server on the loopback interface, over TLS where it has a certificate; its address."""
    runner = Runner(answer)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate).start()
        yield f"{'http' if certificate is None else 'https'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running(certificate: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
    """A server that listens, over TLS where it has a certificate."""
    server = Server()
    async with served(server.answer, certificate) as server.uri:
        yield server


@asynccontextmanager
async def opening() -> AsyncGenerator[Open]:
    """Opens catalogs called `lake`."""
    async with AsyncExitStack() as stack:

        def opened(server: Server, **settings: object) -> RestCatalog:
            given = {"name": "lake", "uri": server.uri, **settings}
            catalog = RestCatalog(msgspec.convert(given, RestSettings))
            stack.push_async_callback(catalog.close)
            return catalog

        yield opened


def is_config(request: web.BaseRequest) -> bool:
    return request.path == "/v1/config"


def reply(body: object, status: int = 200, **headers: str) -> Responder:
    """Always the same answer: bytes as they are, anything else as JSON; `retry_after` is Retry-After."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)

    async def respond(_: web.BaseRequest) -> web.StreamResponse:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return web.Response(body=content, status=status, headers={"content-type": "application/json", **named})

    return respond


def complaint(kind: str, status: int, message: str = "told so") -> Responder:
    """An error in Iceberg's shape."""
    return reply({"error": {"message": message, "type": kind, "code": status}}, status)


def table(pointer: str | None = "s3://b/t/metadata/1.json", **metadata: object) -> dict[str, object]:
    """The body of a loaded table; names of metadata fields with `_` for `-`."""
    content: dict[str, object] = {
        "format-version": 2,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "s3://b/t",
        "last-updated-ms": 1_700_000_000_000,
        **{key.replace("_", "-"): value for key, value in metadata.items()},
    }
    return {"metadata-location": pointer, "metadata": content}


def believing(*tokens: str) -> Responder:
    """Answers a table to who brings one of these tokens, 401 to all others."""
    allowed = {f"Bearer {token}" for token in tokens}

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        believed = request.headers.get("authorization") in allowed
        return await (reply(table()) if believed else reply(b"", 401))(request)

    return respond


class Mint:
    """Gives the tokens token1, token2, …"""

    def __init__(self, expires_in: object = None) -> None:
        self.forms: list[dict[str, str]] = []
        self._expires_in = expires_in

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self.forms.append({key: str(value) for key, value in (await request.post()).items()})
        token = {"access_token": f"token{len(self.forms)}", "token_type": "bearer", "expires_in": self._expires_in}
        return await reply({key: value for key, value in token.items() if value is not None})(request)


def pass_by(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have so much time pass on the loop's clock, at once."""
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: time.monotonic() + seconds)


def bearers(server: Server) -> list[str | None]:
    return [request.headers.get("authorization") for request in server.requests if request.method == "GET"]


GONE = complaint("NoSuchTableException", 404)


def in_storage_credentials(config: dict[str, str]) -> dict[str, object]:
    return {"storage-credentials": [{"prefix": "s3://lake/orders/", "config": config}]}


@dataclass
class Vending:
    """Gives the keys 1, 2, … of a table, at its endpoint and in its loads.

    Attributes:
        lasts: how long keys are good, None for not saying so.
        ahead: of our clock its own is by.
        late: seconds until it answers.
        endpoint, load: answer instead, where they are set.
        given: how many keys.
        shape: how they stand in an answer.
    """

    lasts: timedelta | None = timedelta(hours=1)
    ahead: timedelta = timedelta()
    late: float = 0.0
    endpoint: Responder | None = None
    load: Responder | None = None
    given: int = 0
    shape: Callable[[dict[str, str]], dict[str, object]] = field(default_factory=lambda: in_storage_credentials)

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        await anyio.sleep(self.late)
        is_endpoint = request.path.endswith("/credentials")
        instead = self.endpoint if is_endpoint else self.load
        if instead is not None:
            return await instead(request)
        if not is_endpoint and "x-iceberg-access-delegation" not in request.headers:
            return await reply(table())(request)
        response = await reply({**({} if is_endpoint else table()), **self.shape(self.keys())})(request)
        response.headers["Date"] = format_datetime(SystemClock().now() + self.ahead, usegmt=True)
        return response

    def keys(self) -> dict[str, str]:
        self.given += 1
        config = {f"s3.{key}": f"{key}-number-{self.given}" for key in ("access-key-id", "secret-access-key")}
        if self.lasts is not None:
            ends = (SystemClock().now() + self.ahead + self.lasts).timestamp()
            config["s3.session-token-expires-at-ms"] = str(round(ends * 1000))
        return config


def listing(*endpoints: str) -> Responder:
    """A configuration that lists the catalog's endpoints."""
    return reply({"defaults": {}, "overrides": {}, "endpoints": list(endpoints)})
