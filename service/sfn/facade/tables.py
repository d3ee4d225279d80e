"""Responses for tables, with a cache; tables named by their directories; and tables that the service published."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from hashlib import sha256
from typing import Final, TypeAlias
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
from sfn.inbox import TableIndex
from sfn.inbox.inbox import Inbox
from sfn.reader import metadata
from sfn.reader.api import parse_identifier
from sfn.reader.files import FileReader
from sfn.reader.metadata import AllowedLocations, check_table_uuid, malformed_metadata_error
from sfn.reader.resolve import MetadataPointer, Question, resolve_pointer
from sfn.sfnfile.document import Document
from sfn.sfnfile.locations import check_any_scheme, longest_prefix

_NONE: Final = "none: this catalog is read only"
READ_ONLY_PROPERTIES: Final = {
    "gc.enabled": "false",
    "write.data.path": "file:///dev/null/this-catalog-is-read-only",
    "write.py-location-provider.impl": _NONE,
    "write.spark.advisory-partition-size-bytes": _NONE,
}
"""Table properties that keep clients from writing.

`gc.enabled`: Iceberg's cleanup actions refuse to run. With metadata that lags behind they would delete live files.
`write.data.path`: writers fail before they write a data file that no metadata would list, because no folder can be made
below a device. The others make PyIceberg and Spark fail earlier, with the reason in the message.

