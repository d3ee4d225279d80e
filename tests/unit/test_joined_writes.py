"""What is written in one turn of the event loop leaves by one system call."""

from __future__ import annotations

import asyncio

import pytest
from typing_extensions import override

from sfn.http.server import MAX_BUFFERED, BufferedTransport

BIG = b"x" * MAX_BUFFERED


class Wire(asyncio.Transport):
    """A transport that notes what it is given."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 7)})
        self.written: list[bytes] = []
        self.closed_after = -1

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    @override
    def close(self) -> None:
        self.closed_after = len(self.written)

    @override
    def is_closing(self) -> bool:
        return self.closed_after >= 0


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
async def joined(wire: Wire) -> BufferedTransport:
    return BufferedTransport(wire, asyncio.get_running_loop())


async def test_head_and_body_are_one(wire: Wire, joined: BufferedTransport) -> None:
    for part in (b"head ", b"body"):
        joined.write(part)
    assert wire.written == []
    await asyncio.sleep(0)
    joined.write(b"another")
    await asyncio.sleep(0)
    assert wire.written == [b"head body", b"another"]


async def test_much_is_not_held_back(wire: Wire, joined: BufferedTransport) -> None:
    for part in (b"head ", BIG, BIG[1:]):
        joined.write(part)
    assert wire.written == [b"head " + BIG]
    await asyncio.sleep(0)
    assert wire.written == [b"head " + BIG, BIG[1:]]


async def test_what_was_written_leaves_before_the_end(wire: Wire, joined: BufferedTransport) -> None:
    joined.write(b"the last")
    joined.close()
    await asyncio.sleep(0)
    assert (wire.written, wire.closed_after) == ([b"the last"], 1)
    assert joined.is_closing()


async def test_all_else_is_the_transports_own(joined: BufferedTransport) -> None:
    assert joined.get_extra_info("peername") == ("192.0.2.1", 7)
