"""A gateway's connections to its catalog: kept as long as they are good, and for who uses them."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.streams.tls import TLSListener

from sfn.body_memory import BodyMemory
from sfn.errors import Transient
from sfn.gateway import upstream
from sfn.gateway.upstream import Outgoing, Terms, Upstream
from tests.integration.gateways import OK, Catalog, Ended, Line, Message, asked, gate, saying, sized
from tests.integration.listening import chunk
from tests.integration.waiting import until
from tests.unit.certificates import Authority, Files

COMMIT = "/v1/namespaces/a/tables/t"
BOTH_LOOPS = [
    pytest.param(("asyncio", {"use_uvloop": on}), id=name) for name, on in (("asyncio", False), ("uvloop", True))
]
LONG = 3_000_000
"""Bytes of a body that is longer than what is read before a connection is taken for it."""


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


def kept(say: str) -> Callable[[Message, Line], object]:
    """Answers, and says for how long it keeps the connection."""
    return saying(f"HTTP/1.1 200 OK\r\nKeep-Alive: {say}\r\nContent-Length: 2\r\n\r\n{{}}".encode())


class Connections:
    """Which connection each request of a catalog comes over."""

    def __init__(self, catalog: Catalog) -> None:
        self._answer, self._lines, self.used = catalog.answer, list[Line](), list[int]()
        catalog.answer = self

    async def __call__(self, request: Message, line: Line) -> None:
        if line not in self._lines:
            self._lines.append(line)
        self.used.append(self._lines.index(line))
        await self._answer(request, line)


@pytest.mark.parametrize(
    ("answer", "pause", "used"),
    [
        (OK, 0.0, [0, 0]),
        # For so long a catalog that says nothing may not keep it.
        (OK, 0.2, [0, 1]),
        (kept("timeout=60"), 0.2, [0, 0]),
        (kept("max=100, timeout=2"), 0.2, [0, 0]),
        (kept("timeout=1"), 0.0, [0, 1]),
    ],
)
async def test_a_commit_goes_over_no_connection_that_the_catalog_may_be_closing(
    answer: Callable[[Message, Line], object], pause: float, used: list[int]
) -> None:
    async with gate(idle=0.1) as made:
        made.catalog.answer = answer  # type: ignore[assignment]
        seen = Connections(made.catalog)
        for _ in range(2):
            assert (await made.told(asked(COMMIT, method="POST"))).status == 200
            await anyio.sleep(pause)
    assert seen.used == used


async def test_a_read_goes_over_one_that_was_idle_for_longer() -> None:
    async with gate(idle=0.0) as made:
        seen = Connections(made.catalog)
        for method in ("GET", "GET", "POST", "GET"):
            assert (await made.told(asked("/v1/x", method=method))).status == 200
        assert seen.used[:3] == [0, 0, 1]


async def test_a_read_that_meets_the_end_of_its_connection_is_sent_once_more() -> None:
    """Over a new connection: others of the pool may have ended as well."""
    async with gate() as made:

        async def end(request: Message, line: Line) -> None:
            if request.target == "/v1/last" and seen.used[-1] == 0:
                raise Ended
            await OK(request, line)

        made.catalog.answer = end
        seen = Connections(made.catalog)
        await made.told(asked("/v1/x"))
        assert (await made.told(asked("/v1/last"))).status == 200
        assert seen.used == [0, 0, 1]


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 2"])
async def test_one_that_does_so_on_a_new_connection_or_was_answered_to_is_not(begun: bytes) -> None:
    async with gate() as made:

        async def end(_: Message, line: Line) -> None:
            await line.send(begun)
            raise Ended

        if begun:
            await made.told(asked("/v1/x"))
        made.catalog.answer = end
        assert (await made.told(asked("/v1/last"))).status == 502
        assert [one.target for one in made.catalog.requests].count("/v1/last") == 1


async def test_what_a_catalog_says_unasked_is_no_answer_to_the_next_request() -> None:
    """Some say 408 before they close an idle connection."""
    async with gate() as made:

        async def say_more(request: Message, line: Line) -> None:
            await OK(request, line)
            await line.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")

        made.catalog.answer = say_more
        for _ in range(3):
            assert (await made.told(asked(COMMIT, method="POST"))).status == 200
            await anyio.sleep(0.02)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Control: \x01\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 300_000,
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
async def test_what_is_no_answer_of_http_is_none(answer: bytes) -> None:
    async with gate() as made:
        made.catalog.answer = saying(answer)
        assert (await made.told(asked("/v1/x"))).status == 502


async def test_an_answer_without_a_body_leaves_the_connection_to_the_next_request() -> None:
    async with gate(idle=5) as made:
        for method, answer in (
            ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"),
            ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n"),
            ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n"),
            ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
        ):
            made.catalog.answer = saying(answer)
            await made.told(asked("/v1/x", method=method))
            assert made.catalog.lines == 1


async def test_an_early_answer_to_a_long_body_is_the_answer() -> None:
    async with gate() as made, made.connect() as wire:
        made.catalog.reads = False

        async def refuse(_: Message, line: Line) -> None:
            await line.send(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
            await line.ended()

        made.catalog.answer = refuse
        await wire.send(asked("/v1/x", f"Content-Length: {LONG}", method="POST") + b"x" * (LONG // 2))
        assert (await wire.reply()).status == 413


async def test_a_long_body_passes_while_it_comes() -> None:
    body = b"0123456789" * (LONG // 10)
    for fields, sent in (((sized(body),), body), (("Transfer-Encoding: chunked",), chunk(body) + b"0\r\n\r\n")):
        async with gate() as made:
            assert (await made.told(asked("/v1/x", *fields, method="POST", body=sent))).status == 200
            assert made.catalog.last.body == body


async def test_clients_that_trickle_their_bodies_keep_no_connection_from_others() -> None:
    async with gate(connections=2) as made, made.connect() as one, made.connect() as two, made.connect() as three:
        for wire in (one, two, three):
            await wire.send(asked(COMMIT, "Content-Length: 1000", method="POST") + b"{")
        assert (await made.told(asked("/v1/x"))).status == 200


async def test_long_bodies_leave_half_of_the_connections_to_others() -> None:
    async with gate(connections=2) as made, made.connect() as one, made.connect() as two:
        for wire in (one, two):
            await wire.send(asked(COMMIT, f"Content-Length: {LONG}", method="POST") + b"{" * (LONG // 2))
        await until(lambda: made.catalog.lines == 1)
        assert (await made.told(asked("/v1/x"))).status == 200
        assert (await made.told(asked(COMMIT, sized(b"{}"), method="POST", body=b"{}"))).status == 200


async def test_who_finds_no_place_waits_and_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "CONNECT", 0.3)
    async with gate(connections=1) as made:
        go = anyio.Event()

        async def wait(request: Message, line: Line) -> None:
            await go.wait()
            await OK(request, line)

        made.catalog.answer = wait
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.told, asked("/v1/x"))
            await until(lambda: made.catalog.lines == 1)
            assert (await made.told(asked("/v1/x"))).status == 503
            tasks.start_soon(made.told, asked("/v1/y"))
            await anyio.sleep(0.05)
            go.set()
        assert [one.target for one in made.catalog.requests] == ["/v1/x", "/v1/y"]


async def test_a_body_that_trickles_makes_room_for_others() -> None:
    async with gate(memory=BodyMemory(100_000)) as made, made.connect() as slow:
        await slow.send(asked("/v1/x", "Content-Length: 200000", method="POST") + b"x" * 60_000)
        await anyio.sleep(0.05)
        body = b"x" * 60_000
        assert (await made.told(asked("/v1/x", sized(body), method="POST", body=body))).status == 200
        reply = await slow.reply()
        assert (reply.status, reply.headers["retry-after"], reply.headers["connection"]) == (503, "1", "close")


async def test_a_catalog_is_asked_over_tls(tmp_path: Path) -> None:
    authority, shown = Authority(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    files = Files(tmp_path, authority.sign())
    shown.load_cert_chain(files.chain, files.key)
    behind = Catalog()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    behind.port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - it is anyio's, not Django's
    request = partial(Outgoing, "POST", b"/v1/x", [(b"x-user", b"\xe9")], b"body")
    async with TLSListener(listener, shown) as over, anyio.create_task_group() as tasks:
        tasks.start_soon(over.serve, behind.carry)
        terms = Terms(f"https://localhost:{behind.port}", 5.0, 4)
        unknown = Upstream("prod", terms, lambda: True)
        with pytest.raises(Transient, match="expected a connection"):
            await unknown.send(request())
        trusted = authority.trust()
        pool = Upstream("prod", terms, lambda: trusted)
        for _ in range(2):
            answer = await pool.send(request())
            assert (answer.status, [part async for part in answer.parts()]) == (200, [b"{}"])
            answer.end()
        assert behind.last.all(b"host") == [f"localhost:{behind.port}".encode()]
        assert behind.lines == 1
        await pool.close()
        tasks.cancel_scope.cancel()
