"""Clients that neither go on nor go away: they keep no connection to the catalog from those who would use it."""

from __future__ import annotations

import anyio
import pytest

from tests.integration.gateways import Line, Message, asked, gate
from tests.support.listener import chunk, drip
from tests.support.processes import until

NAMESPACE = "/v1/namespaces/a"
COMMIT = f"{NAMESPACE}/tables/t"


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfn.gateway.streams.STALL_LIMIT", 0.3)


async def pour(_: Message, line: Line) -> None:
    """Answer without end."""
    await line.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await line.send(chunk(b"x" * 100_000))


def begun(target: str, body: bytes) -> bytes:
    """A request whose body is longer than what is sent of it."""
    return asked(target, "Content-Length: 1000", method="POST") + body


async def test_a_body_that_does_not_begin_is_given_up() -> None:
    async with gate() as made, made.connect() as wire:
        await wire.send(begun("/v1/x", b""))
        with anyio.fail_after(5):
            assert (await wire.reply()).status == 408
        assert made.catalog.requests == []


async def test_one_that_has_to_be_read_first_is_given_up() -> None:
    async with gate() as made, made.connect() as wire:
        await wire.send(begun(f"{NAMESPACE}/tables", b"{"))
        with anyio.fail_after(5):
            assert (await wire.reply()).status == 408
        assert made.catalog.requests == []


async def test_one_that_the_catalog_has_the_begin_of_is_given_up_there_too() -> None:
    async with gate() as made, made.connect() as wire:
        made.catalog.reads = False

        async def wait(_: Message, line: Line) -> None:
            await line.ended()

        made.catalog.answer = wait
        # More than what is read before a connection is taken for it.
        await wire.send(asked(COMMIT, "Content-Length: 3000000", method="POST") + b"{" * 1_500_000)
        await until(lambda: made.catalog.lines == 1)
        await until(lambda: made.catalog.lines == 0)
        with anyio.fail_after(5):
            assert (await wire.reply()).status == 408


async def test_a_slow_body_that_goes_on_is_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfn.gateway.streams.MIN_RATE", 5)
    async with gate() as made, made.connect() as wire:
        await wire.send(asked("/v1/x", "Content-Length: 6", method="POST"))
        for _ in range(6):
            await anyio.sleep(0.1)
            await wire.send(b"x")
        assert (await wire.reply()).status == 200
        assert made.catalog.last.body == b"xxxxxx"


async def test_a_client_that_takes_nothing_of_its_answer_is_not_downloaded_for() -> None:
    async with gate() as made, made.connect() as wire:
        made.catalog.answer = pour
        await wire.send(asked("/v1/x"))
        await until(lambda: made.catalog.lines == 1)
        await until(lambda: made.catalog.lines == 0)


@pytest.mark.parametrize("length", [1_000, 3_000_000])
async def test_a_body_that_trickles_is_given_up_though_it_never_pauses(length: int) -> None:
    """Whether it is read first, or the catalog has the begin of it."""
    async with gate() as made, made.connect() as wire:
        made.catalog.reads = False

        async def wait(_: Message, line: Line) -> None:
            await line.ended()

        made.catalog.answer = wait
        await wire.send(asked(COMMIT, f"Content-Length: {length}", method="POST") + b"{" * (length // 2))
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drip, wire, b" ", 0.05)
                assert (await wire.reply()).status == 408
                tasks.cancel_scope.cancel()
        await until(lambda: made.catalog.lines == 0)


async def test_a_client_that_takes_a_byte_now_and_then_is_not_downloaded_for() -> None:
    async with gate() as made, made.connect() as wire:
        made.catalog.answer = pour
        await wire.send(asked("/v1/x"))
        await until(lambda: made.catalog.lines == 1)
        with anyio.fail_after(10):
            while made.catalog.lines:
                await wire.nothing_for(0.02)
