"""How the tables of a run are shared out: by name alone, so that a run that goes on, or a later one, does it alike."""

from __future__ import annotations

from zlib import crc32

MAX_SLICES = 1 << 16
"""Slices that a report may have."""


def slice_of(catalog: str, identifier: str, slices: int) -> int:
    """Which slice a table belongs to.

    Args:
        identifier: in the report's spelling.
        slices: how many there are, a power of two.
    """
    return crc32(f"{catalog}\0{identifier}".encode("utf-8", "surrogatepass")) & (slices - 1)


def is_valid_count(slices: int) -> bool:
    """Whether there may be so many slices."""
    return 0 < slices <= MAX_SLICES and slices & (slices - 1) == 0


def matching_slices(number: int, slices: int, before: int) -> range:
    """Which slices of an earlier run, which had `before` of them, have the tables of one of this run."""
    least = min(slices, before)
    return range(number % least, before, least)
