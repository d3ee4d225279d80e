"""The SFN document: its fields, and reading and writing its JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import msgspec

from sfn.domain.identifiers import normal_uuid
from sfn.errors import MalformedDocument, UnknownFormatVersion

_BITS: Final = 63
"""Bits of an integer without its sign, as in snapshot ids and times."""


class JsonFields:
    """Typed access to a JSON object; every mismatch is a ValueError that names the key.

    Strings can be encoded as UTF-8, integers have 64 bits.
    """

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    def text(self, key: str) -> str:
        value = self.raw.get(key)
        if not isinstance(value, str):
            message = f"{key} is {type(value).__name__}, not a string"
            raise ValueError(message)
        return _check_encodable(key, value)

    def optional_text(self, key: str) -> str | None:
        return None if self.raw.get(key) is None else self.text(key)

    def text_list(self, key: str) -> tuple[str, ...]:
        value = self.raw.get(key)
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            message = f"{key} is not an array of strings"
            raise ValueError(message)
        return tuple(_check_encodable(key, part) for part in value)

    def integer(self, key: str) -> int | None:
        value = self.raw.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            message = f"{key} is {type(value).__name__}, not an integer"
            raise ValueError(message)
        if value is not None and not -(1 << _BITS) <= value < 1 << _BITS:
            message = f"{key} is no integer of {_BITS + 1} bits"
            raise ValueError(message)
        return value

    def time(self, key: str) -> datetime:
        value = datetime.fromisoformat(self.text(key))
        if value.tzinfo is None:
            message = f"{key} has no time zone"
            raise ValueError(message)
        return value.astimezone(UTC)

    def count(self, key: str) -> int:
        value = self.integer(key) or 0
        if value < 0:
            message = f"{key} is negative"
            raise ValueError(message)
        return value

    def object(self, key: str) -> JsonFields | None:
        value = self.raw.get(key)
        if value is not None and not isinstance(value, dict):
            message = f"{key} is not an object"
            raise ValueError(message)
        return None if value is None else JsonFields(value)

    def tuples(self, key: str, names: tuple[str, ...]) -> list[JsonFields]:
        """Return an array of arrays, each as an object with these keys."""
        value = self.raw.get(key)
        value = [] if value is None else value
        if not isinstance(value, list) or not all(isinstance(one, list) and len(one) == len(names) for one in value):
            message = f"{key} is not an array of arrays of {', '.join(names)}"
            raise ValueError(message)
        return [JsonFields(dict(zip(names, one, strict=True))) for one in value]


def _check_encodable(key: str, text: str) -> str:
    """Return a text without lone surrogates, which JSON can contain but UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        message = f"{key} has a lone surrogate in it"
        raise ValueError(message) from None
    return text


VERSION = 1
MAX_DOCUMENT_BYTES = 64 * 1024
"""Most bytes of a document."""
MAX_HINT_WAS = 4
"""Most entries of `hint_was`."""
LAST_ORDINAL = 253_370_764_800_000
"""The greatest Ordinal derived from a metadata file, in Unix milliseconds; the year after it is left for successors."""

