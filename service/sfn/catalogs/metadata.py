"""The parts of a table's metadata that the listener needs, from any catalog: `read_metadata`, `read_metadata_at`.

The decoder skips all other fields: 8 MiB of snapshots take 6 ms. Longer documents are cut first (`partial_json`).
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from anyio import to_thread
from msgspec import Meta, inspect

from sfn.catalogs.partial_json import WantedMembers, extract
from sfn.domain.identifiers import Table
from sfn.sfnfile.locations import decompress, is_compressed

LAST_MILLISECOND: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last time that an Ordinal can express."""

_PREVIOUS_VERSIONS: Final = 100
"""Default of `write.metadata.previous-versions-max` (Iceberg documentation, "Table properties")."""

_MOST_VERSIONS: Final = 2**31 - 1
"""Largest number that writers in Java accept."""

_NO_SNAPSHOT: Final = -1
_MAIN: Final = "main"
_BRANCH: Final = "branch"

T = TypeVar("T")


class UnreadableDocument(Exception):
    """A document that is not JSON or not of the expected shape; the message says where, and quotes nothing of it."""


class _LogEntry(msgspec.Struct, gc=False):
    file: str = msgspec.field(name="metadata-file")
    timestamp_ms: Any = msgspec.field(name="timestamp-ms", default=0)


class _Ref(msgspec.Struct, rename="kebab", gc=False):
    snapshot_id: int
    type: str = "branch"


class _TableProperties(msgspec.Struct):
    key: str | bool | None = msgspec.field(name="encryption.key-id", default=None)
    enabled: str | bool | None = msgspec.field(name="sfn.enabled", default=None)
    deletes: Any = msgspec.field(name="write.metadata.delete-after-commit.enabled", default=None)
    versions: Any = msgspec.field(name="write.metadata.previous-versions-max", default=None)


class TableMetadata(msgspec.Struct, rename="kebab"):
    """A table's metadata (Iceberg specification, "Table Metadata Fields")."""

    format_version: int
    location: Annotated[str, Meta(min_length=1)]
    last_updated_ms: int
    table_uuid: Annotated[str, Meta(min_length=1)] | None = None
    current_snapshot_id: int | None = None
    metadata_log: list[_LogEntry] | None = None
    properties: _TableProperties | None = None
    refs: dict[str, _Ref] | None = None


def to_table(metadata: TableMetadata, metadata_location: str) -> Table:
    """Return the table that a metadata file describes.

    Raises:
        UnreadableDocument: the metadata lack a field that their format version requires.
    """
    properties = metadata.properties or _TableProperties()
    if metadata.table_uuid is None and metadata.format_version > 1:
        # Iceberg specification, "Table Metadata Fields": required from version 2 on.
        raise UnreadableDocument("no table-uuid in metadata of format version 2 or higher")
    return Table(
        uuid=metadata.table_uuid,
        location=metadata.location.rstrip("/") or metadata.location,
        metadata_location=metadata_location,
        metadata_log=tuple([entry.file for entry in metadata.metadata_log or ()]),
        log_times=_log_times(metadata.metadata_log or ()),
        last_updated_ms=_updated_ms(metadata),
        snapshot_id=_current_snapshot(metadata),
        branches=_branches(metadata.refs or {}),
        skip_reason=_left_alone(properties),
        previous_versions_max=_max_previous_versions(properties),
    )


def read_metadata(body: bytes | bytearray, metadata_location: str) -> Table:
    """Return the table that the content of a metadata file describes.

    Raises:
        UnreadableDocument: the content is no table metadata.
    """
    return to_table(decode_json(body, TableMetadata), metadata_location)


async def extract_metadata(start: bytes | bytearray, parts: AsyncIterator[bytes]) -> bytearray:
    """Return an excerpt that `read_metadata` reads like the whole metadata file; see `partial_json.extract`."""
    return await extract(start, parts, _METADATA_MEMBERS)


