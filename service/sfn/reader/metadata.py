"""The metadata file that a document names: whose it is, and what stands in it."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from sfn.clock import lasting
from sfn.errors import CommitNotFound, MalformedMetadata, RefNotFound, Stale, WrongTable
from sfn.pointer import document
from sfn.pointer.document import LAST_ORDINAL, Document, render_ordinal
from sfn.pointer.inflate import decompress
from sfn.pointer.naming import MAIN_BRANCH
from sfn.reader.files import BEGINNING, PART, Files, parts
from sfn.reader.identity import table_uuid
from sfn.words import normal_uuid

_T = TypeVar("_T")

LONGEST: Final = 256 << 20
"""Bytes of JSON of a metadata file that is read as a whole."""

_REFS_NAMED: Final = 20
_NONE: Final = -1
"""What writers in Java have for no snapshot, mostly in format version 1."""
_RESTORE: Final = "roll the table back to a snapshot that it has, or have its catalog name an earlier metadata file"


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

    timestamp_ms: int
    snapshot_id: int


class Logged(msgspec.Struct, rename="kebab", frozen=True):
    """An entry of the metadata-log: an earlier metadata file, and its `last-updated-ms`."""

    metadata_file: str
    timestamp_ms: int


class Metadata(msgspec.Struct, rename="kebab", frozen=True):
    """What a reader needs of a table's metadata (Iceberg specification, "Table Metadata Fields").

    Attributes:
        metadata_log, snapshot_log: not decoded: only a reader that asks for a time needs them, see `logged`, `became`.
    """

    format_version: int | None = None
    last_updated_ms: int | None = None
    table_uuid: str | None = None
    current_snapshot_id: int | None = None
    refs: dict[str, Ref] | None = None
    metadata_log: Raw = Raw(b"null")
    snapshots: list[Listed] | None = None
    snapshot_log: Raw = Raw(b"null")
    current_schema_id: int | None = None

    def head(self, ref: str, where: str) -> int | None:
        """The snapshot of a branch or tag, see `head_of`.

        Args:
            where: the metadata file.
        """
        refs = {name: one.snapshot_id for name, one in (self.refs or {}).items()}
        return head_of(ref, self.current_snapshot_id, refs, self.snapshot_ids, where)

    @property
    def snapshot_ids(self) -> list[int]:
        """The ids of its snapshots."""
        return [one.snapshot_id for one in self.snapshots or ()]

    def logged(self, where: str) -> list[Logged]:
        """The earlier metadata files, oldest first.

        Raises:
            MalformedMetadata: the metadata-log is none.
        """
        return _decoded_log(self.metadata_log, list[Logged], "metadata-log", where)

    def became(self, where: str) -> list[tuple[int, int]]:
        """When which snapshot became current: Unix milliseconds and ids, oldest first.

        Raises:
            MalformedMetadata: the snapshot-log is none.
        """
        log = _decoded_log(self.snapshot_log, list[Became], "snapshot-log", where)
        return [(one.timestamp_ms, one.snapshot_id) for one in log]


def head_of(
    ref: str, current: int | None, refs: Mapping[str, int], snapshots: Collection[int], where: str
) -> int | None:
    """Return the snapshot of a branch or tag; None for branch `main` of an empty table.

    The rule is that of Iceberg's own library: `main` is at `current-snapshot-id`; `refs.main` may be left out, but if
    the metadata has both they agree; and each snapshot that is read is in `snapshots`. What does not concern the asked
    branch or tag, such as another one without its snapshot, does not matter.

    Args:
        current: `current-snapshot-id`; -1 is none.
        refs: snapshot ids by branch or tag.
        snapshots: the ids of all snapshots of the metadata.
        where: the metadata file.

    Raises:
        RefNotFound: there is no such branch or tag.
        MalformedMetadata: `refs.main` is not `current-snapshot-id`, or the snapshot is not in `snapshots`.
    """
    if ref != MAIN_BRANCH and ref not in refs:
        raise no_such_ref(ref, refs, where)
    number = refs[ref] if ref != MAIN_BRANCH else None if current == _NONE else current
    if ref == MAIN_BRANCH and refs.get(MAIN_BRANCH, number) != number:
        found = f"the snapshot {refs[MAIN_BRANCH]} and {'none' if number is None else number}"
        expected = "one snapshot in `refs.main` and in `current-snapshot-id`"
        raise MalformedMetadata(where, expected=expected, found=found, remedy=_RESTORE)
    if number is not None and number not in snapshots:
        raise dangling(ref, number, snapshots, where)
    return number


def dangling(ref: str, number: int, snapshots: Collection[int], where: str) -> MalformedMetadata:
    """The refusal of a branch or tag at a snapshot that the metadata does not have.

    Args:
        number: that snapshot.
        snapshots: those that the metadata has.
    """
    field = "current-snapshot-id" if ref == MAIN_BRANCH else f"refs.{ref}"
    found = f"none among {len(snapshots):,}" if snapshots else "no snapshots at all"
    expected = f"the snapshot {number} of {ref} (`{field}`) in `snapshots`"
    return MalformedMetadata(where, expected=expected, found=found, remedy=_RESTORE)


def checked_times(log: Iterable[tuple[int, object]], name: str, where: str) -> None:
    """Refuse a log whose times can't be times, such as microseconds or negative numbers.

    Args:
        log: its times, in Unix milliseconds, each with what it is of.
        name: of the log.
        where: the metadata file.

    Raises:
        CommitNotFound: the log has such a time.
    """
    for at, what in log:
        if not is_time(at):
            raise CommitNotFound(
                where,
                expected=f"times in the {name} that are milliseconds from {render_ordinal(0)} on",
                found=f"{at} for {what}",
                remedy="resolve or read the table without a time; `sfn history` lists what the log has",
            )


def is_time(milliseconds: int) -> bool:
    """Whether a number can be a time in Unix milliseconds that an Ordinal can say."""
    return 0 <= milliseconds <= LAST_ORDINAL


def _decoded_log(log: Raw, kind: type[list[_T]], name: str, where: str) -> list[_T]:
    try:
        return msgspec.json.decode(log, type=kind | None) or []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(where, f"a {name}", f"{type(error).__name__}: {error}") from None


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
    if normal_uuid(uuid) != doc.guid:
        remedy = "the table was made anew, or the file is forged: `sfn verify` with the catalog's configuration tells"
        raise WrongTable(
            key,
            expected=f"{'no table-uuid' if doc.guid is None else f'table-uuid {doc.guid}'}, as {said_by} says",
            found=uuid or "none",
            remedy=remedy,
        )


def gone(key: str, doc: Document, said_by: str, now: datetime) -> Stale:
    """The refusal of a document whose metadata file is gone."""
    at, age = document.format_time(doc.written_at), lasting(now - doc.written_at)
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
        async for part in decompress(parts(files, key, first, PART), PART):
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
    return None if body is None else parsed(key, body)


def parsed(key: str, body: bytes) -> Metadata:
    """What stands in a metadata file of this JSON.

    Raises:
        MalformedMetadata: it is none.
    """
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
    names = sorted({MAIN_BRANCH, *there})
    more = f" and {len(names) - _REFS_NAMED:,} more" if len(names) > _REFS_NAMED else ""
    found = f"{', '.join(names[:_REFS_NAMED])}{more}"
    return RefNotFound(where, expected=f"a branch or tag {ref}", found=found, remedy="name one of them")


def malformed(key: str, expected: str, found: str) -> MalformedMetadata:
    """The refusal of a metadata file that is none."""
    return MalformedMetadata(key, expected=expected, found=found, remedy="ask the catalog which file is current")
