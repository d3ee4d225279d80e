"""The targets `targets` and `recognise`, of a gateway.

`targets` is fed all bytes that a client sends to a gateway. Its one oracle is that nobody but the gateway's catalog is
contacted, with no more requests than the client sent, each below the catalog's own path. The real server, gateway and
client run on an event loop that has no network: whoever asks it for a connection or for an address is written down, and
only the catalog's are answered. Its input:

where: one byte, whether the gateway is on a listener of its own | what the client sends

`recognise` is fed requests that pass through a gateway, and what is read of them and of their answers. Its input:

method | line | target | line | namespace separator | line | the body, of the request and of the answer
"""

from __future__ import annotations

import asyncio
import atexit
import json
import socket
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, cast

import anyio
import h11
import uvicorn
from typing_extensions import override
from uvicorn.server import ServerState

from sfn.domain.events import PutResult
from sfn.gateway import upstream
from sfn.gateway.commits import CommitRecorder, IntentOptions, OnInboxFailure, OwedSweeps, notifications_of
from sfn.gateway.connection import UpstreamConnection as CatalogConnection
from sfn.gateway.proxy import GatewayOptions, Proxy, Scope, Send, mount_gateways, standalone_gateway
from sfn.gateway.routes import (
    MAX_TABLES_PER_TRANSACTION,
    NAMED_IN_BODY,
    CatalogChange,
    CatalogMapping,
    UnknownTables,
    recognise_change,
    tables_of_change,
)
from sfn.gateway.streams import MAX_SCANNED, MetadataLocationScanner, Receive
from sfn.gateway.upstream import rewrite_configuration
from sfn.http.server import ServerConnection
from sfn.inbox import InboxWriter
from tests.fuzz.fuzzer import Loaded

HOST: Final = "192.0.2.1"
PORT: Final = 8181
BASE: Final = "/base"
_OURS: Final = b"/catalog/prod"
_TURNS: Final = 60
"""Turns of the event loop until whatever comes of a request has come of it."""
_ANSWER: Final = b'HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n{"overrides":{"uri":"http://it/"}}'[:-1]

_REQUEST_TARGETS: Final = (
    b"/v1/config",
    b"/v1/namespaces/a%1Fb/tables/t?x=1",
    b"*@198.51.100.9:80/x",
    b"*",
    b"http://198.51.100.9/v1/x",
    b"//198.51.100.9/x",
    b"/\\198.51.100.9/x",
    b"/@198.51.100.9/x#y",
    b"/../x",
    b"198.51.100.9:443",
)
_FIELDS: Final = (
    b"Host: gate",
    b"Host: 198.51.100.9",
    b"Content-Length: 4",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Connection: content-length, host, x-forwarded-host",
    b"X-Forwarded-Host: 198.51.100.9",
    b"Forwarded: host=198.51.100.9",
    b"Expect: 100-continue",
    b"Upgrade: h2c",
    b"TE: trailers",
    b"Trailer: Host",
    b"X-Latin: \xe9\xff",
)
_REQUEST_BODIES: Final = (b"", b"body", b"4\r\nbody\r\n0\r\nHost: 198.51.100.9\r\n\r\n", b"GET /v1/y HTTP/1.1\r\n\r\n")
_METHODS: Final = (b"GET", b"POST", b"DELETE", b"OPTIONS", b"CONNECT", b"HEAD")

_LINE: Final = b"\n"
_PARTS: Final = 4
_TABLE: Final = {"namespace": ["a", "b.c"], "name": "t"}
_CHANGE_BODIES: Final[tuple[object, ...]] = (
    {"name": "t", "schema": {"type": "struct", "fields": []}, "stage-create": False},
    {"name": "t", "stage-create": True},
    {"name": "t", "metadata-location": "s3://lake/t/metadata/00001-a.metadata.json", "overwrite": True},
    {"source": _TABLE, "destination": {"namespace": ["a"], "name": "u"}},
    {"table-changes": [{"identifier": _TABLE, "requirements": [], "updates": []}]},
    {"metadata-location": "s3://lake/t/metadata/00001-\\u00e9.metadata.json", "metadata": {"properties": {}}},
    {"defaults": {"uri": "http://catalog"}, "overrides": {"namespace-separator": "%2E", "uri": "http://catalog/"}},
)
_CHANGE_TARGETS: Final = (
    b"/v1/namespaces/a%1Fb/tables",
    b"/v1/p/q/namespaces/a%2Eb.c/tables/t%2Fu",
    b"/v1/p/namespaces/n/register",
    b"/v1/p/namespaces/n/tables/t/unregister",
    b"/v1/tables/rename",
    b"/v1/p%7Cw/transactions/commit",
    b"/v1/p/namespaces/n?purgeRequested=true",
    b"/v1/config",
)
_SEPARATORS: Final = (b"", b"%1F", b"%2E", b".", b"\x00", b"%")


