"""Compressed files whose bytes say nothing: no more is read of them than what comes out is worth."""

from __future__ import annotations

import gzip
import os
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest

from sfn.sfnfile.locations import decompress

PART = 1 << 20
SMALL = gzip.compress(b'{"a": [1]')
HEADER = SMALL[:10]
NAMED = HEADER[:3] + b"\x08" + HEADER[4:]


class Parts:
    """A file, part by part.

    Attributes:
        read: parts that were asked for.
    """

    def __init__(self, begun: bytes, then: bytes, times: int) -> None:
        self.read = 0
        self._begun, self._then, self._times = begun, then, times

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in (self._begun, *[self._then] * self._times):
            self.read += 1
            yield part


async def body_of(parts: Parts) -> bytes:
    return b"".join([part async for part in decompress(aiter(parts), PART)])


@pytest.mark.parametrize("more", [bytes(PART), SMALL * (PART // len(SMALL))], ids=["zeros", "members"])
async def test_what_follows_the_end_is_not_read(more: bytes) -> None:
    parts = Parts(SMALL + more, more, 64)
    tracemalloc.start()
    try:
        assert await body_of(parts) == gzip.decompress(SMALL)
        assert tracemalloc.get_traced_memory()[1] < 4 * PART
    finally:
        tracemalloc.stop()
    assert parts.read == 1


@pytest.mark.parametrize(
    ("begun", "more"),
    [(HEADER, b"\0\0\0\xff\xff" * (PART // 5)), (NAMED, b"x" * PART)],
    ids=["empty blocks", "a name without end"],
)
async def test_a_file_that_makes_nothing_of_much_is_broken(begun: bytes, more: bytes) -> None:
    parts = Parts(begun, more, 64)
    with pytest.raises(zlib.error, match="more compressed than not"):
        await body_of(parts)
    assert parts.read < 4


@pytest.mark.parametrize("level", [0, 1, 9])
async def test_what_nothing_can_compress_is_read_all_the_same(level: int) -> None:
    """It takes more bytes compressed than not."""
    body = os.urandom(24 * PART)
    file = gzip.compress(body, level)
    assert len(file) > len(body)
    packed = [file[at : at + PART] for at in range(0, len(file), PART)]

    async def parts() -> AsyncIterator[bytes]:
        for part in packed:
            yield part

    assert b"".join([part async for part in decompress(parts(), PART)]) == body
