"""A table as it is answered: by its SFN file, from memory where its metadata file was read before."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

import anyio
from anyio import to_thread

from sfn.clock import Clock
from sfn.errors import Stale, Unreachable
from sfn.facade import TablePlace
from sfn.facade.served import SnapshotMode, load_table_result
from sfn.reader import metadata
from sfn.reader.files import FileReader
from sfn.reader.resolve import MetadataPointer, resolve_pointer
from sfn.reader.trust import AllowedLocations
from sfn.sfnfile.document import Document

MAX_CACHED_BYTES: Final = 64 << 20
"""Bytes of answers that are kept: a metadata file never changes."""
MAX_CONCURRENT_READS: Final = 2
"""Metadata files that are read at the same time below one root: each may be as large as the limit, and what is slow
below one root holds up no other."""
READ_TIMEOUT: Final = 120.0
"""Seconds that a metadata file takes at most: of one that comes in drops nobody waits for the end."""
_TAG: Final = 16
"""Bytes of an entity tag."""

_ENTRY: Final = 1 << 10
"""Bytes that one more answer takes beside its own."""

CacheKey: TypeAlias = tuple[str, AllowedLocations]
"""An answer's entity tag, and where the table may lie: what one may be shown, another may not."""


@dataclass(frozen=True, slots=True)
class TableResponse:
    """A table.

    Attributes:
        etag: entity tag of this answer, in its quotes.
        body: a `LoadTableResult`; one for all whom it is sent to at the same time.
    """

    etag: str
    body: memoryview


@dataclass(frozen=True, slots=True)
class UnchangedTable:
    """The client has it already."""

    etag: str


class TableLoader:
    """Answers what clients ask of single tables.

    Args:
        clock: the wall clock.
        limit: most bytes of a metadata file's JSON.
    """

    def __init__(self, clock: Clock, limit: int) -> None:
        self._clock, self._limit = clock, limit
        self._bodies: OrderedDict[CacheKey, memoryview] = OrderedDict()
        self._size = 0
        self._in_use: WeakValueDictionary[CacheKey, memoryview] = WeakValueDictionary()
        self._semaphores: WeakKeyDictionary[FileReader, anyio.Semaphore] = WeakKeyDictionary()

    async def find(self, place: TablePlace) -> MetadataPointer:
        """Which metadata file is a table's.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
        """
        return place.pinned or await resolve_pointer(place.tree, place.question, self._clock)

    async def load(
        self, place: TablePlace, snapshots: SnapshotMode, known_etags: frozenset[str]
    ) -> TableResponse | UnchangedTable:
        """The table.

        Args:
            known_etags: entity tags of answers that the client has.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
        """
        try:
            return await self._load_once(place, snapshots, known_etags)
        except Stale:
            # It may have been replaced while it was read.
            return await self._load_once(place, snapshots, known_etags)

    async def _load_once(
        self, place: TablePlace, snapshots: SnapshotMode, known_etags: frozenset[str]
    ) -> TableResponse | UnchangedTable:
        at = await self.find(place)
        etag = entity_tag(at.version.found.doc, snapshots)
        if not known_etags.isdisjoint({etag, "*"}):
            return UnchangedTable(etag)
        key = etag, place.question.allowed_locations
        if (body := self._cached(key)) is not None:
            return TableResponse(etag, body)
        async with self._semaphores.setdefault(place.tree, anyio.Semaphore(MAX_CONCURRENT_READS)):
            # Another one may have read it meanwhile.
            body = self._cached(key) or self._cache(key, await self._read(place, at, snapshots))
        return TableResponse(etag, body)

    async def _read(self, place: TablePlace, at: MetadataPointer, snapshots: SnapshotMode) -> memoryview:
        doc, named_by = at.version.found.doc, at.version.found.key
        try:
            with anyio.fail_after(READ_TIMEOUT):
                content = await metadata.read_metadata_json(place.tree, at.key, self._limit)
        except TimeoutError:
            raise Unreachable(at.key, expected=f"the file within {READ_TIMEOUT:g} s", found="less of it") from None
        if content is None:
            raise metadata.metadata_gone_error(at.key, doc, named_by, self._clock.now())
        make = partial(load_table_result, content, doc, at.key, named_by, place.question.allowed_locations, snapshots)
        return memoryview(await to_thread.run_sync(make))

    def _cached(self, key: CacheKey) -> memoryview | None:
        if key in self._bodies:
            self._bodies.move_to_end(key)
        return self._in_use.get(key)

    def _cache(self, key: CacheKey, body: memoryview) -> memoryview:
        """The one that all get."""
        body = self._in_use.setdefault(key, body)
        if key not in self._bodies and len(body) + _ENTRY <= MAX_CACHED_BYTES:
            self._bodies[key] = body
            self._size += len(body) + _ENTRY
        while self._size > MAX_CACHED_BYTES:
            self._size -= len(self._bodies.popitem(last=False)[1]) + _ENTRY
        return body


def entity_tag(doc: Document, snapshots: SnapshotMode) -> str:
    """The entity tag of an answer: another one for every metadata file, and for every choice of snapshots.

    A table that is dropped and made anew may have metadata files of the same names: hence its uuid.
    """
    what = "\n".join((doc.metadata_file_path, doc.guid or "", snapshots))
    return f'"{sha256(what.encode()).hexdigest()[: 2 * _TAG]}"'
