"""Metadata files of any size, compressed or not, read part by part: the event loop goes on meanwhile."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, TypeAlias

from anyio import to_thread

from sfn.catalog.metadata import Unintelligible, cut_metadata, read_metadata
from sfn.pointer.inflate import inflated, is_compressed
from sfn.words import Table

Part: TypeAlias = Callable[[str, int, int], Awaitable[bytes | None]]
"""As `sfn.store.PointerStore.part`: of a canonical location the bytes from one place on, so many at most."""

PART: Final = 2**20
"""Bytes that are read, inflated and decoded at a time: half a millisecond."""
LONGEST: Final = 2**30
"""Bytes of JSON that are looked through: what inflates to more is no metadata."""


async def metadata_at(part: Part, place: str, metadata_location: str) -> Table | None:
    """The table that a metadata file describes; None where there is no file.

    Args:
        part: reads.
        place: the file's canonical location.
        metadata_location: the same as it was told.

    Raises:
        Unintelligible: it is no metadata file.
        Trouble: of whoever reads.
    """
    first = await part(place, 0, PART)
    if first is None:
        return None
    if len(first) < PART and not is_compressed(first):
        return read_metadata(first, metadata_location)
    async with aclosing(_parts(part, place, first)) as parts, aclosing(_json(parts)) as json:
        cut = await cut_metadata(await anext(json, b""), json)
    if len(cut) <= PART:
        return read_metadata(cut, metadata_location)
    return await to_thread.run_sync(read_metadata, cut, metadata_location)


async def _parts(part: Part, place: str, first: bytes) -> AsyncGenerator[bytes]:
    more: bytes | None = first
    start = 0
    while more:
        yield more
        start += len(more)
        more = await part(place, start, PART) if len(more) == PART else None


async def _json(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The parts, decompressed; raises Unintelligible where that can't be done or does not end."""
    length = 0
    async with aclosing(inflated(parts, PART)) as pieces:
        try:
            async for piece in pieces:
                length += len(piece)
                if length > LONGEST:
                    raise Unintelligible(f"more than {LONGEST} bytes")
                yield piece
        except zlib.error:
            raise Unintelligible("broken compression") from None
