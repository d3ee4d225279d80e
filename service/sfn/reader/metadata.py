"""Read and check the metadata file that a document names, and limit where documents and metadata may lead."""

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

MAX_SCANNED_SIZE: Final = 1 << 30
"""The maximum size in bytes of the JSON that is scanned: a file that inflates to more is no metadata."""

MAX_SCAN_STEPS: Final = 8_000_000
"""The maximum number of JSON signs in a scan, which takes some seconds; 256 MiB of nothing but schemas have 5 million.
"""

_KEY: Final = "table-uuid"
_MAX_VALUE_LENGTH: Final = 400
"""Bytes of a string that are stored: no uuid is longer, however it is escaped."""

_SIGN: Final = re.compile(rb'["{}\[\],:]')
_STRING_SIGN: Final = re.compile(rb'["\\]')
_IN_STRING: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_TEXT: Final = rb'[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"'
_FLAT: Final = re.compile(rb"(?:%b|\{(?:%b)*+\}|\[(?:%b)*+\])*+" % (_TEXT, _TEXT, _TEXT), re.DOTALL)
"""Whole strings, other text without brackets, and objects or arrays that contain only these."""

_NEAR: Final = re.compile(
    rb"""
    \s*+ \{ \s*+
    (?> "(?!table-uuid")[^"\\]*+" \s*+ : \s*+ (?: "[^"\\]*+" | [-+.0-9A-Za-z]++ ) \s*+ , \s*+ )*+
    "table-uuid" \s*+ : \s*+ "([-0-9A-Za-z]++)"
    """,
    re.VERBOSE,
)
"""The beginning of nearly all files: the uuid after nothing but plain numbers and strings."""


async def read_table_uuid(files: FileReader, key: str, first: bytes, most: int = MAX_SCANNED_SIZE) -> str | None:
    """Return the file's `table-uuid`; None if it has none, or is no metadata.

    Args:
        files: access to the rest of the file, which is read as far as needed.
        key: the file's canonical URL.
        first: its first `FIRST_READ_SIZE` bytes.
        most: the maximum number of bytes of JSON that are scanned, rounded up to a whole part.

    Raises:
        MalformedMetadata: the uuid was not found within `most` bytes or `MAX_SCAN_STEPS`. This is an error and not
            None, which would mean that the file is another table's.
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
        expected=f"a table-uuid in the first {most >> 20:,} MiB of JSON, within {MAX_SCAN_STEPS:,} signs",
        found="none by then",
        remedy="ask the catalog which file is current; engines write the uuid at the beginning",
    )


class _UuidScanner:
    """A scanner for one key of the outermost object, which parses only as much JSON as that needs.

    Attributes:
        value: the value that was found, if it is a string.
        over: whether the scan is finished: nothing that follows can change the value.
    """

    def __init__(self) -> None:
        self.value: str | None = None
        self.over = False
        self._left = MAX_SCAN_STEPS
        self._depth = 0
        self._text: bytearray | None = None
        self._is_escaped = False
        self._last: str | None = None
        self._is_uuid_next = False

    @property
    def is_exhausted(self) -> bool:
        """True once the scan has used all its steps."""
        return self._left <= 0

    def feed(self, part: bytes) -> None:
        """Scan the next part, as far as steps are left."""
        at = 0
        while at < len(part) and not self.over and self._left > 0:
            self._left -= 1
            at = self._outside(part, at) if self._text is None else self._inside(self._text, part, at)

    def _outside(self, part: bytes, at: int) -> int:
        """Return the position after the next sign outside of strings."""
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
                self._is_uuid_next = self._last == _KEY
            case b"," if self._depth == 1:
                self._is_uuid_next = False
            case _:
                pass
        return sign.end()

    def _inside(self, text: bytearray, part: bytes, at: int) -> int:
        """Return the position after the next sign inside a string."""
        if self._is_escaped:
            self._is_escaped = False
            self._keep(text, part[at : at + 1])
            return at + 1
        if (self._depth != 1 or len(text) == _MAX_VALUE_LENGTH) and (rest := _IN_STRING.match(part, at)) is not None:
            # The text is not stored.
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
        if self._is_uuid_next:
            self.value, self.over = self._last, True


_T = TypeVar("_T")

MAX_METADATA_SIZE: Final = 256 << 20
"""The maximum size in bytes of the JSON of a metadata file that is read as a whole."""

_MAX_REFS_NAMED: Final = 20
_NONE: Final = -1
"""Java writers' value for no snapshot, mostly in format version 1."""
_RESTORE: Final = "roll the table back to a snapshot that it has, or have its catalog name an earlier metadata file"


class MetadataRef(msgspec.Struct, rename="kebab", frozen=True):
    """A branch or tag (Iceberg specification, "Snapshot References")."""

    snapshot_id: int
    type: str = "branch"


class ListedSnapshot(msgspec.Struct, rename="kebab", frozen=True):
    """A snapshot, its schema, and the location of its manifest list; an old table has neither."""

    snapshot_id: int
    manifest_list: str | None = None
    schema_id: int | None = None