def request_seeds() -> Iterator[bytes]:
    """Each target with each method, each field with each body."""
    for number, target in enumerate(_REQUEST_TARGETS):
        for method in _METHODS:
            field = _FIELDS[number % len(_FIELDS)]
            yield _request(b"\0", method, _OURS + target if target[:1] == b"/" else target, field, b"")
            yield _request(b"\1", method, target, field, b"")
    for field in _FIELDS:
        for body in _REQUEST_BODIES:
            yield _request(b"\1", b"POST", b"/v1/x", field, body)


def send_request(data: bytes) -> None:
    """Send it to a gateway, and look at whom that contacts and what it sends."""
    loop = _loop()
    loop.run_until_complete(_tried(loop, is_alone=data[:1] == b"\1", sent=data[1:]))


def mutated_request(data: bytes, longest: int, number: int, mutate: Callable[[bytes, int], bytes]) -> bytes:
    """Another input: mere bytes, or one line of it for one that is known to matter."""
    chance = Random(number)
    if chance.random() < 0.5:
        return mutate(data, longest)
    lines = data.split(b"\r\n")
    which = chance.randrange(len(lines))
    if which == 0:
        target = chance.choice(_REQUEST_TARGETS)
        if chance.random() < 0.3:
            target = mutate(target, 256)
        root = chance.choice((b"", _OURS))
        lines[0] = data[:1] + chance.choice(_METHODS) + b" " + root + target + b" HTTP/1.1"
    else:
        lines[which] = chance.choice(_FIELDS) if chance.random() < 0.7 else mutate(lines[which], 256)
    return b"\r\n".join(lines)[:longest]


def _request(where: bytes, method: bytes, target: bytes, field: bytes, body: bytes) -> bytes:
    return where + b"%b %b HTTP/1.1\r\nHost: gate\r\n%b\r\n\r\n%b" % (method, target, field, body)


class _Wire(asyncio.Transport):
    """A connection without a network: what is written is kept.

    Attributes:
        sent: that is what.
    """

    def __init__(self, answers: Callable[[_Wire], object] | None = None) -> None:
        super().__init__({"peername": ("192.0.2.7", 1), "sockname": ("192.0.2.8", 2)})
        self.sent, self._answers, self._closed = b"", answers, False

    @override
    def write(self, data: Any) -> None:
        self.sent += bytes(data)
        if self._answers is not None:
            self._answers(self)

    @override
    def is_closing(self) -> bool:
        return self._closed

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    @override
    def close(self) -> None:
        self._closed = True

    abort = close

    @override
    def pause_reading(self) -> None:
        """Nothing more comes."""

    @override
    def resume_reading(self) -> None:
        """Nothing more comes."""


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that has no network.

    Attributes:
        asked: hosts and ports that an address or a connection was asked for.
        wires: connections to the catalog.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[object] = []
        self.wires: list[_Wire] = []
        asyncio.set_event_loop(self)

    @override
    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        self.asked.append((host, port))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    @override
    async def sock_connect(self, sock: Any, address: Any) -> None:
        self.asked.append(tuple(address[:2]))

    @override
    async def create_connection(self, protocol_factory: Any, *args: Any, **more: Any) -> Any:
        if args or more.get("host") is not None:
            self.asked.append((args, more))
        more["sock"].close()
        protocol = protocol_factory()
        wire = _Wire(lambda _: self.call_soon(_answered, protocol))
        self.wires.append(wire)
        protocol.connection_made(wire)
        return wire, protocol


def _answered(protocol: CatalogConnection) -> None:
    if not protocol.is_closed and not protocol.is_reusable:
        protocol.data_received(_ANSWER)


_KEPT: list[_Loop] = []


def _loop() -> _Loop:
    if not _KEPT:
        _KEPT.append(_Loop())
        atexit.register(_KEPT[0].close)
    return _KEPT[0]


class _Nothing:
    """An inbox that takes everything, and who counts it."""

    async def put(self, notes: object) -> PutResult:
        return PutResult(0, 0)

    def answered(self, **_: object) -> None:
        """Nothing is counted."""

    def count_unrecorded(self) -> None:
        """Nothing is counted."""

    def count_unmapped(self) -> None:
        """Nothing is counted."""


