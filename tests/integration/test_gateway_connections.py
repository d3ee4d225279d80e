"""A gateway's connections to its catalog: kept as long as they are good, and for who uses them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.streams.tls import TLSListener

from sfn.errors import OutcomeUnknown, Transient
from sfn.gateway import upstream
from sfn.gateway.upstream import UpstreamOptions, UpstreamPool, UpstreamRequest
from sfn.limits import BodyMemory
from tests.integration.gateways import OK, Catalog, Ended, Line, Message, asked, catalog, gate, saying, sized
from tests.support.certificates import Authority, Files
from tests.support.listener import chunk
from tests.support.processes import until

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


@asynccontextmanager
async def secured(files: Files) -> AsyncGenerator[Catalog]:
    """A catalog that speaks TLS."""
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    shown.load_cert_chain(files.chain, files.key)
    behind = Catalog()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    behind.port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - it is anyio's, not Django's
    async with TLSListener(listener, shown) as over, anyio.create_task_group() as tasks:
        tasks.start_soon(over.serve, behind.carry)
        try:
            yield behind
        finally:
            tasks.cancel_scope.cancel()


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
        (OK, 0.6, [0, 1]),
        (kept("timeout=60"), 0.6, [0, 0]),
        (kept("max=100, timeout=4"), 0.6, [0, 0]),
        (kept("timeout=1"), 0.0, [0, 1]),
    ],
)
async def test_a_commit_goes_over_no_connection_that_the_catalog_may_be_closing(
    answer: Callable[[Message, Line], object], pause: float, used: list[int]
) -> None:
    async with gate(idle=0.5 if pause else 10.0) as made:
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
            # uvloop's clock counts whole milliseconds: within one, a connection was not idle at all.
            await anyio.sleep(0.01)
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
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n 0\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip,\r\n chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\x00\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding : gzip\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX-A: b\rX-B: c\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 300_000,
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
async def test_what_is_no_answer_of_http_is_none(answer: bytes) -> None:
    async with gate() as made:
        made.catalog.answer = saying(answer)
        assert (await made.told(asked("/v1/x"))).status == 502


@pytest.mark.parametrize(
    ("answer", "passed"),
    [
        (b"X-A: b\r\n \t c\r\nX-B: d\r\nContent-Length: 2\r\n\r\n{}", {b"x-a": b"b \t c", b"x-b": b"d"}),
        (b"X-A:\r\n b\r\nContent-Length:\r\n 2\r\n\r\n{}", {b"x-a": b"b", b"content-length": b"2"}),
        (b"X-A: b\nX-B: c\nContent-Length: 2\n\n{}", {b"x-a": b"b", b"x-b": b"c"}),
        (b"X-A: a\x01b\r\nContent-Length: 2\r\n\r\n{}", {b"x-a": b"a b"}),
        (b"X-A: a\x00b\r\nContent-Length: 2\r\n\r\n{}", {b"x-a": b"a b"}),
        (b"Content-Length : 2\r\n\r\n{}", {b"content-length": b"2"}),
        (b"Transfer-Encoding: chunked\r\n\r\n2 \r\n{}\r\n0\r\n\r\n", {}),
        (b"Transfer-Encoding :\r\n chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", {}),
    ],
)
async def test_what_other_clients_take_for_an_answer_is_one(answer: bytes, passed: dict[bytes, bytes]) -> None:
    """Of a commit above all, which is made by then. What is passed on is what HTTP allows."""
    async with gate(idle=5) as made:
        made.catalog.answer = saying(b"HTTP/1.1 200 OK\r\n" + answer)
        for _ in range(2):
            got = await made.told(asked(COMMIT, method="POST"))
            assert got.status == 200
            assert b"{}" in got.body
            assert {name.lower(): value for name, value in got.fields}.items() >= passed.items()
        assert made.catalog.lines == 1, "the connection is good for the next request"


async def test_the_catalog_has_all_of_its_time_from_the_end_of_a_body_that_came_slowly() -> None:
    async def answer_late(request: Message, line: Line) -> None:
        await anyio.sleep(1.4)
        await OK(request, line)

    statuses: list[int] = []

    async def trickle() -> AsyncGenerator[bytes]:
        for _ in range(5):
            await anyio.sleep(0.4)
            yield b"x"

    async with catalog() as behind:
        behind.answer = answer_late
        pool = UpstreamPool("prod", UpstreamOptions(behind.uri, 3.0, 4), lambda: True)
        with suppress(OutcomeUnknown):
            answer = await pool.send(UpstreamRequest("POST", b"/v1/x", [], trickle(), 5))
            statuses.append(answer.status)
            answer.release()
        await pool.close()
    assert statuses == [200]


MANY = 30_000_000
"""Bytes of a body of which the kernel holds a part alone."""


async def test_a_large_body_takes_no_memory_once_the_catalog_has_it() -> None:
    """However long the catalog takes for its answer: others send bodies meanwhile."""
    memory, go, body = BodyMemory(), anyio.Event(), b"{" * 1_000_000

    async def wait(request: Message, line: Line) -> None:
        await go.wait()
        await OK(request, line)

    statuses, used = list[int](), list[int]()

    async def ask(*fields: str, sent: bytes) -> None:
        statuses.append((await made.told(asked(COMMIT, *fields, method="POST", body=sent))).status)

    async with gate(memory=memory) as made:
        made.catalog.answer = wait
        async with anyio.create_task_group() as tasks:
            for number, (field, sent) in enumerate(
                ((sized(body), body), ("Transfer-Encoding: chunked", chunk(body) + b"0\r\n\r\n")) * 2, 1
            ):
                tasks.start_soon(partial(ask, field, sent=sent))
                await until(lambda number=number: len(made.catalog.requests) == number)  # type: ignore[misc]
                with suppress(TimeoutError):
                    await until(lambda: memory.used == 0, 2)
                used.append(memory.used)
            go.set()
        assert [one.value(b"content-length") for one in made.catalog.requests] == [b"1000000"] * 4
        assert {one.body for one in made.catalog.requests} == {body}
    assert statuses == [200] * 4
    assert used == [0] * 4


async def test_whole_bodies_have_all_of_the_connections() -> None:
    go, body = anyio.Event(), b"{" * 1_000_000

    async def wait(request: Message, line: Line) -> None:
        await go.wait()
        await OK(request, line)

    async with gate(connections=2) as made:
        made.catalog.answer = wait
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(made.told, asked(COMMIT, sized(body), method="POST", body=body))
            await until(lambda: len(made.catalog.requests) == 2)
            go.set()


@asynccontextmanager
async def taking(pauses: float, *, all_of_it: bool = True) -> AsyncGenerator[UpstreamPool]:
    """A pool of a catalog that pauses after the begin of a long body, and before its answer; it may take 1.8 of them.

    Args:
        pauses: seconds, each.
        all_of_it: the rest is taken; else nothing more ever happens.
    """

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(100_000)
        if not all_of_it:
            await ended.wait()
        await asyncio.sleep(pauses)
        # Which is the end of the test where the connection is closed meanwhile.
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readexactly(MANY - 100_000)
            await asyncio.sleep(pauses)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        done.set()

    done = asyncio.Event()
    ended = asyncio.Event()
    server = await asyncio.start_server(take, "127.0.0.1", 0)
    uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    pool = UpstreamPool("prod", UpstreamOptions(uri, 1.8 * pauses or 1.5, 4), lambda: True)
    try:
        yield pool
    finally:
        ended.set()
        await pool.close()
        server.close()
        await done.wait()


async def test_it_has_so_from_the_end_of_a_body_that_it_takes_slowly() -> None:
    async with taking(2.2) as pool:
        answer = await pool.send(UpstreamRequest("POST", b"/v1/x", [], b"x" * MANY))
        assert answer.status == 200
        answer.release()


async def test_a_catalog_that_takes_no_more_of_a_body_is_given_up() -> None:
    async with taking(0.0, all_of_it=False) as pool:
        with anyio.fail_after(5), pytest.raises(OutcomeUnknown, match="none in time"):
            await pool.send(UpstreamRequest("POST", b"/v1/x", [], b"x" * MANY))


async def test_a_connection_is_idle_from_the_end_of_its_answer_and_not_from_when_the_client_took_it() -> None:
    async with catalog() as behind:
        seen = Connections(behind)
        pool = UpstreamPool("prod", UpstreamOptions(behind.uri, 5.0, 4, max_idle=0.2), lambda: True)
        for _ in range(2):
            answer = await pool.send(UpstreamRequest("POST", b"/v1/x", [], b""))
            await anyio.sleep(0.3)
            assert [part async for part in answer.parts()] == [b"{}"]
            answer.release()
        await pool.close()
    assert seen.used == [0, 1]


async def test_of_two_idle_connections_the_one_that_was_answered_last_is_taken() -> None:
    async with catalog() as behind:
        seen = Connections(behind)
        pool = UpstreamPool("prod", UpstreamOptions(behind.uri, 5.0, 4, max_idle=5.0), lambda: True)
        slow = await pool.send(UpstreamRequest("POST", b"/v1/x", [], b""))
        await anyio.sleep(0.01)
        soon = await pool.send(UpstreamRequest("POST", b"/v1/x", [], b""))
        soon.release()
        slow.release()
        (await pool.send(UpstreamRequest("POST", b"/v1/x", [], b""))).release()
        assert seen.used == [0, 1, 1]
        await pool.close()


async def test_a_connection_whose_request_ends_after_the_pool_is_closed_is_closed() -> None:
    async with catalog() as behind:
        pool = UpstreamPool("prod", UpstreamOptions(behind.uri, 5.0, 4), lambda: True)
        answer = await pool.send(UpstreamRequest("GET", b"/v1/x", [], None))
        await pool.close()
        answer.release()
        # Sooner than one that is kept for a while.
        await until(lambda: behind.lines == 0, 3)


async def test_trouble_with_the_certificates_to_trust_takes_no_place(tmp_path: Path) -> None:
    authority = Authority()
    async with secured(Files(tmp_path, authority.sign())) as behind:
        trusted: list[ssl.SSLContext] = [authority.trust()]
        pool = UpstreamPool("prod", UpstreamOptions(f"https://localhost:{behind.port}", 5.0, 1), lambda: trusted[-1])
        request = partial(UpstreamRequest, "GET", b"/v1/x", [], None)
        answer = await pool.send(request())
        kept = trusted.pop()
        answer.release()
        with pytest.raises(IndexError):
            await pool.send(request())
        trusted.append(kept)
        (await pool.send(request())).release()
        assert behind.lines == 1
        await pool.close()


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
    async with gate(connections=1) as made:
        go = anyio.Event()

        async def wait(request: Message, line: Line) -> None:
            await go.wait()
            await OK(request, line)

        made.catalog.answer = wait
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.told, asked("/v1/x"))
            await until(lambda: made.catalog.lines == 1)
            with monkeypatch.context() as hasty:
                hasty.setattr(upstream, "CONNECT_TIMEOUT", 0.3)
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
    authority = Authority()
    request = partial(UpstreamRequest, "POST", b"/v1/x", [(b"x-user", b"\xe9")], b"body")
    async with secured(Files(tmp_path, authority.sign())) as behind:
        terms = UpstreamOptions(f"https://localhost:{behind.port}", 5.0, 4)
        unknown = UpstreamPool("prod", terms, lambda: True)
        with pytest.raises(Transient, match="expected a connection"):
            await unknown.send(request())
        trusted = authority.trust()
        pool = UpstreamPool("prod", terms, lambda: trusted)
        for _ in range(2):
            answer = await pool.send(request())
            assert (answer.status, [part async for part in answer.parts()]) == (200, [b"{}"])
            answer.release()
        assert behind.last.all(b"host") == [f"localhost:{behind.port}".encode()]
        assert behind.lines == 1
        await pool.close()
