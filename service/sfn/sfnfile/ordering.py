"""Newer or older: the order of two pointers of one table (specification, section 4). Never by a timestamp."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from sfn.sfnfile.locations import canonical

# Of 18 digits at most, as a longer one is no counter, and `int` refuses some thousands of them.
_NUMBERED = re.compile(r"(\d{1,18})-[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b.*", re.ASCII)


class MetadataOrder(StrEnum):
    """What a candidate is to the pointer that is held."""

    SAME = "same"
    NEWER = "newer"
    OLDER = "older"
    UNKNOWN = "unknown"


def metadata_version(pointer: str) -> int | None:
    """The number of a metadata file called `NNNNN-<uuid>…`, None for any other name."""
    match = _NUMBERED.fullmatch(pointer.rsplit("/", 1)[-1])
    return int(match[1]) if match else None


def compare_metadata(held: str, held_log: Iterable[str], candidate: str, candidate_log: Iterable[str]) -> MetadataOrder:
    """Order a candidate against the held pointer.

    The metadata-logs decide first; only where both are silent and both names carry different numbers do these decide.

    Args:
        held, candidate: metadata locations.
        held_log, candidate_log: the metadata-log of each, empty where unknown.
    """
    held_location, candidate_location = canonical(held), canonical(candidate)
    if held_location == candidate_location:
        return MetadataOrder.SAME
    if _log_has(candidate_log, held_location):
        return MetadataOrder.NEWER
    if _log_has(held_log, candidate_location):
        return MetadataOrder.OLDER
    a, b = metadata_version(held), metadata_version(candidate)
    if a is None or b is None or a == b:
        return MetadataOrder.UNKNOWN
    return MetadataOrder.NEWER if b > a else MetadataOrder.OLDER


def _log_has(log: Iterable[str], pointer: str) -> bool:
    """Whether a metadata-log has a canonical pointer, looked for from the newest entry on: most often that is it."""
    return any(canonical(entry) == pointer for entry in reversed(tuple(log)))


def is_at_or_after(pointer: str, log: Iterable[str], floor: str) -> bool:
    """Whether a pointer is known to be at or after one that an event told of."""
    return compare_metadata(floor, (), pointer, log) in {MetadataOrder.SAME, MetadataOrder.NEWER}


def newer_floor(first: str | None, second: str | None) -> str | None:
    """Of two floors the one to keep: by number where both have one, else the second (the later told)."""
    if first is None or second is None:
        return second or first
    # Nearly always the second is the higher one, and that takes no look at what the names are made of: of texts of the
    # same length the greater is the greater number, if it is one.
    digits, others = _digits(first), _digits(second)
    if len(digits) == len(others) and digits <= others:
        return second
    a, b = metadata_version(first), metadata_version(second)
    return first if a is not None and b is not None and a > b else second


def _digits(pointer: str) -> str:
    """Where a metadata file's name has its number, if it has one."""
    start = pointer.rfind("/") + 1
    return pointer[start : pointer.find("-", start)]