async def _others(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def _tried(loop: _Loop, *, is_alone: bool, sent: bytes) -> None:
    loop.asked, loop.wires = [], []
    base, nothing = f"http://{HOST}:{PORT}{BASE}", _Nothing()
    intake = cast("InboxWriter", nothing)
    noting = IntentOptions("gateway.prod", OnInboxFailure.PASS, lambda: "an-id")
    pool = upstream.UpstreamPool("prod", upstream.UpstreamOptions(base, 5.0, 8), lambda: True)
    commits = CommitRecorder(noting, intake, OwedSweeps(intake), lambda _: None, nothing)
    reach = CatalogMapping("prod", {}, lambda _: True, requires_credentials=False)
    proxy = Proxy(pool, commits, reach, GatewayOptions(base, None, 1 << 16), nothing)
    application = standalone_gateway(proxy) if is_alone else mount_gateways({"prod": proxy}, _others)
    seen: list[object] = []

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["raw_path"])
        await application(scope, receive, send)

    config = uvicorn.Config(counted, interface="asgi3", log_config=None, access_log=False, proxy_headers=False)
    connection, client = ServerConnection(config, ServerState(), {}, loop), _Wire()
    connection.connection_made(client)
    connection.data_received(sent)
    for _ in range(_TURNS):
        await anyio.lowlevel.checkpoint()
    connection.connection_lost(None)
    if connection.timeout_keep_alive_task is not None:
        connection.timeout_keep_alive_task.cancel()
    for _ in range(_TURNS):
        await anyio.lowlevel.checkpoint()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await proxy.close()
    await anyio.lowlevel.checkpoint()
    _judge(loop, len(seen))


def _judge(loop: _Loop, most: int) -> None:
    assert set(loop.asked) <= {(HOST, PORT)}, f"somebody else was contacted: {loop.asked}"
    found = [request for wire in loop.wires for request in _requests(wire.sent)]
    for request in found:
        assert request.target.startswith(BASE.encode()), request.target
        assert [value for name, value in request.headers if name == b"host"] == [f"{HOST}:{PORT}".encode()]
    assert len(found) <= most, found


def _requests(sent: bytes) -> Iterator[h11.Request]:
    """What another reader of HTTP makes of what the catalog was sent; a body may have been left off."""
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(sent)
    while (event := reader.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        if isinstance(event, h11.Request):
            yield event
        elif isinstance(event, h11.ConnectionClosed):
            return
        elif isinstance(event, h11.EndOfMessage):
            answer = h11.Response(status_code=200, headers=[("content-length", "0")])
            for message in (answer, h11.EndOfMessage()):
                reader.send(message)
            if reader.their_state is h11.DONE:
                reader.start_next_cycle()


def change_seeds() -> Iterator[bytes]:
    """Each kind of request with each body."""
    for number, target in enumerate(_CHANGE_TARGETS):
        for method in (b"POST", b"DELETE"):
            for body in _CHANGE_BODIES:
                separator = _SEPARATORS[number % len(_SEPARATORS)]
                yield _LINE.join((method, target, separator, json.dumps(body).encode()))


def recognise(data: bytes) -> None:
    """Recognise a request, name its tables, and read an answer; nothing but `UnknownTables` may come of it."""
    method, target, separator, body = _split(data)
    path, _, query = target.partition("?")
    change = recognise_change(method, path, query)
    if change is not None:
        _name(change, body, separator or None)
    _read(body)


def mutated_change(data: bytes, longest: int, number: int, mutate: Callable[[bytes, int], bytes]) -> bytes:
    """Another input: mostly one of its parts changes, at times for one that is known to matter."""
    chance = Random(number)
    parts = data.split(_LINE, _PARTS - 1)
    if len(parts) < _PARTS or chance.random() < 0.1:
        return mutate(data, longest)
    which = chance.randrange(_PARTS)
    known = (
        (b"POST", b"DELETE"),
        _CHANGE_TARGETS,
        _SEPARATORS,
        tuple(json.dumps(body).encode() for body in _CHANGE_BODIES),
    )[which]
    parts[which] = chance.choice(known) if chance.random() < 0.3 else mutate(parts[which], longest // 2 or 1)
    return _LINE.join(parts)[:longest]


def _split(data: bytes) -> tuple[str, str, str, bytes]:
    method, target, separator, body, *_ = (*data.split(_LINE, _PARTS - 1), b"", b"", b"", b"")
    return method.decode("latin-1"), target.decode("latin-1"), separator.decode("latin-1"), body


def _name(change: CatalogChange, body: bytes, separator: str | None) -> None:
    try:
        named = tables_of_change(
            change, body if change.kind in NAMED_IN_BODY else b"", "prod", [separator] if separator else []
        )
    except UnknownTables:
        named = ()
    assert len(named) <= max(MAX_TABLES_PER_TRANSACTION, 2)
    assert all(name.namespace and name.name for name in named)
    told = notifications_of(change, named, "prod", "gateway", None, b"")
    assert {hint.subject for hint in told} <= {*named} or not named


def _read(body: bytes) -> None:
    for encoding in ("identity", "gzip"):
        floor, half = MetadataLocationScanner(encoding), len(body) // 2
        floor.feed(body[:half])
        floor.feed(body[half:])
        assert floor.found is None or 0 < len(floor.found) <= MAX_SCANNED
    rewrite_configuration(body, "http://catalog", "https://sfn/catalog/prod")


SEND_REQUEST: Final = Loaded(request_seeds, send_request, mutated_request)
RECOGNISE: Final = Loaded(change_seeds, recognise, mutated_change)
