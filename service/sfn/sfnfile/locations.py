"""Locations: which spellings are one place, and which are refused.

`file:/x`, `file:///x`, `file://localhost/x` and `/x` are one location. `s3`, `s3a` and `s3n` are one scheme, and so are
`gs` and `gcs`. Azure has one place under four schemes and two hosts: `abfs(s)` and `wasb(s)`, `dfs` and `blob`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Final

from sfn.errors import LocationRefused

# ── location: Locations

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
    """One spelling for all spellings of a place, for comparison. Never raises; nonsense stays as it is."""
    text = f"file://{location}" if location.startswith("/") else location
    match = _SPLIT.fullmatch(text)
    if match is None:
        return location
    scheme = _SCHEMES.get(match[1].lower(), match[1].lower())
    path = (match[3] or "").rstrip("/")
    return f"{scheme}://{_authority(scheme, match[2] or '')}{path}"


def _authority(scheme: str, authority: str) -> str:
    """One spelling of an authority. Hosts have no case; the names of buckets and containers are taken as they are."""
    if scheme == "file":
        return "" if authority.lower() == "localhost" else authority
    if scheme != _AZURE:
        return authority
    container, at, host = authority.rpartition("@")
    account, *service = host.lower().split(".")
    # One account answers at both hosts, and the service asks `blob` for either.
    return container + at + ".".join([account, *("dfs" if label == "blob" else label for label in service)])


def check_location(location: str, allowed: Sequence[str] = ()) -> str:
    """The canonical form of a location that is fit to be written to.

    Args:
        location: as the catalog gives it.
        allowed: canonical prefixes of which it must lie below one; empty for no restriction.

    Raises:
        LocationRefused: another scheme, no absolute path, user information, a query, a fragment, a control character,
            a backslash, an encoded or empty or dotted segment, or a place that is not below `allowed`.
    """
    canonical_location = _check_known_scheme(location)
    if allowed and not any(is_below(canonical_location, prefix) for prefix in allowed):
        expected, remedy = f"a location below one of {', '.join(allowed)}", _WIDEN
        raise _refused(location, expected, "a location outside of them", remedy)
    return canonical_location


@lru_cache(4096)
def check_any_scheme(location: str) -> str:
    """The canonical form of a location of any scheme, whose path leads where it seems to.

    Raises:
        LocationRefused: as of `checked`, but for the scheme.
    """
    canonical_location = canonical(location)
    match = _SPLIT.fullmatch(canonical_location)
    if match is None:
        raise _refused(location, "an absolute location", "another form")
    _check_shape(location, match[1], match[2] or "", match[3] or "")
    return canonical_location


@lru_cache(4096)
def check_literal(location: str) -> str:
    """Return the canonical form of a file's location, whose path stands for itself: for stores that are no web servers.

    `#`, `?`, `%`, a backslash and empty segments are part of a name there. A file system ignores empty segments, so
    they are left out for one.

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
    """The scheme of a canonical location."""
    return location.partition(":")[0]


def is_below(location: str, prefix: str) -> bool:
    """Whether a canonical location is the prefix or lies in it, by whole segments."""
    return location == prefix or location.startswith(prefix.rstrip("/") + "/")


def longest_prefix(location: str, prefixes: Iterable[str]) -> str | None:
    """The longest of some canonical prefixes that a canonical location lies below."""
    return max((prefix for prefix in prefixes if is_below(location, prefix)), key=len, default=None)


def store_prefix(location: str, prefixes: Collection[str] = ()) -> str:
    """What one store, and one breaker, stands for.

    Args:
        location: a canonical location.
        prefixes: canonical, each a store of its own, such as a mount.

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


# ── inflate: Metadata files that are compressed

_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
_MAX_OVERHEAD: Final = 1 << 20
"""Bytes by which a file may be longer compressed than not: what can't be compressed takes a few more in each block."""


def is_compressed(start: bytes) -> bool:
    """Whether a file that begins so is compressed: told by content, as file names differ from engine to engine."""
    return start.startswith(_GZIP)


async def decompress(parts: AsyncIterator[bytes], limit: int) -> AsyncGenerator[bytes]:
    """The parts of a file as they are, or decompressed; no more are asked for once a compressed file has ended.

    What another gzip file behind that end would hold is passed over: Iceberg writes a single one.

    Args:
        parts: none empty.
        limit: bytes of a part that comes out of decompression.

    Raises:
        zlib.error: the compression is broken, or says next to nothing in many bytes.
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