def decode_json(body: bytes | bytearray, shape: type[T], *, strict: bool = True) -> T:
    """Return a JSON document as an object of a type.

    Args:
        strict: True to reject a number that is written as a string.

    Raises:
        UnreadableDocument: the document is invalid, or of another shape.
    """
    try:
        return msgspec.json.decode(body, type=shape, strict=strict)
    except msgspec.ValidationError as error:
        raise UnreadableDocument(f"JSON of another shape ({error})") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UnreadableDocument("no whole JSON document") from None
    except RecursionError:
        raise UnreadableDocument("JSON nested too deeply") from None


def needed_members(shape: type) -> WantedMembers:
    """Return the members that a type needs, which is what to cut out of a large document."""
    return _members_of(inspect.type_info(shape)) or {}


def _members_of(kind: inspect.Type) -> WantedMembers | None:
    """Return the members that a type needs; None if it is no object with members of its own."""
    match kind:
        case inspect.StructType():
            return {field.encode_name: _members_of(field.type) for field in kind.fields}
        case inspect.UnionType():
            return next((members for each in kind.types if (members := _members_of(each)) is not None), None)
        case _:
            return None


_METADATA_MEMBERS: Final = needed_members(TableMetadata)


def _current_snapshot(metadata: TableMetadata) -> int | None:
    # Old writers use -1 for "none".
    current = None if metadata.current_snapshot_id == _NO_SNAPSHOT else metadata.current_snapshot_id
    main = (metadata.refs or {}).get(_MAIN)
    # If the two disagree, readers show no snapshot, Iceberg's own library included. So none is named here.
    return current if main is None or main.snapshot_id == current else None


def _branches(refs: Mapping[str, _Ref]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, ref.snapshot_id) for name, ref in refs.items() if ref.type == _BRANCH and name != _MAIN))


def _updated_ms(metadata: TableMetadata) -> int:
    # Only the order of Ordinals matters, so an invalid time is no reason to refuse a table. It is not clamped to the
    # last millisecond, which would stay the table's greatest Ordinal for ever.
    updated = metadata.last_updated_ms
    return updated if 0 <= updated <= LAST_MILLISECOND else 0


def _log_times(log: Sequence[_LogEntry]) -> tuple[int, ...]:
    """Return the times of a metadata log; an invalid one is replaced.

    Only the order of our own history depends on them, so an invalid time is no reason to refuse a table.
    """
    times = [entry.timestamp_ms for entry in log]
    # A log has a hundred entries. If all are valid, which is nearly always so, three calls find out.
    if set(map(type, times)) == {int} and min(times) >= 0 and max(times) <= LAST_MILLISECOND:
        return tuple(times)
    return tuple([min(max(time, 0), LAST_MILLISECOND) if isinstance(time, int) else 0 for time in times])


def _max_previous_versions(properties: _TableProperties) -> int | None:
    # As Java's TableMetadata: at least one. An invalid value fails the writers, but is no reason to refuse a table.
    if str(properties.deletes).strip().lower() != "true":
        return None
    try:
        return min(max(1, int(str(properties.versions))), _MOST_VERSIONS)
    except ValueError:
        return _PREVIOUS_VERSIONS


def _left_alone(properties: _TableProperties) -> str | None:
    if properties.key:
        return "encrypted: the table property encryption.key-id is set"
    if str(properties.enabled).strip().lower() == "false":
        return "switched off: the table property sfn.enabled is false"
    return None


ReadRange: TypeAlias = Callable[[str, int, int], Awaitable[bytes | None]]
"""A function like `sfn.storage.ObjectStore.read_range`: canonical location, first byte, number of bytes."""

PART_BYTES: Final = 2**20
"""Bytes that are read, decompressed and decoded at a time, in half a millisecond."""
MAX_JSON_BYTES: Final = 2**30
"""Bytes of JSON that are scanned at most; longer content is no metadata."""


async def read_metadata_at(read_range: ReadRange, location: str, metadata_location: str) -> Table | None:
    """Return the table that a metadata file describes; None if there is no file.

    Args:
        read_range: reads parts of the file.
        location: the file's canonical location.
        metadata_location: the location as reported.

    Raises:
        UnreadableDocument: the file is no metadata file.
        ExternalError: from `read_range`.
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
    """Yield the decompressed parts; raise UnreadableDocument if that fails, or the content is too long."""
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
