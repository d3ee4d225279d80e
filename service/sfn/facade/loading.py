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
from sfn.facade import Place
from sfn.facade.served import Snapshots, served
from sfn.pointer.document import Document
from sfn.reader import metadata
from sfn.reader.files import Files
from sfn.reader.resolve import Pointer, pointer
from sfn.reader.trust import Trust

REMEMBERED: Final = 64 << 20
"""Bytes of answers that are kept: a metadata file never changes."""
AT_ONCE: Final = 2
"""Metadata files that are read at the same time below one root: each may be as large as the limit, and what is slow
below one root holds up no other."""
READ_WITHIN: Final = 120.0
"""Seconds that a metadata file takes at most: of one that comes in drops nobody waits for the end."""
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
        body: a `LoadTableResult`; one for all whom it is sent to at the same time.
    """

    etag: str
    body: memoryview


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
        self._bodies: OrderedDict[Key, memoryview] = OrderedDict()
        self._size = 0
        self._under_way: WeakValueDictionary[Key, memoryview] = WeakValueDictionary()
        self._turns: WeakKeyDictionary[Files, anyio.Semaphore] = WeakKeyDictionary()

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
        async with self._turns.setdefault(place.tree, anyio.Semaphore(AT_ONCE)):
            # Another one may have read it meanwhile.
            body = self._remembered(key) or self._kept(key, await self._read(place, at, snapshots))
        return Loaded(etag, body)

    async def _read(self, place: Place, at: Pointer, snapshots: Snapshots) -> memoryview:
        doc, said_by = at.then.found.doc, at.then.found.key
        try:
            with anyio.fail_after(READ_WITHIN):
                content = await metadata.whole(place.tree, at.key, self._limit)
        except TimeoutError:
            raise Unreachable(at.key, expected=f"the file within {READ_WITHIN:g} s", found="less of it") from None
        if content is None:
            raise metadata.gone(at.key, doc, said_by, self._clock.now())
        make = partial(served, content, doc, at.key, said_by, place.question.trust, snapshots)
        return memoryview(await to_thread.run_sync(make))

    def _remembered(self, key: Key) -> memoryview | None:
        if key in self._bodies:
            self._bodies.move_to_end(key)
        return self._under_way.get(key)

    def _kept(self, key: Key, body: memoryview) -> memoryview:
        """The one that all get."""
        body = self._under_way.setdefault(key, body)
        if key not in self._bodies and len(body) + _ENTRY <= REMEMBERED:
            self._bodies[key] = body
            self._size += len(body) + _ENTRY
        while self._size > REMEMBERED:
            self._size -= len(self._bodies.popitem(last=False)[1]) + _ENTRY
        return body


def tag(doc: Document, snapshots: Snapshots) -> str:
    """The entity tag of an answer: another one for every metadata file, and for every choice of snapshots.

    A table that is dropped and made anew may have metadata files of the same names: hence its uuid.
    """
    what = "\n".join((doc.metadata_file_path, doc.guid or "", snapshots))
    return f'"{sha256(what.encode()).hexdigest()[: 2 * _TAG]}"'
