"""The metadata file that a document names: whose it is, and what stands in it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from sfn.clock import lasting
from sfn.errors import MalformedMetadata, RefNotFound, Stale, WrongTable
from sfn.pointer import document
from sfn.pointer.document import LAST_ORDINAL, Document
from sfn.pointer.hearsay import spelled
from sfn.pointer.inflate import inflated
from sfn.pointer.naming import MAIN
from sfn.reader.files import BEGINNING, PART, Files, parts
from sfn.reader.identity import table_uuid

LONGEST: Final = 256 << 20
"""Bytes of JSON of a metadata file that is read as a whole."""

_REFS_NAMED: Final = 20
_NONE: Final = -1
"""What old writers have for no snapshot."""

_Milliseconds: TypeAlias = Annotated[int, Meta(ge=0, le=LAST_ORDINAL)]


class Ref(msgspec.Struct, rename="kebab", frozen=True):
    """A branch or tag (Iceberg specification, "Snapshot References")."""

    snapshot_id: int
    type: str = "branch"


class Listed(msgspec.Struct, rename="kebab", frozen=True):
    """A snapshot, its schema, and where its manifests are listed; an old table has neither."""

    snapshot_id: int
    manifest_list: str | None = None
    schema_id: int | None = None


class Became(msgspec.Struct, rename="kebab", frozen=True):
    """An entry of the snapshot-log: which snapshot became current when."""

    timestamp_ms: _Milliseconds
    snapshot_id: int


class Logged(msgspec.Struct, rename="kebab", frozen=True):
    """An entry of the metadata-log: an earlier metadata file, and its `last-updated-ms`."""

    metadata_file: str
    timestamp_ms: _Milliseconds


class Metadata(msgspec.Struct, rename="kebab", frozen=True):
    """What a reader needs of a table's metadata (Iceberg specification, "Table Metadata Fields")."""

    format_version: int | None = None
    last_updated_ms: _Milliseconds | None = None
    table_uuid: str | None = None
    current_snapshot_id: int | None = None
    refs: dict[str, Ref] | None = None
    metadata_log: list[Logged] | None = None
    snapshots: list[Listed] | None = None
    snapshot_log: list[Became] | None = None
    current_schema_id: int | None = None

    def head(self, ref: str) -> int | None:
        """The snapshot of a branch or tag; None for branch `main` of an empty table.

        Raises:
            KeyError: there is no such branch or tag.
        """
        refs = self.refs or {}
        if ref in refs or ref != MAIN:
            return refs[ref].snapshot_id
        return None if self.current_snapshot_id == _NONE else self.current_snapshot_id


async def check(files: Files, key: str, doc: Document, said_by: str, now: datetime) -> None:
    """Refuse a metadata file that is gone or is another table's.

    Args:
        key: its canonical URL.
        doc: the document that names it.
        said_by: that document's URL.
        now: for the document's age.

    Raises:
        Stale: it is gone.
        WrongTable: it is another table's.
        MalformedMetadata: it is no metadata file.
    """
    first = await files.read(key, BEGINNING)
    if first is None:
        raise gone(key, doc, said_by, now)
    uuid = await table_uuid(files, key, first)
    if uuid is None:
        # What has none may be no metadata at all.
        uuid = (await contents(files, key) or Metadata()).table_uuid
    compare(key, uuid, doc, said_by)


def compare(key: str, uuid: str | None, doc: Document, said_by: str) -> None:
    """Refuse a metadata file that is another table's.

    Args:
        uuid: the file's `table-uuid`.

    Raises:
        WrongTable: it is.
    """
    if spelled(uuid) != spelled(doc.guid):
        remedy = "the table was made anew, or the file is forged: `sfn verify` with the catalog's configuration tells"
        raise WrongTable(
            key,
            expected=f"{'no table-uuid' if doc.guid is None else f'table-uuid {doc.guid}'}, as {said_by} says",
            found=uuid or "none",
            remedy=remedy,
        )


def gone(key: str, doc: Document, said_by: str, now: datetime) -> Stale:
    """The refusal of a document whose metadata file is gone."""
    at, age = document.moment(doc.written_at), lasting(now - doc.written_at)
    return Stale(
        key,
        expected=f"the metadata file that {said_by} named at {at}, {age} ago",
        found="no such file",
        remedy="see whether the service that writes the SFN file still runs, or ask the catalog",
    )


async def whole(files: Files, key: str, longest: int = LONGEST) -> bytes | None:
    """A metadata file's JSON, decompressed; None where there is no file.

    Args:
        longest: bytes of it that are read.

    Raises:
        MalformedMetadata: it is longer, or its compression is broken.
    """
    first = await files.read(key, PART)
    if first is None:
        return None
    kept = bytearray()
    try:
        async for part in inflated(parts(files, key, first, PART), PART):
            kept += part
            if len(kept) > longest:
                raise malformed(key, f"at most {_mebibytes(longest)} MiB of JSON", "more")
    except zlib.error as error:
        raise malformed(key, "JSON, compressed or not", f"broken compression: {error}") from None
    return bytes(kept)


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.4g}"


async def contents(files: Files, key: str) -> Metadata | None:
    """What stands in a metadata file; None where there is no file.

    Raises:
        MalformedMetadata: it is none.
    """
    body = await whole(files, key)
    if body is None:
        return None
    try:
        found = msgspec.json.decode(body, type=Metadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(key, "an Iceberg metadata file", f"{type(error).__name__}: {error}") from None
    if found.format_version is None and found.table_uuid is None:
        raise malformed(key, "an Iceberg metadata file", "JSON without a format-version")
    return found


def no_such_ref(ref: str, there: Iterable[str], where: str) -> RefNotFound:
    """The refusal of a branch or tag that a metadata file does not have.

    Args:
        there: those that it has.
    """
    names = sorted({MAIN, *there})
    more = f" and {len(names) - _REFS_NAMED:,} more" if len(names) > _REFS_NAMED else ""
    found = f"{', '.join(names[:_REFS_NAMED])}{more}"
    return RefNotFound(where, expected=f"a branch or tag {ref}", found=found, remedy="name one of them")


def malformed(key: str, expected: str, found: str) -> MalformedMetadata:
    """The refusal of a metadata file that is none."""
    return MalformedMetadata(key, expected=expected, found=found, remedy="ask the catalog which file is current")