_MAX_CACHED_BYTES = 4 * 1024
"""Most bytes of a cached document: nearly all have fewer, and caching the longest would take half a gigabyte."""
_MAX_SHOWN = 300
"""Most characters of foreign content in an error message."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_ORDINAL = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(\d{3})?", re.ASCII)


class DocumentState(StrEnum):
    """The state of the table, according to its document."""

    CURRENT = "current"
    RENAMED = "renamed"
    MOVED = "moved"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Link:
    """The place and the table of another document: the value of `moved_to` and `name_now`."""

    namespace: tuple[str, ...]
    name: str
    sfn_file_path: str


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One commit of a head: an entry of `between`.

    Attributes:
        ordinal: Unix milliseconds.
        metadata_file_path: the metadata file of the commit.
        gap: the number of commits right before it that could not be rebuilt.
    """

    ordinal: int
    metadata_file_path: str
    gap: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """One SFN document; the attributes are the keys of the specification.

    Unknown keys are not preserved: a writer replaces the whole document.

    Attributes:
        guid: the table's uuid, as `normal_uuid` spells it.
        ordinal: `Ordinal` as Unix milliseconds.
        written_at: when the catalog's answer arrived; the content was true no later than then.
        asked_at: when the catalog was asked; orders the documents of one table under several names.
        turned: the step to this document was not known to be forward (a rollback, a re-creation, an undrop, or an
            unknown order).
        ref: the branch of the document.
        snapshot_id: the head of the branch; None for an empty table, or if only the metadata file has it.
        gap: with commit files, the number of commits right before this one that could not be rebuilt.
        between: with commit files, the commits for which this document's own swap made room, ascending.
    """

    catalog_id: str
    namespace: tuple[str, ...]
    name: str
    guid: str | None
    metadata_file_path: str
    ordinal: int
    written_at: datetime
    asked_at: datetime | None = None
    state: DocumentState = DocumentState.CURRENT
    ref: str = "main"
    snapshot_id: int | None = None
    metadata_file_relative: str | None = None
    moved_to: Link | None = None
    name_now: Link | None = None
    expires_at: datetime | None = None
    hint_was: tuple[str, ...] = ()
    gap: int = 0
    between: tuple[CommitEntry, ...] = ()
    turned: bool = False
    writer: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "guid", normal_uuid(self.guid))

    @property
    def as_of(self) -> datetime:
        """The time of the request to the catalog; for a document of an older writer, the time of the answer."""
        return self.asked_at or self.written_at

    @property
    def is_live(self) -> bool:
        """True if the document points to a table."""
        return self.state is DocumentState.CURRENT


def format_time(at: datetime) -> str:
    """Return RFC 3339 in UTC with milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def render_ordinal(milliseconds: int) -> str:
    """Return Unix milliseconds as `YYYYMMDDTHHMMSSmmm`."""
    at = _EPOCH + timedelta(milliseconds=milliseconds)
    # Not every platform's %Y has four digits before the year 1000.
    return f"{at.year:04d}{at:%m%dT%H%M%S}{at.microsecond // 1000:03d}"


def parse_ordinal(text: str) -> int:
    """Return an `Ordinal`, with or without its last three digits, as Unix milliseconds.

    Raises:
        ValueError: another form, or no such time.
    """
    match = _ORDINAL.fullmatch(text)
    if match is None:
        message = f"not of the form YYYYMMDDTHHMMSSmmm: {text!r}"
        raise ValueError(message)
    year, month, day, hour, minute, second, fraction = (int(part or 0) for part in match.groups())
    at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    return (at - _EPOCH) // _MILLISECOND + fraction


def render(document: Document) -> bytes:
    """Return the document's bytes, without empty keys."""
    body: dict[str, Any] = {
        "version": VERSION,
        "table_identifier": ".".join((*document.namespace, document.name)),
        "guid": document.guid,
        "metadata_file_path": document.metadata_file_path,
        "Ordinal": render_ordinal(document.ordinal),
        "catalog_id": document.catalog_id,
        "namespace": list(document.namespace),
        "name": document.name,
        "state": document.state.value,
        "ref": document.ref,
        "snapshot_id": document.snapshot_id,
        "metadata_file_relative": document.metadata_file_relative,
        "moved_to": _link_body(document.moved_to),
        "name_now": _link_body(document.name_now),
        "expires_at": format_time(document.expires_at) if document.expires_at else None,
        "hint_was": list(document.hint_was) or None,
        "gap": document.gap or None,
        "between": [_commit_body(commit) for commit in document.between] or None,
        "turned": document.turned or None,
        "asked_at": format_time(document.asked_at) if document.asked_at else None,
        "written_at": format_time(document.written_at),
        "writer": document.writer or None,
    }
    present = {key: value for key, value in body.items() if value is not None or key in {"guid", "snapshot_id"}}
    return _to_json(present) + b"\n"


def _to_json(body: dict[str, Any]) -> bytes:
    """Return an object as indented JSON, with the same bytes as `json.dumps`, which takes ten times as long."""
    try:
        return msgspec.json.format(msgspec.json.encode(body), indent=2)
    except (UnicodeEncodeError, OverflowError):
        # msgspec writes neither lone surrogates nor integers of more than 64 bits.
        return json.dumps(body, ensure_ascii=False, indent=2).encode("utf-8", "backslashreplace")