class SnapshotLogEntry(msgspec.Struct, rename="kebab", frozen=True):
    """An entry of the snapshot-log: the time at which a snapshot became current."""

    timestamp_ms: int
    snapshot_id: int


class MetadataLogEntry(msgspec.Struct, rename="kebab", frozen=True):
    """An entry of the metadata-log: an earlier metadata file, and its `last-updated-ms`."""

    metadata_file: str
    timestamp_ms: int


class PartialMetadata(msgspec.Struct, rename="kebab", frozen=True):
    """The part of a table's metadata that a reader needs (Iceberg specification, "Table Metadata Fields").

    Attributes:
        metadata_log, snapshot_log: not decoded, because only questions about a time need them; see
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
        """Return the snapshot of a branch or tag, see `head_of`.

        Args:
            where: the metadata file.
        """
        refs = {name: one.snapshot_id for name, one in (self.refs or {}).items()}
        return head_of(ref, self.current_snapshot_id, refs, self.snapshot_ids, where)

    @property
    def snapshot_ids(self) -> list[int]:
        """The ids of the table's snapshots."""
        return [one.snapshot_id for one in self.snapshots or ()]

    def metadata_log_entries(self, where: str) -> list[MetadataLogEntry]:
        """Return the earlier metadata files, oldest first.

        Raises:
            MalformedMetadata: the metadata-log is not valid.
        """
        return _decode_log(self.metadata_log, list[MetadataLogEntry], "metadata-log", where)

    def snapshot_log_entries(self, where: str) -> list[tuple[int, int]]:
        """Return time (Unix milliseconds) and id of each snapshot that became current, oldest first.

        Raises:
            MalformedMetadata: the snapshot-log is not valid.
        """
        log = _decode_log(self.snapshot_log, list[SnapshotLogEntry], "snapshot-log", where)
        return [(one.timestamp_ms, one.snapshot_id) for one in log]


def head_of(
    ref: str, current: int | None, refs: Mapping[str, int], snapshots: Collection[int], where: str
) -> int | None:
    """Return the snapshot of a branch or tag; None for branch `main` of an empty table.

    The rule is that of Iceberg's own library: `main` is at `current-snapshot-id`; `refs.main` may be missing, but if
    the metadata has both, they agree; and each snapshot that is read is in `snapshots`. Errors of other branches and
    tags do not matter.

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
    """Return the error for a branch or tag at a snapshot that the metadata does not contain.

    Args:
        number: the missing snapshot.
        snapshots: the ids of the snapshots that the metadata contains.
    """
    field = "current-snapshot-id" if ref == MAIN_BRANCH else f"refs.{ref}"
    found = f"none among {len(snapshots):,}" if snapshots else "no snapshots at all"
    expected = f"the snapshot {number} of {ref} (`{field}`) in `snapshots`"
    return MalformedMetadata(where, expected=expected, found=found, remedy=_RESTORE)


def check_log_times(log: Iterable[tuple[int, object]], name: str, where: str) -> None:
    """Refuse a log with impossible times, such as microseconds or negative numbers.

    Args:
        log: its times, in Unix milliseconds, each with the thing that it is the time of.
        name: the log's name.
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
    """Return whether a number is a time in Unix milliseconds within the range of Ordinals."""
    return 0 <= milliseconds <= LAST_ORDINAL


def _decode_log(log: Raw, kind: type[list[_T]], name: str, where: str) -> list[_T]:
    try:
        return msgspec.json.decode(log, type=kind | None) or []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed_metadata_error(where, f"a {name}", f"{type(error).__name__}: {error}") from None


async def check_metadata(files: FileReader, key: str, doc: Document, named_by: str, now: datetime) -> None:
    """Check that a metadata file exists and is the table's.

    Args:
        key: its canonical URL.
        doc: the document that names it.
        named_by: that document's URL.
        now: the present time, to state the document's age.

    Raises:
        Stale: the file is gone.
        WrongTable: the file is another table's.
        MalformedMetadata: the file is no metadata file.
    """
    first = await files.read(key, FIRST_READ_SIZE)
    if first is None:
        raise metadata_gone_error(key, doc, named_by, now)
    uuid = await read_table_uuid(files, key, first)
    if uuid is None:
        # A file without a uuid may be no metadata at all.
        uuid = (await read_metadata(files, key) or PartialMetadata()).table_uuid
    check_table_uuid(key, uuid, doc, named_by)


def check_table_uuid(key: str, uuid: str | None, doc: Document, named_by: str) -> None:
    """Check that a metadata file is the table's.

    Args:
        uuid: the file's `table-uuid`.

    Raises:
        WrongTable: it is not.
    """
    if normal_uuid(uuid) != doc.guid:
        remedy = "the table was recreated, or the file is forged: run `sfn verify` with the catalog's configuration"
        raise WrongTable(
            key,
            expected=f"{'no table-uuid' if doc.guid is None else f'table-uuid {doc.guid}'}, as {named_by} says",
            found=uuid or "none",
            remedy=remedy,
        )


