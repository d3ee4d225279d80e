"""What PyArrow can't read of ORC files, told from the manifests."""

from __future__ import annotations

from typing import Final

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import NestedField, TimestampType, TimestamptzType, UUIDType

_NANOSECONDS: Final = 1_000
_MOST: Final = (1 << 63) // _NANOSECONDS
"""Microseconds from 1970 that PyArrow has of a timestamp in ORC, which it counts in nanoseconds: to 2262, from 1677."""


def first_misread_field(file: DataFile, schema: Schema) -> str:
    """The first thing in a file that is not read; empty where all of it is."""
    for field in index_by_id(schema).values():
        if isinstance(field.field_type, UUIDType):
            return "a uuid"
        if isinstance(field.field_type, TimestampType | TimestamptzType) and _has_far_times(file, field):
            return "a time before 1677 or after 2262"
    return ""


def _has_far_times(file: DataFile, field: NestedField) -> bool:
    """Whether there is such a time; one within a list or map is not counted, and so not known of."""
    bounds = [(each or {}).get(field.field_id) for each in (file.lower_bounds, file.upper_bounds)]
    # As Iceberg's specification writes them, "Binary single-value serialization".
    times = [int.from_bytes(bound, "little", signed=True) for bound in bounds if bound is not None]
    return any(abs(time) >= _MOST for time in times)
