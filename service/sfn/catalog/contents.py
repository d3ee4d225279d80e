"""Metadata files of any size, compressed or not, read part by part: the event loop goes on meanwhile."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, TypeAlias

from anyio import to_thread

from sfn.catalog.metadata import UnreadableDocument, extract_metadata, read_metadata
from sfn.domain.identifiers import Table
from sfn.sfnfile.locations import decompress, is_compressed

ReadRange: TypeAlias = Callable[[str, int, int], Awaitable[bytes | None]]
"""As `sfn.store.ObjectStore.read_range`: of a canonical location the bytes from one place on, so many at most."""

PART_BYTES: Final = 2**20
"""Bytes that are read, inflated and decoded at a time: half a millisecond."""
MAX_JSON_BYTES: Final = 2**30
"""Bytes of JSON that are looked through: what inflates to more is no metadata."""


async def read_metadata_at(read_range: ReadRange, location: str, metadata_location: str) -> Table | None:
    """The table that a metadata file describes; None where there is no file.

    Args:
        read_range: reads.
        location: the file's canonical location.
        metadata_location: the same as it was told.

    Raises:
        Unintelligible: it is no metadata file.
        Trouble: of whoever reads.
    """
    first = await read_range(location, 0, PART_BYTES)
    if first is None:
        return None
    if len(first) < PART_BYTES and not is_compressed(first):
        return read_metadata(first, metadata_location)
    async with aclosing(_parts(read_range, location, first)) as parts, aclosing(_json(parts)) as json:
        cut = await extract_metadata(await anext(json, b""), json)
    if len(cut) <= PART_BYTES:
        return read_metadata(cut, metadata_location)
    return await to_thread.run_sync(read_metadata, cut, metadata_location)


async def _parts(read_range: ReadRange, location: str, first: bytes) -> AsyncGenerator[bytes]:
    more: bytes | None = first
    start = 0
    while more:
        yield more
        start += len(more)
        more = await read_range(location, start, PART_BYTES) if len(more) == PART_BYTES else None


async def _json(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The parts, decompressed; raises Unintelligible where that can't be done or does not end."""
    length = 0
    async with aclosing(decompress(parts, PART_BYTES)) as pieces:
        try:
            async for piece in pieces:
                length += len(piece)
                if length > MAX_JSON_BYTES:
                    raise UnreadableDocument(f"more than {MAX_JSON_BYTES} bytes")
                yield piece
        except zlib.error:
            raise UnreadableDocument("broken compression") from None
