"""By which names columns are read.

Spark finds columns by their ids, but asks Parquet's statistics by name (`ParquetFilters`): a filter on a column whose
name another one had before would drop row groups by the other's values. Such a column is read by a name that no file
has, and its filters are applied to the rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

OWN: Final = "_sfn_"
"""What names begin with that are no column's."""

Path = tuple[str, ...]


def read_by(schema: Schema, every: Sequence[Schema], last_column_id: int) -> dict[int, str]:
    """Names of the columns, by their ids.

    Args:
        schema: of the columns.
        every: schemas that the table had, and has.
        last_column_id: the highest id that was given to a column.
    """
    ids = _ids(every) if _is_whole(every, last_column_id) else {}
    return {
        field.field_id: field.name
        if all(ids.get(path) == {number} for path, number in _paths(field, ()))
        and not field.name.lower().startswith(OWN)
        else f"{OWN}{field.field_id}"
        for field in schema.fields
    }


def _ids(every: Sequence[Schema]) -> Mapping[Path, set[int]]:
    """Whose ids a path was, under the name that the table knows and under the one that files have."""
    ids: dict[Path, set[int]] = {}
    for schema in every:
        for field in schema.fields:
            for path, number in _paths(field, ()):
                ids.setdefault(path, set()).add(number)
                ids.setdefault(tuple(make_compatible_name(name) for name in path), set()).add(number)
    return ids


def _is_whole(every: Sequence[Schema], last_column_id: int) -> bool:
    """Whether these are all schemas that the table ever had: those that no snapshot needs may be removed."""
    numbers = {schema.schema_id for schema in every}
    columns = {number for schema in every for field in schema.fields for _, number in _paths(field, ())}
    return numbers == set(range(len(numbers))) and len(columns) == last_column_id


def _paths(field: NestedField, above: Path) -> Iterator[tuple[Path, int]]:
    # Spark compares without regard to case unless it is told otherwise.
    path = (*above, field.name.lower())
    yield path, field.field_id
    for inner in _inner(field.field_type):
        yield from _paths(inner, path)


def _inner(kind: IcebergType) -> Sequence[NestedField]:
    match kind:
        case StructType(fields=fields):
            return fields
        case ListType():
            return [kind.element_field]
        case MapType():
            return [kind.key_field, kind.value_field]
        case _:
            return []
