"""The metadata file that a document names: whose it is, and what stands in it."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from sfn.clock import format_duration
from sfn.domain.identifiers import normal_uuid
from sfn.errors import CommitNotFound, LocationRefused, MalformedMetadata, RefNotFound, Stale, Unsafe, WrongTable
from sfn.reader.files import FIRST_READ_SIZE, PART_SIZE, FileReader, read_parts
from sfn.sfnfile import document
from sfn.sfnfile.document import LAST_ORDINAL, Document, render_ordinal
from sfn.sfnfile.locations import (
    canonical,
    check_any_scheme,
    check_literal,
    decompress,
    is_below,
    scheme_of,
    store_prefix,
)
from sfn.sfnfile.naming import MAIN_BRANCH

# ── identity: The `table-uuid` of a metadata file of any size

MAX_SCANNED_SIZE: Final = 1 << 30
"""Bytes of JSON that are looked through: what inflates to more is no metadata."""

MAX_SCAN_STEPS: Final = 8_000_000
"""Signs that are looked at one by one, in some seconds; metadata of 256 MiB takes 5 million where it is but schemas."""

_KEY: Final = "table-uuid"
_MAX_VALUE_LENGTH: Final = 400
"""Bytes of a string that are kept: no uuid is longer, however it is escaped."""

_SIGN: Final = re.compile(rb'["{}\[\],:]')
_STRING_SIGN: Final = re.compile(rb'["\\]')
_IN_STRING: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_TEXT: Final = rb'[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"'
_FLAT: Final = re.compile(rb"(?:%b|\{(?:%b)*+\}|\[(?:%b)*+\])*+" % (_TEXT, _TEXT, _TEXT), re.DOTALL)
"""Whole strings, whatever else neither opens nor closes anything, and what holds nothing but these."""

_NEAR: Final = re.compile(
    rb"""
    \s*+ \{ \s*+
    (?> "(?!table-uuid")[^"\\]*+" \s*+ : \s*+ (?: "[^"\\]*+" | [-+.0-9A-Za-z]++ ) \s*+ , \s*+ )*+
    "table-uuid" \s*+ : \s*+ "([-0-9A-Za-z]++)"
    """,
    re.VERBOSE,
)
"""A file that has it behind nothing but plain numbers and texts, as nearly all have."""


async def read_table_uuid(files: FileReader, key: str, first: bytes, most: int = MAX_SCANNED_SIZE) -> str | None:
    """The file's `table-uuid`; None where it has none, or is no metadata.

    Args:
        files: how to read the rest, as far as it is needed.
        key: the file's canonical URL.
        first: its first `FIRST_READ_SIZE` bytes.
        most: bytes of JSON that are looked through, to the end of their part.

    Raises:
        MalformedMetadata: it was not found in so many bytes, or in `MAX_SCAN_STEPS`. That is not to say that it has
            none: who takes the file for another table's would be misled.
    """
    if (near := _NEAR.match(first)) is not None:
        return near[1].decode()
    search = _UuidScanner()
    left = most
    try:
        async for part in decompress(read_parts(files, key, first, FIRST_READ_SIZE), PART_SIZE):
            search.feed(part)
            left -= len(part)
            if search.over:
                break
            if left <= 0 or search.is_exhausted:
                raise _uuid_not_found_error(key, most)
    except zlib.error:
        return None
    return search.value


def _uuid_not_found_error(key: str, most: int) -> MalformedMetadata:
    return MalformedMetadata(
        key,
        expected=f"a table-uuid in {most >> 20:,} MiB of JSON, and within {MAX_SCAN_STEPS:,} signs of it",
        found="none by then",
        remedy="ask the catalog which file is current: engines write it at the beginning",
    )


class _UuidScanner:
    """Looks for one key of the outermost object, and knows just as much JSON as that takes.

    Attributes:
        value: what was found, if it is a string.
        over: nothing that follows can change it.
    """

    def __init__(self) -> None:
        self.value: str | None = None
        self.over = False
        self._left = MAX_SCAN_STEPS
        self._depth = 0
        self._text: bytearray | None = None
        self._is_escaped = False
        self._last: str | None = None
        self._is_ours = False

    @property
    def is_exhausted(self) -> bool:
        """Whether it has taken as many steps as it may."""
        return self._left <= 0

    def feed(self, part: bytes) -> None:
        """Look at the next part, as far as steps are left."""
        at = 0
        while at < len(part) and not self.over and self._left > 0:
            self._left -= 1
            at = self._outside(part, at) if self._text is None else self._inside(self._text, part, at)

    def _outside(self, part: bytes, at: int) -> int:
        """Go to behind the next sign that means something."""
        if self._depth > 1 and (flat := _FLAT.match(part, at)) is not None:
            at = flat.end()
        sign = _SIGN.search(part, at)
        if sign is None:
            return len(part)
        match sign[0]:
            case b'"':
                self._text = bytearray()
            case b"{" | b"[":
                self._depth += 1
            case b"}" | b"]":
                self._depth -= 1
                self.over = self._depth <= 0
            case b":":
                self._is_ours = self._last == _KEY
            case b"," if self._depth == 1:
                self._is_ours = False
            case _:
                pass
        return sign.end()

    def _inside(self, text: bytearray, part: bytes, at: int) -> int:
        """Go to behind the next sign in a string."""
        if self._is_escaped:
            self._is_escaped = False
            self._keep(text, part[at : at + 1])
            return at + 1
        if (self._depth != 1 or len(text) == _MAX_VALUE_LENGTH) and (rest := _IN_STRING.match(part, at)) is not None:
            # Nothing of it is kept.
            at = rest.end()
        sign = _STRING_SIGN.search(part, at)
        if sign is None:
            self._keep(text, part[at:])
            return len(part)
        self._keep(text, part[at : sign.start()])
        if sign[0] == b"\\":
            self._is_escaped = True
            self._keep(text, b"\\")
        else:
            self._text = None
            self._closed(text)
        return sign.end()

    @staticmethod
    def _keep(text: bytearray, some: bytes) -> None:
        text += some[: _MAX_VALUE_LENGTH - len(text)]

    def _closed(self, text: bytearray) -> None:
        if self._depth != 1:
            return
        try:
            self._last = str(json.loads(f'"{text.decode()}"'))
        except ValueError:
            self._last = None
        if self._is_ours:
            self.value, self.over = self._last, True


# ── metadata: The metadata file that a document names

_T = TypeVar("_T")

MAX_METADATA_SIZE: Final = 256 << 20
"""Bytes of JSON of a metadata file that is read as a whole."""

_MAX_REFS_NAMED: Final = 20
_NONE: Final = -1
"""What writers in Java have for no snapshot, mostly in format version 1."""
_RESTORE: Final = "roll the table back to a snapshot that it has, or have its catalog name an earlier metadata file"


class MetadataRef(msgspec.Struct, rename="kebab", frozen=True):
    """A branch or tag (Iceberg specification, "Snapshot References")."""

    snapshot_id: int
    type: str = "branch"


class ListedSnapshot(msgspec.Struct, rename="kebab", frozen=True):
    """A snapshot, its schema, and where its manifests are listed; an old table has neither."""

    snapshot_id: int
    manifest_list: str | None = None
    schema_id: int | None = None


class SnapshotLogEntry(msgspec.Struct, rename="kebab", frozen=True):
    """An entry of the snapshot-log: which snapshot became current when."""

    timestamp_ms: int
    snapshot_id: int


class MetadataLogEntry(msgspec.Struct, rename="kebab", frozen=True):
    """An entry of the metadata-log: an earlier metadata file, and its `last-updated-ms`."""

    metadata_file: str
    timestamp_ms: int


class PartialMetadata(msgspec.Struct, rename="kebab", frozen=True):
    """What a reader needs of a table's metadata (Iceberg specification, "Table Metadata Fields").

    Attributes:
        metadata_log, snapshot_log: not decoded: only a reader that asks for a time needs them, see
        `metadata_log_entries`, `snapshot_log_entries`.
    """

    format_version: int | None = None
    last_updated_ms: int | None = None
    table_uuid: str | None = None
    current_snapshot_id: int | None = None
    refs: dict[str, MetadataRef] | None = None
    metadata_log: Raw = Raw(b"null")
    snapshots: list[ListedSnapshot] | None = None
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

    def metadata_log_entries(self, where: str) -> list[MetadataLogEntry]:
        """The earlier metadata files, oldest first.

        Raises:
            MalformedMetadata: the metadata-log is none.
        """
        return _decode_log(self.metadata_log, list[MetadataLogEntry], "metadata-log", where)

    def snapshot_log_entries(self, where: str) -> list[tuple[int, int]]:
        """When which snapshot became current: Unix milliseconds and ids, oldest first.

        Raises:
            MalformedMetadata: the snapshot-log is none.
        """
        log = _decode_log(self.snapshot_log, list[SnapshotLogEntry], "snapshot-log", where)
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
        raise ref_not_found_error(ref, refs, where)
    number = refs[ref] if ref != MAIN_BRANCH else None if current == _NONE else current
    if ref == MAIN_BRANCH and refs.get(MAIN_BRANCH, number) != number:
        found = f"the snapshot {refs[MAIN_BRANCH]} and {'none' if number is None else number}"
        expected = "one snapshot in `refs.main` and in `current-snapshot-id`"
        raise MalformedMetadata(where, expected=expected, found=found, remedy=_RESTORE)
    if number is not None and number not in snapshots:
        raise dangling_ref_error(ref, number, snapshots, where)
    return number


def dangling_ref_error(ref: str, number: int, snapshots: Collection[int], where: str) -> MalformedMetadata:
    """The refusal of a branch or tag at a snapshot that the metadata does not have.

    Args:
        number: that snapshot.
        snapshots: those that the metadata has.
    """
    field = "current-snapshot-id" if ref == MAIN_BRANCH else f"refs.{ref}"
    found = f"none among {len(snapshots):,}" if snapshots else "no snapshots at all"
    expected = f"the snapshot {number} of {ref} (`{field}`) in `snapshots`"
    return MalformedMetadata(where, expected=expected, found=found, remedy=_RESTORE)


def check_log_times(log: Iterable[tuple[int, object]], name: str, where: str) -> None:
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


def _decode_log(log: Raw, kind: type[list[_T]], name: str, where: str) -> list[_T]:
    try:
        return msgspec.json.decode(log, type=kind | None) or []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed_metadata_error(where, f"a {name}", f"{type(error).__name__}: {error}") from None


async def check_metadata(files: FileReader, key: str, doc: Document, named_by: str, now: datetime) -> None:
    """Refuse a metadata file that is gone or is another table's.

    Args:
        key: its canonical URL.
        doc: the document that names it.
        named_by: that document's URL.
        now: for the document's age.

    Raises:
        Stale: it is gone.
        WrongTable: it is another table's.
        MalformedMetadata: it is no metadata file.
    """
    first = await files.read(key, FIRST_READ_SIZE)
    if first is None:
        raise metadata_gone_error(key, doc, named_by, now)
    uuid = await read_table_uuid(files, key, first)
    if uuid is None:
        # What has none may be no metadata at all.
        uuid = (await read_metadata(files, key) or PartialMetadata()).table_uuid
    check_table_uuid(key, uuid, doc, named_by)


def check_table_uuid(key: str, uuid: str | None, doc: Document, named_by: str) -> None:
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
            expected=f"{'no table-uuid' if doc.guid is None else f'table-uuid {doc.guid}'}, as {named_by} says",
            found=uuid or "none",
            remedy=remedy,
        )


def metadata_gone_error(key: str, doc: Document, named_by: str, now: datetime) -> Stale:
    """The refusal of a document whose metadata file is gone."""
    at, age = document.format_time(doc.written_at), format_duration(now - doc.written_at)
    return Stale(
        key,
        expected=f"the metadata file that {named_by} named at {at}, {age} ago",
        found="no such file",
        remedy="see whether the service that writes the SFN file still runs, or ask the catalog",
    )


async def read_metadata_json(files: FileReader, key: str, longest: int = MAX_METADATA_SIZE) -> bytes | None:
    """A metadata file's JSON, decompressed; None where there is no file.

    Args:
        longest: bytes of it that are read.

    Raises:
        MalformedMetadata: it is longer, or its compression is broken.
    """
    first = await files.read(key, PART_SIZE)
    if first is None:
        return None
    body = bytearray()
    try:
        async for part in decompress(read_parts(files, key, first, PART_SIZE), PART_SIZE):
            body += part
            if len(body) > longest:
                raise malformed_metadata_error(key, f"at most {_mebibytes(longest)} MiB of JSON", "more")
    except zlib.error as error:
        raise malformed_metadata_error(key, "JSON, compressed or not", f"broken compression: {error}") from None
    return bytes(body)


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.4g}"


async def read_metadata(files: FileReader, key: str) -> PartialMetadata | None:
    """What stands in a metadata file; None where there is no file.

    Raises:
        MalformedMetadata: it is none.
    """
    body = await read_metadata_json(files, key)
    return None if body is None else parse_metadata(key, body)


def parse_metadata(key: str, body: bytes) -> PartialMetadata:
    """What stands in a metadata file of this JSON.

    Raises:
        MalformedMetadata: it is none.
    """
    try:
        found = msgspec.json.decode(body, type=PartialMetadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed_metadata_error(key, "an Iceberg metadata file", f"{type(error).__name__}: {error}") from None
    if found.format_version is None and found.table_uuid is None:
        raise malformed_metadata_error(key, "an Iceberg metadata file", "JSON without a format-version")
    return found


def ref_not_found_error(ref: str, there: Iterable[str], where: str) -> RefNotFound:
    """The refusal of a branch or tag that a metadata file does not have.

    Args:
        there: those that it has.
    """
    names = sorted({MAIN_BRANCH, *there})
    more = f" and {len(names) - _MAX_REFS_NAMED:,} more" if len(names) > _MAX_REFS_NAMED else ""
    found = f"{', '.join(names[:_MAX_REFS_NAMED])}{more}"
    return RefNotFound(where, expected=f"a branch or tag {ref}", found=found, remedy="name one of them")


def malformed_metadata_error(key: str, expected: str, found: str) -> MalformedMetadata:
    """The refusal of a metadata file that is none."""
    return MalformedMetadata(key, expected=expected, found=found, remedy="ask the catalog which file is current")


# ── trust: Which locations a reader follows that it was told by a file

_ESCAPE: Final = re.compile("%(?:2E|2F|5C)")
"""As `sfn.sfnfile.naming` writes them."""
_DECODED: Final = {"http", "https"}
"""Schemes whose servers take a part of a path for a query, and `%2F` for a separator."""


@dataclass(frozen=True, slots=True)
class AllowedLocations:
    """What is followed from one directory.

    Without `allowed` that is the directory's own bucket, container or host: who may write there could else have a
    reader show what only the reader may see.

    Attributes:
        directory: canonical URL that the reader was given.
        allowed: canonical prefixes; where there are any, what is followed lies below one of them or the directory.
    """

    directory: str
    allowed: tuple[str, ...] = ()

    def check_location(self, location: str, named_by: str) -> str:
        """The canonical form of a location that may be followed.

        Args:
            named_by: the file that names it.

        Raises:
            Unsafe: it is in another bucket or on another host, outside of what is allowed, relative, or has user
                information, a query, a control character, an encoded, empty or dotted segment.
        """
        _check_shape(location, location, named_by)
        return self._within(canonical(location), location, named_by)

    def check_file(self, location: str, named_by: str) -> str:
        """As `place`, of a file that a table's metadata names: what other locations may not have is part of its name.

        Over HTTP it is not, and may lead elsewhere.

        Raises:
            Unsafe: it is in another bucket or on another host, outside of what is allowed, relative, or has user
                information, a control character or a dotted segment; over HTTP also as of `place`.
        """
        if scheme_of(canonical(location)) in _DECODED:
            return self.check_location(location, named_by)
        try:
            place = check_literal(location)
        except LocationRefused as refused:
            raise _unsafe_error(refused, location, named_by) from None
        return self._within(place, location, named_by)

    def check_link(self, location: str, named_by: str) -> str:
        """As `place`, of an SFN file: one of a name with a dot or a slash is called by the escape of it.

        Over HTTP that is the character itself, and may lead elsewhere.
        """
        is_decoded = scheme_of(canonical(location)) in _DECODED
        _check_shape(location if is_decoded else _ESCAPE.sub("-", location), location, named_by)
        return self._within(canonical(location), location, named_by)

    def _within(self, place: str, location: str, named_by: str) -> str:
        if is_below(place, self.directory):
            return place
        if self.allowed:
            if any(is_below(place, prefix) for prefix in self.allowed):
                return place
            expected = f"a location below {', '.join((self.directory, *self.allowed))}"
        elif store_prefix(place) == store_prefix(self.directory):
            return place
        else:
            expected = f"a location in {store_prefix(self.directory)}, as the directory is"
        remedy = "if it is right, name it among the `allowed` prefixes (`--allow`); a mount is read with `relative`"
        raise Unsafe(named_by, expected=expected, found=location, remedy=remedy)


def _check_shape(shape: str, location: str, named_by: str) -> None:
    try:
        check_any_scheme(shape)
    except LocationRefused as refused:
        raise _unsafe_error(refused, location, named_by) from None


def _unsafe_error(refused: LocationRefused, location: str, named_by: str) -> Unsafe:
    return Unsafe(named_by, expected=refused.expected, found=f"{refused.found} in {location!r}")
