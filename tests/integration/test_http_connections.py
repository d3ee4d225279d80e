"""Connections over TCP and TLS."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
from structlog.testing import capture_logs

from sfn.concurrency import WatchedFiles
from sfn.http.server import HEAD_LIMIT, Certificate, HttpServer, LoggedHandshake, ServerConnection
from sfn.telemetry.logs import LogThrottle
from tests.support.certificates import Authority, Files, Pair
from tests.support.listener import (
    CHUNKED,
    EVENT,
    TOKEN,
    Open,
    Service,
    Wire,
    answer,
    assert_problem,
    chunk,
    connected,
    listening,
    request,
)
from tests.support.processes import until
from tests.support.table_directory import replaced

# TCP.


H2C = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
)
WEBSOCKET = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAA")
PLAIN = request(body=EVENT.replace(b"e1", b"e2"))
UNKNOWN = request(body=EVENT, token="of nobody")  # noqa: S106 - that is the point
PATIENCE = 0.3
IDLE = 1


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerConnection, "head_timeout", PATIENCE)


@pytest.fixture
async def briefly(service: Service, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """A server that keeps no connection for long."""
    monkeypatch.setattr(ServerConnection, "keep_alive_timeout", IDLE)
    async with listening(service.application()) as connect:
        yield connect


@pytest.mark.parametrize("offer", [H2C, WEBSOCKET])
@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_an_offer_of_another_protocol_is_ignored(
    service: Service, connect: Open, offer: tuple[str, ...], step: int
) -> None:
    sent = request(*offer, body=EVENT) + PLAIN
    with capture_logs() as logs:
        async with connect() as wire:
            for start in range(0, len(sent), step):
                await wire.send(sent[start : start + step])
            assert [(await wire.reply()).json["accepted"] for _ in range(2)] == [1, 1]
    assert [hint.body for hint in service.inbox.taken] == [EVENT, EVENT.replace(b"e1", b"e2")]
    assert logs == []


async def test_every_request_may_offer_and_a_body_in_chunks_too(service: Service, connect: Open) -> None:
    in_chunks = request(*H2C, CHUNKED) + chunk(EVENT[:9]) + chunk(EVENT[9:]) + b"0\r\n\r\n"
    async with connect() as wire:
        await wire.send(in_chunks, request(*H2C, method="GET", path="/livez", token=None), PLAIN, in_chunks)
        assert [(await wire.reply()).status for _ in range(4)] == [202, 200, 202, 202]
    assert service.inbox.taken[0].body == EVENT


async def test_what_follows_an_offer_is_no_request_of_its_own(connect: Open) -> None:
    inner = request(method="GET", path="/readyz", token=None)
    async with connect() as wire:
        await wire.send(request(*H2C, body=inner, token=None))
        assert_problem(await wire.reply(), 401)
        assert await wire.nothing_for(0.1)
        await wire.send(PLAIN)
        assert (await wire.reply()).status == 202


@pytest.mark.parametrize("offer", ["", "Upgrade: h2c"])
async def test_what_follows_the_last_request_does_not_cost_its_response(connect: Open, offer: str) -> None:
    fields = [field for field in ("Connection: close, Upgrade", offer) if field]
    async with connect() as wire:
        await wire.send(request(*fields, body=EVENT), b"GARBAGE")
        assert (await wire.reply()).status == 202
        assert await wire.ended()


async def test_no_tunnels(connect: Open) -> None:
    async with connect() as wire:
        await wire.send(b"CONNECT sfn:80 HTTP/1.1\r\nHost: sfn\r\n\r\n" + PLAIN)
        assert_problem(await wire.reply(), 400)
        assert await wire.ended()


async def test_endless_header_fields_are_refused(service: Service, connect: Open) -> None:
    for field in ("X: " + "x" * HEAD_LIMIT, "\r\n".join(["X: y"] * (HEAD_LIMIT // 6))):
        async with connect() as wire:
            await wire.send(request(field)[:-4])
            assert_problem(await wire.reply(), 431)
            assert await wire.ended()
    assert service.inbox.taken == []


@pytest.mark.parametrize("more", [b"\0", request("X: " + "x" * HEAD_LIMIT)[:-4]])
async def test_refusal_costs_no_earlier_request_its_answer(service: Service, connect: Open, more: bytes) -> None:
    service.inbox.gate = anyio.Event()
    async with connect() as wire:
        await wire.send(PLAIN, request(body=EVENT))
        await service.inbox.entered.wait()
        await wire.send(more)
        assert await wire.nothing_for(0.1)
        service.inbox.gate.set()
        assert [(await wire.reply()).status for _ in range(2)] == [202, 202]
        assert await wire.ended()


async def test_endless_trailer_fields_are_refused(service: Service, connect: Open) -> None:
    async with connect() as wire:
        await wire.send(request(CHUNKED), chunk(EVENT), b"0\r\n")
        await anyio.sleep(0.05)
        await wire.send(b"X: ", b"x" * HEAD_LIMIT)
        assert_problem(await wire.reply(), 431)
        assert await wire.ended()
    assert service.inbox.taken == []


MALFORMED = {
    "size": (request(CHUNKED), b"zz\r\n", "Invalid character in chunk size"),
    "longer": (request(CHUNKED), b"1\r\nab\r\n", "Expected LF after chunk data"),
    "coding": (request("Transfer-Encoding: xchunked"), b"", "Request has invalid `Transfer-Encoding`"),
    "length": (request("Content-Length: 1", "Content-Length: 1"), b"", "Duplicate Content-Length"),
    "target": (request(path="http://["), b"", "something else"),
}


@pytest.mark.parametrize("pause", [0, 0.05])
@pytest.mark.parametrize(("head", "body", "why"), MALFORMED.values(), ids=MALFORMED)
async def test_malformed_request_is_answered_with_a_reason(
    connect: Open, head: bytes, body: bytes, why: str, pause: float
) -> None:
    async with connect() as wire:
        for part in [head, body] if pause else [head + body]:
            await wire.send(part)
            await anyio.sleep(pause)
        reply = await wire.reply()
        assert_problem(reply, 400)
        assert reply.json["detail"] == f"expected a request in HTTP/1.1, found: {why}"
        assert await wire.ended()


async def test_malformed_body_in_a_pipeline_is_answered_last(service: Service, connect: Open) -> None:
    service.inbox.gate = anyio.Event()
    async with connect() as wire:
        await wire.send(PLAIN, request(CHUNKED), b"zz\r\n")
        await service.inbox.entered.wait()
        service.inbox.gate.set()
        assert (await wire.reply()).status == 202
        assert_problem(await wire.reply(), 400)
        assert await wire.ended()


@pytest.mark.parametrize(("rest", "statuses"), [(b"", [401]), (b"0\r\n\r\n", [401, 400])], ids=["body", "request"])
async def test_each_request_gets_one_response(connect: Open, rest: bytes, statuses: list[int]) -> None:
    async with connect() as wire:
        await wire.send(request(CHUNKED, token=None))
        assert_problem(await wire.reply(), 401)
        await wire.send(rest, b"zz\r\n")
        for status in statuses[1:]:
            assert_problem(await wire.reply(), status)
        assert await wire.ended()


async def test_nothing_is_read_while_requests_are_queued(connect: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    queued, received = [], ServerConnection.data_received

    def data_received(connection: ServerConnection, data: bytes) -> None:
        queued.append(len(connection.pipeline))
        received(connection, data)

    monkeypatch.setattr(ServerConnection, "data_received", data_received)
    async with connect() as wire, anyio.create_task_group() as tasks:
        tasks.start_soon(wire.send, UNKNOWN * 3_000)
        assert {(await wire.reply()).status for _ in range(3_000)} == {401}
        await wire.send(PLAIN)
        assert (await wire.reply()).status == 202
    assert len(queued) > 2
    assert set(queued) == {0}


async def test_client_that_reads_nothing_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerConnection, "write_timeout", PATIENCE)
    ended, size = anyio.Event(), 16 << 20

    async def respond(_scope: object, _receive: object, send: Any) -> None:  # noqa: ANN401 - ASGI
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for more in (True, False):
            await send({"type": "http.response.body", "body": bytes(size), "more_body": more})
        ended.set()

    async with listening(respond) as connect, connect() as wire:
        await wire.send(request(method="GET"))
        with anyio.fail_after(10):
            await ended.wait()
        with suppress(anyio.BrokenResourceError):
            assert await wire.skip() < size


@pytest.mark.parametrize("sent", [request(path="/", body=EVENT), request(CHUNKED)], ids=["no events", "open body"])
async def test_other_client_that_closes_its_side_counts_as_disconnected(sent: bytes) -> None:
    async def wait(_scope: object, receive: Any, _send: object) -> None:  # noqa: ANN401 - ASGI
        while (await receive())["type"] == "http.request":
            pass

    async with listening(wait) as connect, await anyio.connect_tcp("127.0.0.1", connect.port) as stream:
        await stream.send(sent)
        await anyio.sleep(0.05)
        await stream.send_eof()
        assert await Wire(stream).ended()


@pytest.mark.parametrize("path", ["/v1/events", "/v1/events?a"], ids=["fast path", "ASGI"])
async def test_sender_that_closes_its_side_gets_the_response(service: Service, path: str) -> None:
    service.inbox.gate = anyio.Event()
    async with (
        listening(service.application()) as connect,
        await anyio.connect_tcp("127.0.0.1", connect.port) as stream,
    ):
        await stream.send(request(path=path, body=EVENT))
        await service.inbox.entered.wait()
        await stream.send_eof()
        wire = Wire(stream)
        assert await wire.nothing_for(0.05)
        service.inbox.gate.set()
        reply = await wire.reply()
        assert (reply.status, reply.headers["connection"]) == (202, "close")
        assert await wire.ended()


async def test_a_body_in_the_smallest_chunks_is_no_header(connect: Open) -> None:
    body = EVENT.ljust(4_096)
    sent = request(CHUNKED) + b"".join(b"0001;%b\r\n%c\r\n" % (b"x" * 99, byte) for byte in body) + b"0\r\n\r\n"
    assert len(sent) > 4 * HEAD_LIMIT
    assert (await answer(connect, sent)).status == 202


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("head", [b"", b"P", request()[:-4], UNKNOWN + b"P"])
async def test_a_client_that_says_no_more_is_cut_off(connect: Open, head: bytes) -> None:
    async with connect() as wire:
        await wire.send(head)
        if head.endswith(b"P") and len(head) > 1:
            assert_problem(await wire.reply(), 401)
        assert_problem(await wire.reply(), 408)
        assert await wire.ended()


@pytest.mark.usefixtures("hasty")
async def test_who_was_answered_may_take_a_while_until_the_next_request(connect: Open) -> None:
    async with connect() as wire:
        for _ in range(2):
            await wire.send(PLAIN)
            assert (await wire.reply()).status == 202
            assert await wire.nothing_for(3 * PATIENCE)


@pytest.mark.usefixtures("hasty")
async def test_who_waits_for_an_answer_is_not(service: Service, connect: Open) -> None:
    service.inbox.gate = anyio.Event()
    async with connect() as wire:
        await wire.send(request(body=EVENT))
        assert await wire.nothing_for(2 * PATIENCE)
        service.inbox.gate.set()
        assert (await wire.reply()).status == 202


@pytest.mark.parametrize("more", [b"\r\n", b"\n", b"\r\n" * 9])
async def test_empty_lines_keep_no_connection(briefly: Open, more: bytes) -> None:
    async with briefly() as wire:
        await wire.send(PLAIN)
        assert (await wire.reply()).status == 202
        await wire.send(more)
        assert await wire.ended()


@pytest.mark.parametrize("fields", [("Content-Length: 1000",), (CHUNKED,)])
async def test_a_body_that_nobody_waits_for_keeps_no_connection(briefly: Open, fields: tuple[str, ...]) -> None:
    async with briefly() as wire:
        await wire.send(request(*fields, token=None))
        assert_problem(await wire.reply(), 401)
        await wire.send(b"5")
        assert await wire.ended()


async def test_who_begins_a_request_may_take_longer_than_between_two(service: Service, briefly: Open) -> None:
    async with briefly() as wire:
        await wire.send(PLAIN)
        assert (await wire.reply()).status == 202
        service.inbox.gate = anyio.Event()
        sent = request(body=EVENT)
        await wire.send(sent[:9])
        assert await wire.nothing_for(1.5 * IDLE)
        await wire.send(sent[9:])
        assert await wire.nothing_for(1.5 * IDLE)
        service.inbox.gate.set()
        assert (await wire.reply()).status == 202


async def test_who_began_before_the_last_answer_waits_for_the_next_one_as_long(service: Service, briefly: Open) -> None:
    service.inbox.gate = anyio.Event()
    sent = request(body=EVENT)
    async with briefly() as wire:
        await wire.send(PLAIN, sent[:9])
        await service.inbox.entered.wait()
        service.inbox.gate.set()
        assert (await wire.reply()).status == 202
        service.inbox.gate = anyio.Event()
        await wire.send(sent[9:])
        assert await wire.nothing_for(1.5 * IDLE)
        service.inbox.gate.set()
        assert (await wire.reply()).status == 202


@pytest.fixture
async def crowded(service: Service) -> AsyncIterator[Open]:
    """A server that takes three connections at a time."""
    async with listening(service.application(), most=3) as connect:
        yield connect


async def is_closed(wire: Wire) -> bool:
    """Whether the server has closed a connection, in whatever way."""
    try:
        return await wire.ended()
    except anyio.BrokenResourceError:
        return True


async def test_of_too_many_connections_the_oldest_that_never_asked_is_closed(crowded: Open) -> None:
    async with crowded() as kept, crowded() as first, crowded() as second:
        await kept.send(PLAIN)
        assert (await kept.reply()).status == 202
        with capture_logs() as logs:
            async with crowded() as third:
                assert await is_closed(first)
                async with crowded():
                    assert await is_closed(second)
                    await third.send(PLAIN)
                    assert (await third.reply()).status == 202
        assert [record["event"] for record in logs] == ["idle connection closed: too many connections"]
        await kept.send(PLAIN)
        assert (await kept.reply()).status == 202


async def test_a_request_in_hand_is_never_closed_for_a_new_connection(service: Service, crowded: Open) -> None:
    service.inbox.gate = anyio.Event()
    async with crowded() as first, crowded() as second, crowded() as third:
        for wire in (first, second, third):
            await wire.send(PLAIN)
        await service.inbox.entered.wait()
        async with crowded() as late:
            assert await is_closed(late)
        service.inbox.gate.set()
        assert {(await wire.reply()).status for wire in (first, second, third)} == {202}


async def test_where_all_have_asked_the_one_that_is_idle_for_longest_is_closed(crowded: Open) -> None:
    async with crowded() as first, crowded() as second, crowded() as third:
        for wire in (first, second, third, first):
            await wire.send(PLAIN)
            assert (await wire.reply()).status == 202
        async with crowded() as new:
            assert await is_closed(second)
            for wire in (first, third, new):
                await wire.send(PLAIN)
                assert (await wire.reply()).status == 202


async def test_a_server_that_is_cancelled_closes_its_listening_sockets(service: Service) -> None:
    # An event loop of uvloop does not close while one is open.
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = HttpServer(service.application())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(server.serve, sockets=[listener]))
        await server.up.wait()
        tasks.cancel_scope.cancel()
    assert server.servers
    assert not any(listening.is_serving() for listening in server.servers)
    with pytest.raises(OSError, match="All connection attempts failed"):
        await anyio.connect_tcp("127.0.0.1", port)


@pytest.mark.parametrize("turns", range(1, 7))
async def test_stop_is_noticed_before_the_next_tick_and_leaves_no_request_unanswered(
    service: Service, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    monkeypatch.setattr("sfn.http.server._TICK", 3_600)
    with anyio.fail_after(10):
        async with listening(service.application()) as connect:
            assert (await answer(connect, PLAIN)).status == 202
            client = socket.create_connection(("127.0.0.1", connect.port), 5.0)
            client.sendall(PLAIN)
            for _ in range(turns):
                await anyio.sleep(0)  # noqa: ASYNC115 - one iteration of the event loop, exactly
        with client:
            assert (await anyio.to_thread.run_sync(client.recv, 12)).endswith(b"202")


# TLS.


MANY = 4 << 20
BOTH_LOOPS = [
    pytest.param(("asyncio", {"use_uvloop": on}), id=name) for name, on in (("asyncio", False), ("uvloop", True))
]


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture
def old(authority: Authority) -> Pair:
    return authority.sign()


@pytest.fixture
def files(tmp_path: Path, old: Pair, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(WatchedFiles, "interval", 0.02)
    return Files(tmp_path, old)


@pytest.fixture
def tls_service() -> Service:
    return Service(limit=MANY)


@pytest.fixture
async def tls_connect(tls_service: Service, files: Files, authority: Authority) -> AsyncIterator[Open]:
    async with listening(tls_service.application(), Certificate(files.chain, files.key), authority.trust()) as connect:
        yield connect


async def shown(connect: Open) -> bytes | None:
    """The certificate that a new connection is shown."""
    async with connect() as wire:
        return wire.certificate


async def test_requests_of_one_connection_are_answered_one_after_the_other(
    tls_service: Service, tls_connect: Open, authority: Authority
) -> None:
    url = f"https://127.0.0.1:{tls_connect.port}/v1/events"
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(verify=authority.trust(), headers=headers, limits=limits, trust_env=False) as client:
        for body, status in ((EVENT, 202), (EVENT.ljust(MANY), 202), (EVENT.ljust(MANY + 1), 413), (b"[]", 202)):
            assert (await client.post(url, content=body)).status_code == status
        assert (await client.post(url, headers={"Authorization": ""}, content=EVENT)).status_code == 401
    assert len(tls_service.inbox.taken) == 3


async def test_a_renewed_certificate_is_shown_to_new_connections_and_open_ones_live_on(
    tls_connect: Open, files: Files, authority: Authority, old: Pair
) -> None:
    new = authority.sign()
    async with tls_connect() as wire:
        with capture_logs() as logs:
            files.renew(new)
            await until(lambda: [entry for entry in logs if entry["event"] == "certificate and key reloaded"])
        assert await shown(tls_connect) == new.shown
        assert wire.certificate == old.shown
        await wire.send(request(body=EVENT))
        assert (await wire.reply()).status == 202


def distrust(port: int) -> None:
    """Connect as a client that does not trust the certificate and says so; asyncio's clients just hang up."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as clear,
        pytest.raises(ssl.SSLCertVerificationError),
        Authority().trust().wrap_socket(clear, server_hostname="localhost"),
    ):
        pass


