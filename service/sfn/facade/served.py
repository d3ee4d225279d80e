"""What is served of a metadata file. Pure: every value that is not ours goes out byte for byte as it came in."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw

from sfn.errors import Unsafe
from sfn.reader.metadata import check_table_uuid, malformed_metadata_error
from sfn.reader.trust import AllowedLocations
from sfn.sfnfile.document import Document

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