Other properties would stop writers too, but also readers: Trino and PrestoDB parse `write.format.default`, PrestoDB and
Iceberg before 1.5 in Spark load `write.location-provider.impl`, and iceberg-rust parses `write.target-file-size-bytes`
of a table of version 3.
"""

_Members: TypeAlias = dict[str, Raw]

_MEMBERS: Final = msgspec.json.Decoder(_Members)
_PROPERTIES: Final = msgspec.json.Decoder(dict[str, str])


class SnapshotMode(StrEnum):
    """The snapshots that a client requests (Iceberg's REST specification, `loadTable`, parameter `snapshots`)."""

    ALL = "all"
    REFS = "refs"


class _SnapshotId(msgspec.Struct, rename="kebab"):
    """An object with a snapshot's id: a snapshot, a branch or a tag."""

    snapshot_id: int


_SNAPSHOTS: Final = msgspec.json.Decoder(list[Raw])
_SNAPSHOT: Final = msgspec.json.Decoder(_SnapshotId)
_REFS: Final = msgspec.json.Decoder(dict[str, _SnapshotId])


def load_table_result(
    content: bytes, doc: Document, key: str, named_by: str, trust: AllowedLocations, snapshots: SnapshotMode
) -> bytes:
    """Return the body of a `LoadTableResult`, without credentials.

    Args:
        content: JSON of the metadata file.
        doc: SFN document that names the metadata file.
        key: canonical URL of the metadata file.
        named_by: URL of the SFN document.
        trust: allowed locations.
        snapshots: snapshots to include.

    Raises:
        MalformedMetadata: the content is not an Iceberg metadata file.
        WrongTable: the metadata file belongs to another table.
        Unsafe: the table's location is not allowed.
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
    """Return the snapshots of branches and tags, and the current one: a table of version 1 may have no refs."""
    refs = _REFS.decode(metadata["refs"]) if "refs" in metadata else {}
    wanted: set[int | None] = {ref.snapshot_id for ref in refs.values()}
    if "current-snapshot-id" in metadata:
        wanted.add(msgspec.json.decode(metadata["current-snapshot-id"], type=int | None))
    referenced = [
        one for one in _SNAPSHOTS.decode(metadata["snapshots"]) if _SNAPSHOT.decode(one).snapshot_id in wanted
    ]
    return Raw(msgspec.json.encode(referenced))


MAX_CACHED_BYTES: Final = 64 << 20
"""Maximum size of all cached responses in bytes. They stay valid, because metadata files never change."""
MAX_CONCURRENT_READS: Final = 2
"""Maximum number of metadata files that are read at the same time below one root. Each may be as large as the limit,
and a slow root must not block the others."""
READ_TIMEOUT: Final = 120.0
"""Maximum time in seconds for reading a metadata file, also if the store sends it in small pieces."""
_TAG: Final = 16
"""Length of an etag in bytes."""

_ENTRY: Final = 1 << 10
"""Overhead of a cached response in bytes."""

CacheKey: TypeAlias = tuple[str, AllowedLocations]
"""Etag of a response, and the allowed locations: a response may be allowed for one place and not for another."""


@dataclass(frozen=True, slots=True)
class TableResponse:
    """A response with a table.

    Attributes:
        etag: etag of this response, in quotes.
        body: `LoadTableResult`; concurrent responses share the buffer.
    """

    etag: str
    body: memoryview


@dataclass(frozen=True, slots=True)
class UnchangedTable:
    """A response without a table, because the client already has the current one."""

    etag: str


class TableLoader:
    """A loader of single tables, with a cache.

    Args:
        clock: wall clock.
        limit: maximum size in bytes of a metadata file's JSON.
    """

    def __init__(self, clock: Clock, limit: int) -> None:
        self._clock, self._limit = clock, limit
        self._bodies: OrderedDict[CacheKey, memoryview] = OrderedDict()
        self._size = 0
        self._in_use: WeakValueDictionary[CacheKey, memoryview] = WeakValueDictionary()
        self._semaphores: WeakKeyDictionary[FileReader, anyio.Semaphore] = WeakKeyDictionary()

    async def find(self, place: TablePlace) -> MetadataPointer:
        """Return the current metadata file of a table.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
        """
        return place.pinned or await resolve_pointer(place.tree, place.question, self._clock)

    async def load(
        self, place: TablePlace, snapshots: SnapshotMode, known_etags: frozenset[str]
    ) -> TableResponse | UnchangedTable:
        """Return the response for a table.

        Args:
            place: place of the table.
            snapshots: snapshots to include.
            known_etags: etags of responses that the client has.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
        """
        try:
            return await self._load_once(place, snapshots, known_etags)
        except Stale:
            # The metadata file may have been replaced and deleted during the read.
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
            # Another request may have read it in the meantime.
            body = self._cached(key) or self._cache(key, await self._read(place, at, snapshots))
        return TableResponse(etag, body)

    async def _read(self, place: TablePlace, at: MetadataPointer, snapshots: SnapshotMode) -> memoryview:
        doc, named_by = at.version.found.doc, at.version.found.key
        try:
            with anyio.fail_after(READ_TIMEOUT):
                content = await metadata.read_metadata_json(place.tree, at.key, self._limit)
        except TimeoutError:
            raise Unreachable(at.key, expected=f"the file within {READ_TIMEOUT:g} s", found="a part of it") from None
        if content is None:
            raise metadata.metadata_gone_error(at.key, doc, named_by, self._clock.now())
        make = partial(load_table_result, content, doc, at.key, named_by, place.question.allowed_locations, snapshots)
        return memoryview(await to_thread.run_sync(make))

    def _cached(self, key: CacheKey) -> memoryview | None:
        if key in self._bodies:
            self._bodies.move_to_end(key)
        return self._in_use.get(key)

    def _cache(self, key: CacheKey, body: memoryview) -> memoryview:
        """Cache a body, and return the one that all responses share."""
        body = self._in_use.setdefault(key, body)
        if key not in self._bodies and len(body) + _ENTRY <= MAX_CACHED_BYTES:
            self._bodies[key] = body
            self._size += len(body) + _ENTRY
        while self._size > MAX_CACHED_BYTES:
            self._size -= len(self._bodies.popitem(last=False)[1]) + _ENTRY
        return body


def entity_tag(doc: Document, snapshots: SnapshotMode) -> str:
    """Return the etag of a response, which depends on the metadata file, the table's uuid and the snapshots.

    The uuid matters because a table that is dropped and created again may have metadata files of the same names.
    """
    what = "\n".join((doc.metadata_file_path, doc.guid or "", snapshots))
    return f'"{sha256(what.encode()).hexdigest()[: 2 * _TAG]}"'


DIRECTORY_NAMESPACE: Final[Namespace] = ("dir",)
MAX_DIRECTORY_NAME: Final = 4_096
"""Maximum number of characters of a directory's name. Names are cached for a while, and no path is longer."""


def is_directory(namespace: Namespace, name: str) -> bool:
    """Return True if a table's name is a path or a URL."""
    return namespace == DIRECTORY_NAMESPACE and (name.startswith("/") or ":/" in name)


def place_of_directory(name: str, trees: Mapping[str, FileReader]) -> TablePlace:
    """Return the place of the table in a directory.

    Args:
        name: path or URL; for a directory that several tables share followed by `#` and the table's identifier.
        trees: files, by allowed root.

    Raises:
        Unsafe: the directory is below none of the roots, or its path is ambiguous.
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
        remedy = "choose another directory, or start the facade with a root that covers this one"
        raise Unsafe(
            f"{name!r}", expected=f"a directory below {' or '.join(sorted(trees))}", found="one outside", remedy=remedy
        )
    try:
        identifier = parse_identifier(table) if table else None
    except ValueError as error:
        raise Unsafe(f"{name!r}", expected=f"{error}", found="another") from None
    return TablePlace(trees[root], Question(url, identifier, allowed=(root,)))


LISTING_MAX_AGE: Final = 2.0
"""Seconds for which the listing of all tables is cached."""
FOUND_MAX_AGE: Final = 2.0
"""Seconds for which the place of a table is cached."""
MISSING_MAX_AGE: Final = 0.5
"""Seconds for which the absence of a table is cached."""
_MAX_CACHED_PLACES: Final = 100_000
"""Maximum number of cached places."""

_CachedPlace: TypeAlias = tuple[float, TablePlace | None]


class PublishedTables:
    """A `TableSource` of the published tables of a catalog, from the inbox.

    A single table is queried alone, because a catalog may have very many tables.

    Args:
        inbox: inbox.
        catalog: name of the catalog.
        trees: files, by canonical root; a table below none of the roots is not shown.
    """

    def __init__(self, inbox: Inbox, catalog: str, trees: Mapping[str, FileReader]) -> None:
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
            # If the inbox is not available, the SFN file at the cached place still leads to the table.
            if known is None or known[1] is None:
                raise
            return known[1]
        live = None if status is None else status.job.table_state.live
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
