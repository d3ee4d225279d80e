"""Locations: canonical spellings, checks of foreign locations, order of metadata files, and their decompression.

`file:/x`, `file:///x`, `file://localhost/x` and `/x` are one location. `s3`, `s3a` and `s3n` are one scheme, and so are
`gs` and `gcs`. On Azure, four schemes and two hosts name one place: `abfs(s)` and `wasb(s)`, `dfs` and `blob`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final

from sfn.errors import LocationRefused

_SCHEMES: Final = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfss",
    "abfss": "abfss",
    "wasb": "abfss",
    "wasbs": "abfss",
}
_KNOWN: Final = frozenset(_SCHEMES.values())
_AZURE: Final = "abfss"

_WIDEN: Final = "move the table, or widen `allowed_locations` of its catalog"
_SPELL: Final = "create the table at a location of that form and copy its rows; no setting allows this one"

_SPLIT = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_MISLEADING = re.compile(r"[\\?#%]")
_BAD_CHARACTER = re.compile(r"[\x00-\x1f\x7f\\?#\ud800-\udfff]")
_SLASHES = re.compile("//+")
_ENCODED_SEPARATOR = re.compile(r"%(?:2e|2f|5c|00)", re.IGNORECASE)


@lru_cache(4096)
def canonical(location: str) -> str:
    """Return one spelling for all spellings of a location, for comparison. Never raises; an invalid location is
    unchanged.
    """
    text = f"file://{location}" if location.startswith("/") else location
    match = _SPLIT.fullmatch(text)
    if match is None:
        return location
    scheme = _SCHEMES.get(match[1].lower(), match[1].lower())
    path = (match[3] or "").rstrip("/")
    return f"{scheme}://{_authority(scheme, match[2] or '')}{path}"


def _authority(scheme: str, authority: str) -> str:
    """Return one spelling of an authority. Hosts have no case; names of buckets and containers are unchanged."""
    if scheme == "file":
        return "" if authority.lower() == "localhost" else authority
    if scheme != _AZURE:
        return authority
    container, at, host = authority.rpartition("@")
    account, *service = host.lower().split(".")
    # One account answers at both hosts, and the listener uses `blob` for either.
    return container + at + ".".join([account, *("dfs" if label == "blob" else label for label in service)])


def check_location(location: str, allowed: Sequence[str] = ()) -> str:
    """Return the canonical form of a location that may be written to.

    Args:
        location: the location as the catalog gives it.
        allowed: canonical prefixes; the location must be below one. Empty for no restriction.

    Raises:
        LocationRefused: another scheme, no absolute path, user information, a query, a fragment, a control character, a
            backslash, an encoded or empty or dotted segment, or a location that is not below `allowed`.
    """
    canonical_location = _check_known_scheme(location)
    if allowed and not any(is_below(canonical_location, prefix) for prefix in allowed):
        expected, remedy = f"a location below one of {', '.join(allowed)}", _WIDEN
        raise _refused(location, expected, "a location outside of them", remedy)
    return canonical_location


@lru_cache(4096)
def check_any_scheme(location: str) -> str:
    """Return the canonical form of a location of any scheme, with a path that leads where it seems to.

    Raises:
        LocationRefused: as in `check_location`, except for the scheme.
    """
    canonical_location = canonical(location)
    match = _SPLIT.fullmatch(canonical_location)
    if match is None:
        raise _refused(location, "an absolute location", "another form")
    _check_shape(location, match[1], match[2] or "", match[3] or "")
    return canonical_location


@lru_cache(4096)
def check_literal(location: str) -> str:
    """Return the canonical form of a file's location with a literal path: for stores that are no web servers.

    `#`, `?`, `%`, a backslash and empty segments are part of a name there. A file system ignores empty segments, so
    they are removed for `file:`.

    Raises:
        LocationRefused: no absolute path, user information, a control character, a `.` or `..` segment.
    """
    canonical_location = canonical(location)
    match = _SPLIT.fullmatch(canonical_location)
    if match is None:
        raise _refused(location, "an absolute location", "another form")
    scheme, authority, path = match[1], match[2] or "", match[3] or ""
    _check_authority(location, scheme, authority)
    if _CONTROL.search(location) or _MISLEADING.search(authority):
        raise _refused(location, "no control character", "one")
    if not path or not {".", ".."}.isdisjoint(path.split("/")):
        raise _refused(location, "a path without `.` or `..` segments", f"path {path!r}")
    return f"{scheme}://{_SLASHES.sub('/', path)}" if scheme == "file" else canonical_location


def scheme_of(location: str) -> str:
    """Return the scheme of a canonical location."""
    return location.partition(":")[0]


def is_below(location: str, prefix: str) -> bool:
    """Return whether a canonical location is the prefix or lies below it, by whole segments."""
    return location == prefix or location.startswith(prefix.rstrip("/") + "/")


def longest_prefix(location: str, prefixes: Iterable[str]) -> str | None:
    """Return the longest canonical prefix that a canonical location lies below; None without one."""
    return max((prefix for prefix in prefixes if is_below(location, prefix)), key=len, default=None)


def store_prefix(location: str, prefixes: Collection[str] = ()) -> str:
    """Return the prefix of a location's store, which also identifies its circuit breaker.

    Args:
        location: a canonical location.
        prefixes: canonical prefixes, each a store of its own, such as a mount.

    Returns:
        The longest prefix that the location lies below, else its scheme and authority.
    """
    if (prefix := longest_prefix(location, prefixes)) is not None:
        return prefix
    match = _SPLIT.fullmatch(location)
    return f"{match[1]}://{match[2] or ''}" if match else location


@lru_cache(4096)
def _check_known_scheme(location: str) -> str:
    canonical_location = canonical(location)
    match = _SPLIT.fullmatch(canonical_location)
    if match is None or match[1] not in _KNOWN:
        raise _refused(location, f"a location on one of {', '.join(sorted(_KNOWN))}", "another scheme")
    _check_shape(location, match[1], match[2] or "", match[3] or "")
    return canonical_location


def _check_authority(location: str, scheme: str, authority: str) -> None:
    if scheme in _KNOWN and bool(authority) == (scheme == "file"):
        raise _refused(location, "a bucket or container, and none for file:", f"authority {authority!r}")
    if "@" in authority and scheme != _AZURE:
        raise _refused(location, "no user information", f"authority {authority!r}")


def _check_shape(location: str, scheme: str, authority: str, path: str) -> None:
    _check_authority(location, scheme, authority)
    if _BAD_CHARACTER.search(location) or _ENCODED_SEPARATOR.search(location):
        raise _refused(
            location,
            "no control character, backslash, query, fragment or encoded separator",
            "one of these",
        )
    segments = path.split("/")[1:]
    if not segments or not {"", ".", ".."}.isdisjoint(segments):
        raise _refused(location, "a path without empty, `.` or `..` segments", f"path {path!r}")


def _refused(location: str, expected: str, found: str, remedy: str = _SPELL) -> LocationRefused:
    return LocationRefused(f"location {location!r}", expected=expected, found=found, remedy=remedy)


_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
_MAX_OVERHEAD: Final = 1 << 20
"""Most bytes that compression may add: incompressible data takes a few more bytes per block."""


def is_compressed(start: bytes) -> bool:
    """Return whether a file with this beginning is compressed. File names do not show it, as they differ between
    engines.
    """
    return start.startswith(_GZIP)


async def decompress(parts: AsyncIterator[bytes], limit: int) -> AsyncGenerator[bytes]:
    """Yield the parts of a file, decompressed if needed; stop reading once a compressed file has ended.

    Data after the first gzip member is ignored, because Iceberg writes a single one.

    Args:
        parts: the parts of the file, none empty.
        limit: most bytes of a decompressed part.

    Raises:
        zlib.error: the compression is broken, or many bytes decompress to next to nothing.
    """
    inflater, is_begun = None, False
    wasted = 0
    async for part in parts:
        if not is_begun and is_compressed(part):
            inflater = zlib.decompressobj(_GZIP_WINDOW)
        is_begun = True
        if inflater is None:
            yield part
            continue
        wasted += len(part)
        more = inflater.decompress(part, limit)
        while more:
            wasted -= len(more)
            yield more
            more = inflater.decompress(inflater.unconsumed_tail, limit)
        if inflater.eof:
            return
        if wasted > _MAX_OVERHEAD:
            raise zlib.error("more compressed than not")


# ── The order of two metadata files of one table (specification, section 4). Timestamps are never used.

# At most 18 digits: a longer number is no counter, and `int` refuses numbers of thousands of digits.
_NUMBERED = re.compile(r"(\d{1,18})-[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b.*", re.ASCII)


_SLASHES_OF_AUTHORITY: Final = 2
"""Slashes of a location without a path: `s3://bucket`."""


class MetadataOrder(StrEnum):
    """The order of a candidate relative to the published metadata file."""

    SAME = "same"
    NEWER = "newer"
    OLDER = "older"
    UNKNOWN = "unknown"


def metadata_version(pointer: str) -> int | None:
    """Return the number of a metadata file named `NNNNN-<uuid>…`; None for any other name."""
    match = _NUMBERED.fullmatch(pointer.rsplit("/", 1)[-1])
    return int(match[1]) if match else None


def compare_metadata(
    published: str, published_log: Iterable[str], candidate: str, candidate_log: Iterable[str]
) -> MetadataOrder:
    """Order a candidate relative to the published metadata file.

    The metadata logs decide first. Only if neither log decides, and both names have different numbers, the numbers do.

    Args:
        published, candidate: metadata locations.
        published_log, candidate_log: the metadata log of each; empty if unknown.
    """
    published_location, candidate_location = canonical(published), canonical(candidate)
    if published_location == candidate_location:
        return MetadataOrder.SAME
    if _log_has(candidate_log, published_location):
        return MetadataOrder.NEWER
    if _log_has(published_log, candidate_location):
        return MetadataOrder.OLDER
    a, b = metadata_version(published), metadata_version(candidate)
    if a is None or b is None or a == b:
        return MetadataOrder.UNKNOWN
    return MetadataOrder.NEWER if b > a else MetadataOrder.OLDER


def _log_has(log: Iterable[str], pointer: str) -> bool:
    """Return whether a metadata log has a canonical location, in any spelling."""
    # The spellings of a location differ in scheme, authority and trailing slashes, but never in the last name of the
    # path. So hardly an entry needs to be made canonical, which takes longer than to search for the name.
    name = pointer.rpartition("/")[2] if pointer.count("/") > _SLASHES_OF_AUTHORITY else ""
    return pointer in [canonical(entry) for entry in log if name in entry]


def is_at_or_after(pointer: str, log: Iterable[str], floor: str) -> bool:
    """Return whether a metadata location is known to be at or after the one in an event."""
    return compare_metadata(floor, (), pointer, log) in {MetadataOrder.SAME, MetadataOrder.NEWER}


def newer_floor(first: str | None, second: str | None) -> str | None:
    """Return the newer of two metadata locations: by number if both have one, else the second, which is of the later
    event.
    """
    if first is None or second is None:
        return second or first
    # Nearly always the second is newer. Numbers of the same length compare as texts, which is faster than parsing.
    digits, others = _digits(first), _digits(second)
    if len(digits) == len(others) and digits <= others:
        return second
    a, b = metadata_version(first), metadata_version(second)
    return first if a is not None and b is not None and a > b else second


def _digits(pointer: str) -> str:
    """Return the part of a metadata file's name where its number is, if it has one."""
    start = pointer.rfind("/") + 1
    return pointer[start : pointer.find("-", start)]
