"""How columns that have others in them are read.

Spark reads of them only what a query asks for. In an older file that has none of it, another part tells how long a
list is and whether a struct is null, but this one Spark looks for by name: where the file has another name it finds
nulls, or an error. So a column that was changed within is read as a whole, and not at all where a file may have nothing
of a part of it. (Iceberg's own library of 1.11 gives an empty list there, or an error in a map.)
"""

from __future__ import annotations

from enum import Enum, auto

from pyiceberg.types import NestedField

from sfn.spark.files.history import SchemaHistory, leaf_ids, walk_fields


class ColumnScope(Enum):
    """How much of a column is read."""

    AS_REQUESTED = auto()
    WHOLE = auto()
    NOTHING = auto()


def column_scope(field: NestedField, past: SchemaHistory) -> ColumnScope:
    """How much of a column is to be read, whatever is asked for."""
    parts = [one for _, one in walk_fields(field) if not one.field_type.is_primitive]
    if not parts:
        return ColumnScope.AS_REQUESTED
    if not past.is_whole:
        return ColumnScope.NOTHING
    pairs = [(leaf_ids(part), then) for part in parts for then in past.leaves[part.field_id]]
    if all(now == then for now, then in pairs):
        return ColumnScope.AS_REQUESTED
    return ColumnScope.WHOLE if all(now & then for now, then in pairs) else ColumnScope.NOTHING
