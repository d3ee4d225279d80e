"""By which names columns are read.

Spark finds columns by their ids, but asks Parquet's statistics by name (`ParquetFilters`): a filter on a column whose
name another one had before would drop row groups by the other's values. Such a column is read by a name that no file
has, and its filters are applied to the rows alone.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from sfn.spark.files.history import SchemaHistory, lower_case, walk_fields

COLUMN_PREFIX: Final = "_sfn_"
"""What names begin with that are no column's."""


def column_names(schema: Schema, past: SchemaHistory) -> dict[int, str]:
    """Names of the columns, by their ids."""
    return {
        field.field_id: field.name if _is_unambiguous(field, past) else f"{COLUMN_PREFIX}{field.field_id}"
        for field in schema.fields
    }


def _is_unambiguous(field: NestedField, past: SchemaHistory) -> bool:
    if not past.is_whole or field.name.lower().startswith(COLUMN_PREFIX):
        return False
    return all(past.ids.get(lower_case(path)) == {one.field_id} for path, one in walk_fields(field))
