"""A facade behind the real server, byte for byte."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import psutil
import pytest

from sfn.app.endpoints import FacadeFolders
from sfn.app.standalone import build_standalone
from tests.integration.listening import Open, answer, chunk, listening, request
from tests.unit.faced import HOME, shown

MIB = 1 << 20
ORDERS = f"/iceberg{HOME}/sales/tables/orders"


def get(path: str = ORDERS, *fields: str, method: str = "GET", body: bytes | None = None) -> bytes:
    return request(*fields, method=method, path=path, body=body, token=None)


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "w"
    shown(root / "sales" / "orders")
    return root


@pytest.fixture(name="connect")
async def fixture_connect(root: Path) -> AsyncIterator[Open]:
    async with listening(build_standalone(FacadeFolders([f"file://{root}"])).application) as connect:
        yield connect


async def test_one_connection_serves_reads_and_refusals_with_their_bodies_unread(connect: Open) -> None:
    async with connect() as wire:
        for method, body, status in (
            ("GET", None, 200),
            ("POST", b"{}", 403),
            ("HEAD", None, 204),
            ("DELETE", b"", 405),
            ("GET", b"x" * 100_000, 200),
            ("PUT", b"x" * 500_000, 405),
            ("GET", None, 200),
        ):
            await wire.send(get(method=method, body=body))
            reply = await wire.reply(headless=method == "HEAD")
            assert (method, reply.status, "connection" in reply.headers) == (method, status, False)
        await wire.send(get(ORDERS, "Transfer-Encoding: chunked", method="POST"), chunk(b"{}"), chunk(b""))
        assert (await wire.reply()).status == 403
        await wire.send(get(f"{ORDERS}x", method="HEAD"), get())
        assert (await wire.reply(headless=True)).status == 404
        assert (await wire.reply()).status == 200


async def test_who_sends_on_and_on_is_answered_and_let_go(connect: Open) -> None:
    async with connect() as wire:
        await wire.send(get(ORDERS, "Content-Length: 99999999", method="POST"), b"x" * (MIB + 1))
        reply = await wire.reply()
        assert (reply.status, reply.headers["connection"]) == (403, "close")


async def test_who_waits_to_be_told_to_go_on_is(connect: Open) -> None:
    async with connect() as wire:
        await wire.send(get(ORDERS, "Expect: 100-continue", "Content-Length: 2", method="POST"))
        assert (await wire.head()).startswith(b"HTTP/1.1 100")
        await wire.send(b"{}")
        assert (await wire.reply()).status == 403


@pytest.mark.parametrize(
    "path",
    [
        f"{ORDERS}%00",
        f"{ORDERS}/../../../x",
        "/iceberg/v1/sfn/namespaces/%2E%2E/tables/%2E%2E",
        "/iceberg/v1/config?warehouse=" + "x" * 60_000,
        "/iceberg/v1/sfn/namespaces/dir/tables/%2F" + "a" * 60_000,
        "/iceberg//v1/config",
        "/iceberg/v1/config;x",
        "/iceberg/v1/sfn/namespaces/" + "a%1F" * 15_000 + "/tables/t",
    ],
)
async def test_odd_paths_are_refused_in_iceberg_s_shape(connect: Open, path: str) -> None:
    reply = await answer(connect, get(path))
    assert reply.status in {400, 403, 404}
    assert reply.json["error"]["code"] == reply.status


async def test_bytes_that_are_no_ascii_are_no_request(connect: Open) -> None:
    async with connect() as wire:
        await wire.send(get().replace(b"orders", b"\xc3\xa4"))
        assert (await wire.reply()).status == 400


async def test_slow_readers_of_a_large_table_cost_little(root: Path, connect: Open) -> None:
    place = shown(root / "large", "sales.large")
    large = 24 * MIB
    place.metadata(location=f"file:{place.path}", x="x" * large)
    path = ORDERS.replace("orders", "large")
    assert len((await answer(connect, get(path))).content) > large
    process = psutil.Process()
    before = process.memory_info().rss
    async with anyio.create_task_group() as tasks:

        async def take() -> None:
            async with connect() as wire:
                await wire.send(get(path))
                await wire.head()
                await anyio.sleep_forever()

        for _ in range(10):
            tasks.start_soon(take)
        await anyio.sleep(0.5)
        more = process.memory_info().rss - before
        tasks.cancel_scope.cancel()
    print("ten slow readers:", more // MIB, "MiB")
    # Each with a copy of its own would be 240.
    assert more < 3 * large
