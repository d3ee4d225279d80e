"""A table as it is answered: by its SFN file, from memory where its metadata file was read before."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final, TypeAlias

import anyio
from anyio import to_thread

from sfn.clock import Clock
from sfn.errors import Stale
from sfn.facade import Place
from sfn.facade.served import Snapshots, served
from sfn.pointer.document import Document
from sfn.pointer.hearsay import spelled
from sfn.reader import metadata
from sfn.reader.resolve import Pointer, pointer
from sfn.reader.trust import Trust

REMEMBERED: Final = 64 << 20
"""Bytes of answers that are kept: a metadata file never changes."""
AT_ONCE: Final = 2
"""Metadata files that are read at the same time: each may be as large as the limit."""
_TAG: Final = 16
"""Bytes of an entity tag."""

_ENTRY: Final = 1 << 10
"""Bytes that one more answer takes beside its own."""

Key: TypeAlias = tuple[str, Trust]
"""An answer's entity tag, and where the table may lie: what one may be shown, another may not."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A table.

    Attributes:
        etag: entity tag of this answer, in its quotes.
        body: a `LoadTableResult`.
    """

    etag: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The client has it already."""

    etag: str


class Loading:
    """Answers what clients ask of single tables.

    Args:
        clock: the wall clock.
        limit: most bytes of a metadata file's JSON.
    """

    def __init__(self, clock: Clock, limit: int) -> None:
        self._clock, self._limit = clock, limit
        self._bodies: OrderedDict[Key, bytes] = OrderedDict()
        self._size = 0
        self._places = anyio.Semaphore(AT_ONCE)

    async def find(self, place: Place) -> Pointer:
        """Which metadata file is a table's.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
        """
        return place.pinned or await pointer(place.tree, place.question, self._clock)

    async def load(self, place: Place, snapshots: Snapshots, known: frozenset[str]) -> Loaded | Unchanged:
        """The table.

        Args:
            known: entity tags of answers that the client has.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
        """
        try:
            return await self._loaded(place, snapshots, known)
        except Stale:
            # It may have been replaced while it was read.
            return await self._loaded(place, snapshots, known)

    async def _loaded(self, place: Place, snapshots: Snapshots, known: frozenset[str]) -> Loaded | Unchanged:
        at = await self.find(place)
        etag = tag(at.then.found.doc, snapshots)
        if not known.isdisjoint({etag, "*"}):
            return Unchanged(etag)
        key = etag, place.question.trust
        if (body := self._remembered(key)) is not None:
            return Loaded(etag, body)
        async with self._places:
            # Another one may have read it meanwhile.
            body = self._remembered(key) or await self._read(place, at, snapshots)
            self._remember(key, body)
        return Loaded(etag, body)

    async def _read(self, place: Place, at: Pointer, snapshots: Snapshots) -> bytes:
        doc, said_by = at.then.found.doc, at.then.found.key
        content = await metadata.whole(place.tree, at.key, self._limit)
        if content is None:
            raise metadata.gone(at.key, doc, said_by, self._clock.now())
        return await to_thread.run_sync(partial(served, content, doc, at.key, said_by, place.question.trust, snapshots))

    def _remembered(self, key: Key) -> bytes | None:
        if (body := self._bodies.get(key)) is not None:
            self._bodies.move_to_end(key)
        return body

    def _remember(self, key: Key, body: bytes) -> None:
        if key in self._bodies or len(body) + _ENTRY > REMEMBERED:
            return
        self._bodies[key] = body
        self._size += len(body) + _ENTRY
        while self._size > REMEMBERED:
            self._size -= len(self._bodies.popitem(last=False)[1]) + _ENTRY


def tag(doc: Document, snapshots: Snapshots) -> str:
    """The entity tag of an answer: another one for every metadata file, and for every choice of snapshots.

    A table that is dropped and made anew may have metadata files of the same names: hence its uuid.
    """
    what = "\n".join((doc.metadata_file_path, spelled(doc.guid) or "", snapshots))
    return f'"{sha256(what.encode()).hexdigest()[: 2 * _TAG]}"'