async def test_a_handshake_that_fails_is_logged_with_its_reason(
    tls_connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoggedHandshake, "throttle", LogThrottle())
    with capture_logs() as logs:
        async with await anyio.connect_tcp("127.0.0.1", tls_connect.port) as clear:
            await clear.send(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: logs)
        await anyio.to_thread.run_sync(distrust, tls_connect.port)
        await until(lambda: len(logs) > 1)
    told = [(entry["event"], entry["why"]) for entry in logs]
    assert told == [("TLS handshake failed", "http request"), ("TLS handshake failed", "tlsv1 alert unknown ca")]


async def test_half_a_renewal_is_logged_and_costs_no_connection(
    tls_connect: Open, files: Files, authority: Authority, old: Pair
) -> None:
    new = authority.sign()
    with capture_logs() as logs:
        replaced(files.chain, new.chain)
        await until(lambda: logs)
        await anyio.sleep(0.1)
        assert await shown(tls_connect) == old.shown
        replaced(files.key, new.key)
        await until(lambda: len(logs) > 1)
        assert await shown(tls_connect) == new.shown
    assert [entry["event"] for entry in logs] == ["certificate and key not reloaded", "certificate and key reloaded"]


async def test_a_file_system_that_hangs_holds_up_nobody(
    tls_service: Service, files: Files, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WatchedFiles, "timeout", 0.2)
    new, hanging = authority.sign(), files.key.with_suffix(".pipe")
    os.mkfifo(hanging)
    async with listening(tls_service.application(), Certificate(files.chain, files.key), authority.trust()) as connect:
        with capture_logs() as logs:
            # Nobody writes to the pipe: opening it to read does not return.
            beside = files.key.with_suffix(".beside")
            beside.hardlink_to(hanging)
            beside.replace(files.key)
            await until(lambda: logs)
            async with connect() as wire:
                await wire.send(request(body=EVENT))
                assert (await wire.reply()).status == 202
            files.renew(new)
            await anyio.sleep(0.3)
            os.close(os.open(hanging, os.O_RDWR))
            await until(lambda: "certificate and key reloaded" in [entry["event"] for entry in logs])
        assert "no answer of the file system within 0.2 s" in logs[0]["error"]
        assert await shown(connect) == new.shown


