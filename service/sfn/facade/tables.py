"""A table as it is answered: by its SFN file, from memory where its metadata file was read before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from hashlib import sha256
from typing import Final, Protocol, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

import anyio
import msgspec
from anyio import to_thread
from msgspec import Raw

from sfn.clock import Clock
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import PublishedPointer
from sfn.errors import ExternalError, LocationRefused, Stale, Unreachable, Unsafe
from sfn.facade import Namespace, TablePlace
from sfn.facade.discovery import ScannedTables
from sfn.inbox import AdminQueries, TableIndex
from sfn.reader import metadata
from sfn.reader.api import parse_identifier
from sfn.reader.files import FileReader
from sfn.reader.metadata import AllowedLocations, check_table_uuid, malformed_metadata_error
from sfn.reader.resolve import MetadataPointer, Question, resolve_pointer
from sfn.sfnfile.document import Document
from sfn.sfnfile.locations import check_any_scheme, longest_prefix

# ── served: What is served of a metadata file

_NONE: Final = "none: this catalog is read only"
READ_ONLY_PROPERTIES: Final = {
    "gc.enabled": "false",
    "write.data.path": "file:///dev/null/this-catalog-is-read-only",
    "write.py-location-provider.impl": _NONE,
    "write.spark.advisory-partition-size-bytes": _NONE,
}
"""Whoever cleans up by a pointer that lags deletes live files: with the first of these properties Iceberg's own actions
refuse to. With the second one writers stop before they have written a data file that nobody would know of: below a
device no folder can be made; the others let PyIceberg and Spark stop earlier, and say why. Other properties would stop
writers too, but stop readers: Trino and PrestoDB parse `write.format.default`, PrestoDB and Iceberg before 1.5 in Spark
load `write.location-provider.impl`, and iceberg-rust parses `write.target-file-size-bytes` of a table of version 3."""

_Members: TypeAlias = dict[str, Raw]

_MEMBERS: Final = msgspec.json.Decoder(_Members)
_PROPERTIES: Final = msgspec.json.Decoder(dict[str, str])


class SnapshotMode(StrEnum):
    """Which snapshots a client asks for (Iceberg's REST specification, `loadTable`, parameter `snapshots`)."""

    ALL = "all"
    REFS = "refs"


class _SnapshotId(msgspec.Struct, rename="kebab"):
    """What has a snapshot's id: a snapshot, a branch or a tag."""

    snapshot_id: int


_SNAPSHOTS: Final = msgspec.json.Decoder(list[Raw])
_SNAPSHOT: Final = msgspec.json.Decoder(_SnapshotId)
_REFS: Final = msgspec.json.Decoder(dict[str, _SnapshotId])


def load_table_result(
    content: bytes, doc: Document, key: str, named_by: str, trust: AllowedLocations, snapshots: SnapshotMode
) -> bytes:
    """The body of a `LoadTableResult`, without any credentials.

    Args:
        content: the metadata file's JSON.
        doc: the document that names it.
        key: its canonical URL.
        named_by: the document's URL.
        trust: where what it names may lie.

    Raises:
        MalformedMetadata: it is none.
        WrongTable: it is another table's.
        Unsafe: the table's location lies where nobody is led.
    """
    try:
        metadata = _MEMBERS.decode(content)
        uuid, location = (_text(metadata.get(name)) for name in ("table-uuid", "location"))
        properties = _PROPERTIES.decode(metadata["properties"]) if "properties" in metadata else {}
        if snapshots is SnapshotMode.REFS and "snapshots" in metadata:
            metadata["snapshots"] = _referenced(metadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed_metadata_error(key, "an Iceberg metadata file", f"{type(error).__name__}: {error}") from None
    if location is None or "format-version" not in metadata:
        raise malformed_metadata_error(key, "an Iceberg metadata file", "JSON without a format-version or a location")
    check_table_uuid(key, uuid, doc, named_by)
    _check_location(trust, location, key)
    metadata["properties"] = Raw(msgspec.json.encode(properties | READ_ONLY_PROPERTIES))
    return msgspec.json.encode({"metadata-location": doc.metadata_file_path, "metadata": metadata, "config": {}})


def _check_location(trust: AllowedLocations, location: str, key: str) -> None:
    try:
        trust.check_location(location.rstrip("/") or "/", key)
    except Unsafe as refusal:
        raise Unsafe(
            key, expected=f"{refusal.expected} for the table", found=refusal.found, remedy=refusal.remedy
        ) from None


def _text(member: Raw | None) -> str | None:
    return None if member is None else msgspec.json.decode(member, type=str | None)


def _referenced(metadata: _Members) -> Raw:
    """The snapshots that a branch or tag names; a table of version 1 may have no more than a current one."""
    refs = _REFS.decode(metadata["refs"]) if "refs" in metadata else {}
    wanted: set[int | None] = {ref.snapshot_id for ref in refs.values()}
    if "current-snapshot-id" in metadata:
        wanted.add(msgspec.json.decode(metadata["current-snapshot-id"], type=int | None))
    referenced = [
        one for one in _SNAPSHOTS.decode(metadata["snapshots"]) if _SNAPSHOT.decode(one).snapshot_id in wanted
    ]
    return Raw(msgspec.json.encode(referenced))


# ── loading: A table as it is answered

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


# ── directories: Tables called by their directories

DIRECTORY_NAMESPACE: Final[Namespace] = ("dir",)
MAX_DIRECTORY_NAME: Final = 4_096
"""Characters of a directory's name: what is looked at is remembered for a while, and no path is longer."""


def is_directory(namespace: Namespace, name: str) -> bool:
    """Whether a table's name is a path or a URL."""
    return namespace == DIRECTORY_NAMESPACE and (name.startswith("/") or ":/" in name)


def place_of_directory(name: str, trees: Mapping[str, FileReader]) -> TablePlace:
    """Where the table of a directory is looked up.

    Args:
        name: a path or URL; of a directory that several tables share, with `#` and the table's identifier behind it.
        trees: by their roots, the canonical prefixes of the allow-list.

    Raises:
        Unsafe: it lies below none of them, or its path does not lead where it seems to.
    """
    if len(name) > MAX_DIRECTORY_NAME:
        raise Unsafe(
            f"{name[:64]!r}…",
            expected=f"a directory of at most {MAX_DIRECTORY_NAME:,} characters",
            found="a longer one",
        )
    directory, _, table = name.partition("#")
    try:
        url = check_any_scheme(directory.rstrip("/") or "/")
    except LocationRefused as refused:
        raise Unsafe(f"{name!r}", expected=refused.expected, found=refused.found) from None
    root = longest_prefix(url, trees)
    if root is None:
        remedy = "read another one, or have the facade started with a root that covers it"
        raise Unsafe(
            f"{name!r}", expected=f"a directory below {' or '.join(sorted(trees))}", found="one outside", remedy=remedy
        )
    try:
        identifier = parse_identifier(table) if table else None
    except ValueError as error:
        raise Unsafe(f"{name!r}", expected=f"{error}", found="another") from None
    return TablePlace(trees[root], Question(url, identifier, allowed=(root,)))


# ── roster: The tables that the service published

LISTING_MAX_AGE: Final = 2.0
"""Seconds for which a listing of all rows is kept."""
FOUND_MAX_AGE: Final = 2.0
"""Seconds for which one row's place is."""
MISSING_MAX_AGE: Final = 0.5
"""Seconds for which it is remembered that there is none."""
_MAX_CACHED_PLACES: Final = 100_000
"""Rows whose places are."""

_CachedPlace: TypeAlias = tuple[float, TablePlace | None]


class FacadeInbox(TableIndex, AdminQueries, Protocol):
    """What is asked for rows."""


class PublishedTables:
    """Implements `Shelf` with a catalog's rows. One that is asked for is looked up by itself: a catalog may have very
    many.

    Args:
        inbox: has the rows.
        catalog: whose.
        trees: by their canonical roots; a table below none of them is not shown.
    """

    def __init__(self, inbox: FacadeInbox, catalog: str, trees: Mapping[str, FileReader]) -> None:
        self._inbox, self._catalog, self._trees = inbox, catalog, trees
        listed = partial(_scan_published, inbox, catalog, trees)
        self._index = ScannedTables(
            [listed], max_age=LISTING_MAX_AGE, missing_max_age=LISTING_MAX_AGE, timeout=LISTING_MAX_AGE
        )
        self._found: dict[tuple[Namespace, str], _CachedPlace] = {}

    async def tables(self) -> Mapping[Namespace, Mapping[str, TablePlace]]:
        return await self._index.tables()

    async def find(self, namespace: Namespace, name: str, *, refresh: bool = False) -> TablePlace | None:
        known = self._found.get((namespace, name))
        if known is not None and not refresh and _is_fresh(*known):
            return known[1]
        try:
            status = await self._inbox.table_status(TableIdentifier(self._catalog, namespace, name))
        except ExternalError:
            # Its file still says where its table is.
            if known is None or known[1] is None:
                raise
            return known[1]
        live = None if status is None else status.table_state.live
        place = _place_of(namespace, name, live, self._trees)
        if len(self._found) >= _MAX_CACHED_PLACES:
            self._found.clear()
        self._found[namespace, name] = anyio.current_time(), place
        return place


def _is_fresh(checked_at: float, place: TablePlace | None) -> bool:
    return anyio.current_time() - checked_at < (MISSING_MAX_AGE if place is None else FOUND_MAX_AGE)


async def _scan_published(
    table_index: TableIndex, catalog: str, trees: Mapping[str, FileReader]
) -> AsyncIterator[tuple[Namespace, str, TablePlace]]:
    async for row in table_index.tables(catalog):
        namespace, name = row.table.namespace, row.table.name
        if (place := _place_of(namespace, name, row.live, trees)) is not None:
            yield namespace, name, place


def _place_of(
    namespace: Namespace, name: str, live: PublishedPointer | None, trees: Mapping[str, FileReader]
) -> TablePlace | None:
    root = None if live is None else longest_prefix(live.location, trees)
    if live is None or root is None:
        return None
    return TablePlace(trees[root], Question(live.location, (*namespace, name), allowed=(root,)))