def metadata_gone_error(key: str, doc: Document, named_by: str, now: datetime) -> Stale:
    """Return the error for a document that names a metadata file that is gone."""
    at, age = document.format_time(doc.written_at), format_duration(now - doc.written_at)
    return Stale(
        key,
        expected=f"the metadata file that {named_by} named at {at}, {age} ago",
        found="no such file",
        remedy="check that the listener which writes the SFN file is running, or ask the catalog",
    )


async def read_metadata_json(files: FileReader, key: str, longest: int = MAX_METADATA_SIZE) -> bytes | None:
    """Return a metadata file's JSON, decompressed; None if there is no file.

    Args:
        longest: the maximum size of the JSON in bytes.

    Raises:
        MalformedMetadata: the JSON is longer, or its compression is broken.
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
    """Read and decode a metadata file; return None if there is no file.

    Raises:
        MalformedMetadata: the file is no metadata file.
    """
    body = await read_metadata_json(files, key)
    return None if body is None else parse_metadata(key, body)


def parse_metadata(key: str, body: bytes) -> PartialMetadata:
    """Decode the JSON of a metadata file.

    Raises:
        MalformedMetadata: the JSON is no metadata.
    """
    try:
        found = msgspec.json.decode(body, type=PartialMetadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed_metadata_error(key, "an Iceberg metadata file", f"{type(error).__name__}: {error}") from None
    if found.format_version is None and found.table_uuid is None:
        raise malformed_metadata_error(key, "an Iceberg metadata file", "JSON without a format-version")
    return found


def ref_not_found_error(ref: str, there: Iterable[str], where: str) -> RefNotFound:
    """Return the error for a branch or tag that a metadata file does not contain.

    Args:
        there: the branches and tags that it contains.
    """
    names = sorted({MAIN_BRANCH, *there})
    more = f" and {len(names) - _MAX_REFS_NAMED:,} more" if len(names) > _MAX_REFS_NAMED else ""
    found = f"{', '.join(names[:_MAX_REFS_NAMED])}{more}"
    return RefNotFound(where, expected=f"a branch or tag {ref}", found=found, remedy="name one of them")


def malformed_metadata_error(key: str, expected: str, found: str) -> MalformedMetadata:
    """Return the error for a file that is no valid metadata file."""
    return MalformedMetadata(key, expected=expected, found=found, remedy="ask the catalog which file is current")


_ESCAPE: Final = re.compile("%(?:2E|2F|5C)")
"""The escapes that `sfn.sfnfile.naming` writes."""
_DECODED: Final = {"http", "https"}
"""Schemes with servers that take part of a path for a query, and `%2F` for a separator."""


@dataclass(frozen=True, slots=True)
class AllowedLocations:
    """The locations that a reader follows from one directory.

    Without `allowed` these are all in the directory's own bucket, container or host. Otherwise a person who may write
    to the directory could make a reader show files that only the reader may see.

    Attributes:
        directory: canonical URL that the reader was given.
        allowed: canonical prefixes; if there are any, a location must lie below one of them or the directory.
    """

    directory: str
    allowed: tuple[str, ...] = ()

    def check_location(self, location: str, named_by: str) -> str:
        """Return the canonical form of a location if it is allowed.

        Args:
            named_by: the file that names the location.

        Raises:
            Unsafe: it is in another bucket or on another host, not below an allowed prefix, relative, or has user
                information, a query, a control character, an encoded, empty or dotted segment.
        """
        _check_shape(location, location, named_by)
        return self._within(canonical(location), location, named_by)

    def check_file(self, location: str, named_by: str) -> str:
        """Check the location of a file that a table's metadata names, in which `%2F`, `?` and `#` are part of the name.

        Over HTTP they are not, and may lead elsewhere.

        Raises:
            Unsafe: it is in another bucket or on another host, not below an allowed prefix, relative, or has user
                information, a control character or a dotted segment; over HTTP also as for `check_location`.
        """
        if scheme_of(canonical(location)) in _DECODED:
            return self.check_location(location, named_by)
        try:
            place = check_literal(location)
        except LocationRefused as refused:
            raise _unsafe_error(refused, location, named_by) from None
        return self._within(place, location, named_by)

    def check_link(self, location: str, named_by: str) -> str:
        """Check the location of an SFN file; its name may contain an escaped dot or slash.

        Over HTTP an escape means the character itself, and may lead elsewhere.
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
        remedy = "if it is right, add it to the `allowed` prefixes (`--allow`); for a mount, use `relative`"
        raise Unsafe(named_by, expected=expected, found=location, remedy=remedy)


def _check_shape(shape: str, location: str, named_by: str) -> None:
    try:
        check_any_scheme(shape)
    except LocationRefused as refused:
        raise _unsafe_error(refused, location, named_by) from None


def _unsafe_error(refused: LocationRefused, location: str, named_by: str) -> Unsafe:
    return Unsafe(named_by, expected=refused.expected, found=f"{refused.found} in {location!r}")