async def test_who_speaks_http_without_tls_is_let_go(tls_service: Service, tls_connect: Open) -> None:
    async with connected(tls_connect.port) as plain:
        await plain.send(request(body=EVENT))
        assert b"202" not in await plain.rest()
    assert tls_service.inbox.taken == []
    async with tls_connect() as wire:
        await wire.send(request(body=EVENT))
        assert (await wire.reply()).status == 202


async def test_who_does_not_finish_the_handshake_is_let_go(
    tls_service: Service, files: Files, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpServer, "handshake_timeout", 0.2)
    async with listening(tls_service.application(), Certificate(files.chain, files.key), authority.trust()) as connect:
        for sent in (b"", b"\x16\x03\x01"):
            async with connected(connect.port) as silent:
                await silent.send(sent)
                assert await silent.rest() == b""


async def test_who_is_slow_after_the_handshake_is_told_and_let_go(
    tls_connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerConnection, "head_timeout", 0.3)
    async with tls_connect() as wire:
        await wire.send(request()[:-4])
        assert_problem(await wire.reply(), 408)
        assert await wire.ended()


async def test_endless_header_fields_over_tls_are_refused(tls_connect: Open) -> None:
    async with tls_connect() as wire:
        await wire.send(request("X: " + "x" * HEAD_LIMIT)[:-4])
        assert_problem(await wire.reply(), 431)
        assert await wire.ended()


async def test_clients_that_read_nothing_while_they_are_idle_hold_up_no_stop(
    tls_service: Service, files: Files, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpServer, "shutdown_timeout", 0.1)
    listener = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(tls_service.application(), Certificate(files.chain, files.key))
    server.config.timeout_graceful_shutdown = 60
    ended = anyio.Event()

    async def serve() -> None:
        await server.serve(sockets=[listener])
        ended.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            async with connected(listener.getsockname()[1], authority.trust()) as wire:
                await wire.send(request(body=EVENT))
                assert (await wire.reply()).status == 202
                server.stop()
                await ended.wait()
