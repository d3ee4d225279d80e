"""The listener over TLS: as without it, and with a certificate that is renewed while it runs."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest
from structlog.testing import capture_logs

from sfn.concurrency import WatchedFiles
from sfn.http.server import HEAD_LIMIT, Certificate, HttpServer, LoggedHandshake, ServerConnection
from sfn.telemetry.logs import LogThrottle
from tests.integration.listening import EVENT, TOKEN, Open, Service, assert_problem, connected, listening, request
from tests.integration.waiting import until
from tests.unit.certificates import Authority, Files, Pair, replace

MANY = 4 << 20
BOTH_LOOPS = [
    pytest.param(("asyncio", {"use_uvloop": on}), id=name) for name, on in (("asyncio", False), ("uvloop", True))
]


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def old(authority: Authority) -> Pair:
    return authority.sign()


@pytest.fixture
def files(tmp_path: Path, old: Pair, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(WatchedFiles, "interval", 0.02)
    return Files(tmp_path, old)


@pytest.fixture
def service() -> Service:
    return Service(limit=MANY)


@pytest.fixture
async def connect(service: Service, files: Files, authority: Authority) -> AsyncIterator[Open]:
    async with listening(service.application(), Certificate(files.chain, files.key), authority.trust()) as connect:
        yield connect


async def shown(connect: Open) -> bytes | None:
    """The certificate that a new connection is shown."""
    async with connect() as wire:
        return wire.certificate


async def test_requests_of_one_connection_are_answered_one_after_the_other(
    service: Service, connect: Open, authority: Authority
) -> None:
    url = f"https://127.0.0.1:{connect.port}/v1/events"
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(verify=authority.trust(), headers=headers, limits=limits, trust_env=False) as client:
        for body, status in ((EVENT, 202), (EVENT.ljust(MANY), 202), (EVENT.ljust(MANY + 1), 413), (b"[]", 202)):
            assert (await client.post(url, content=body)).status_code == status
        assert (await client.post(url, headers={"Authorization": ""}, content=EVENT)).status_code == 401
    assert len(service.inbox.taken) == 3


async def test_a_renewed_certificate_is_shown_to_new_connections_and_open_ones_live_on(
    connect: Open, files: Files, authority: Authority, old: Pair
) -> None:
    new = authority.sign()
    async with connect() as wire:
        with capture_logs() as logs:
            files.renew(new)
            await until(lambda: [entry for entry in logs if entry["event"] == "certificate and key read"])
        assert await shown(connect) == new.shown
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


async def test_a_handshake_that_fails_is_logged_with_its_reason(connect: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoggedHandshake, "throttle", LogThrottle())
    with capture_logs() as logs:
        async with await anyio.connect_tcp("127.0.0.1", connect.port) as clear:
            await clear.send(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: logs)
        await anyio.to_thread.run_sync(distrust, connect.port)
        await until(lambda: len(logs) > 1)
    told = [(entry["event"], entry["why"]) for entry in logs]
    assert told == [("TLS handshake failed", "http request"), ("TLS handshake failed", "tlsv1 alert unknown ca")]


async def test_half_a_renewal_is_logged_and_costs_no_connection(
    connect: Open, files: Files, authority: Authority, old: Pair
) -> None:
    new = authority.sign()
    with capture_logs() as logs:
        replace(files.chain, new.chain)
        await until(lambda: logs)
        await anyio.sleep(0.1)
        assert await shown(connect) == old.shown
        replace(files.key, new.key)
        await until(lambda: len(logs) > 1)
        assert await shown(connect) == new.shown
    assert [entry["event"] for entry in logs] == ["certificate and key kept", "certificate and key read"]


async def test_a_file_system_that_hangs_holds_up_nobody(
    service: Service, files: Files, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WatchedFiles, "timeout", 0.2)
    new, hanging = authority.sign(), files.key.with_suffix(".pipe")
    os.mkfifo(hanging)
    async with listening(service.application(), Certificate(files.chain, files.key), authority.trust()) as connect:
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
            await until(lambda: "certificate and key read" in [entry["event"] for entry in logs])
        assert "no answer of the file system within 0.2 s" in logs[0]["error"]
        assert await shown(connect) == new.shown


async def test_who_speaks_http_without_tls_is_let_go(service: Service, connect: Open) -> None:
    async with connected(connect.port) as plain:
        await plain.send(request(body=EVENT))
        assert b"202" not in await plain.rest()
    assert service.inbox.taken == []
    async with connect() as wire:
        await wire.send(request(body=EVENT))
        assert (await wire.reply()).status == 202


async def test_who_does_not_finish_the_handshake_is_let_go(
    service: Service, files: Files, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpServer, "handshake_timeout", 0.2)
    async with listening(service.application(), Certificate(files.chain, files.key), authority.trust()) as connect:
        for sent in (b"", b"\x16\x03\x01"):
            async with connected(connect.port) as silent:
                await silent.send(sent)
                assert await silent.rest() == b""


async def test_who_is_slow_after_the_handshake_is_told_and_let_go(
    connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerConnection, "head_timeout", 0.3)
    async with connect() as wire:
        await wire.send(request()[:-4])
        assert_problem(await wire.reply(), 408)
        assert await wire.ended()


async def test_endless_header_fields_are_refused(connect: Open) -> None:
    async with connect() as wire:
        await wire.send(request("X: " + "x" * HEAD_LIMIT)[:-4])
        assert_problem(await wire.reply(), 431)
        assert await wire.ended()


async def test_clients_that_read_nothing_while_they_are_idle_hold_up_no_stop(
    service: Service, files: Files, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpServer, "shutdown_timeout", 0.1)
    listener = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(service.application(), Certificate(files.chain, files.key))
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
                server.should_exit = True
                await ended.wait()
