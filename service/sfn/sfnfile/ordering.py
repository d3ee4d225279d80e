"""The order of two metadata files of one table (specification, section 4). Timestamps are never used."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from sfn.sfnfile.locations import canonical

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
