"""Metadata files that are compressed, part by part."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
_MAX_OVERHEAD: Final = 1 << 20
"""Bytes by which a file may be longer compressed than not: what can't be compressed takes a few more in each block."""


def is_compressed(start: bytes) -> bool:
    """Whether a file that begins so is compressed: told by content, as file names differ from engine to engine."""
    return start.startswith(_GZIP)


async def decompress(parts: AsyncIterator[bytes], limit: int) -> AsyncGenerator[bytes]:
    """The parts of a file as they are, or decompressed; no more are asked for once a compressed file has ended.

    What another gzip file behind that end would hold is passed over: Iceberg writes a single one.

    Args:
        parts: none empty.
        limit: bytes of a part that comes out of decompression.

    Raises:
        zlib.error: the compression is broken, or says next to nothing in many bytes.
    """
    inflater, is_begun = None, False
    wasted = 0
    async for part in parts:
        if not is_begun and is_compressed(part):
            inflater = zlib.decompressobj(_GZIP_WINDOW)
        is_begun = True
        if inflater is None:
            yield part
            continue
        wasted += len(part)
        more = inflater.decompress(part, limit)
        while more:
            wasted -= len(more)
            yield more
            more = inflater.decompress(inflater.unconsumed_tail, limit)
        if inflater.eof:
            return
        if wasted > _MAX_OVERHEAD:
            raise zlib.error("more compressed than not")