def parse(body: bytes) -> Document:
    """Return the document in a file's bytes.

    Raises:
        MalformedDocument: too long, no UTF-8 or with a byte order mark, no JSON object, or a missing or mistyped key.
        UnknownFormatVersion: another version.
    """
    # A publish parses the same bytes many times.
    return _parse_cached(body) if len(body) <= _MAX_CACHED_BYTES else _parse(body)


@lru_cache(4096)
def _parse_cached(body: bytes) -> Document:
    return _parse(body)


def _parse(body: bytes) -> Document:
    if len(body) > MAX_DOCUMENT_BYTES:
        raise _malformed(f"at most {MAX_DOCUMENT_BYTES} bytes", f"{len(body)} or more")
    try:
        # From bytes, `json.loads` would guess UTF-16 or UTF-32.
        raw = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise _malformed("a JSON object in UTF-8", f"{type(error).__name__}: {error}") from error
    if not isinstance(raw, dict):
        raise _malformed("a JSON object", f"a JSON {type(raw).__name__}")
    version = raw.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise _malformed(f"version {VERSION}", f"version {version!r}")
    if version != VERSION:
        remedy = "read it with the version of this package that wrote it, or a later one"
        found = _shortened(f"version {version}")
        raise UnknownFormatVersion("SFN document", expected=f"version {VERSION}", found=found, remedy=remedy)
    try:
        return _document(JsonFields(raw))
    except (ValueError, OverflowError) as error:
        raise _malformed("the keys of the specification", str(error)) from error


def _malformed(expected: str, found: str) -> MalformedDocument:
    return MalformedDocument("SFN document", expected=expected, found=_shortened(found))


def _shortened(found: str) -> str:
    return found if len(found) <= _MAX_SHOWN else f"{found[:_MAX_SHOWN]}…"


def _document(fields: JsonFields) -> Document:
    raw = fields.raw
    return Document(
        catalog_id=fields.text("catalog_id"),
        namespace=fields.text_list("namespace"),
        name=fields.text("name"),
        guid=fields.optional_text("guid"),
        metadata_file_path=fields.text("metadata_file_path"),
        ordinal=parse_ordinal(fields.text("Ordinal" if "Ordinal" in raw else "ordinal")),
        written_at=fields.time("written_at"),
        asked_at=fields.time("asked_at") if raw.get("asked_at") is not None else None,
        state=DocumentState(fields.optional_text("state") or DocumentState.CURRENT),
        ref=fields.optional_text("ref") or "main",
        snapshot_id=fields.integer("snapshot_id"),
        metadata_file_relative=fields.optional_text("metadata_file_relative"),
        moved_to=_link(fields, "moved_to"),
        name_now=_link(fields, "name_now"),
        expires_at=fields.time("expires_at") if raw.get("expires_at") is not None else None,
        hint_was=fields.text_list("hint_was")[:MAX_HINT_WAS] if raw.get("hint_was") is not None else (),
        gap=fields.count("gap"),
        between=_commits(fields, "between"),
        turned=raw.get("turned") is True,
        writer=fields.optional_text("writer") or "",
    )


def _link(fields: JsonFields, key: str) -> Link | None:
    inner = fields.object(key)
    return (
        None if inner is None else Link(inner.text_list("namespace"), inner.text("name"), inner.text("sfn_file_path"))
    )


def _commits(fields: JsonFields, key: str) -> tuple[CommitEntry, ...]:
    entries = fields.tuples(key, ("Ordinal", "path", "gap"))
    return tuple(
        CommitEntry(parse_ordinal(entry.text("Ordinal")), entry.text("path"), entry.count("gap")) for entry in entries
    )


def _commit_body(commit: CommitEntry) -> list[str | int]:
    return [render_ordinal(commit.ordinal), commit.metadata_file_path, commit.gap]


def _link_body(link: Link | None) -> dict[str, Any] | None:
    if link is None:
        return None
    return {
        "table_identifier": ".".join((*link.namespace, link.name)),
        "namespace": list(link.namespace),
        "name": link.name,
        "sfn_file_path": link.sfn_file_path,
    }
