"""What the columns of a table were before, by its own schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

FieldPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """The columns of a table, now and then.

    Attributes:
        is_whole: all schemas that it ever had are there: those that no snapshot needs may be removed.
        ids: of the columns that a path was, by the name that the table knows and by the one that files have; in lower
            case, since Spark compares so unless it is told otherwise.
        leaves: of a column that has others in it, by its id: the ids of the innermost ones in each of the schemas.
    """

    is_whole: bool
    ids: Mapping[FieldPath, set[int]]
    leaves: Mapping[int, Sequence[set[int]]]


def schema_history(every: Sequence[Schema], last_column_id: int) -> SchemaHistory:
    """What the schemas of a table tell.

    Args:
        every: schemas that it had, and has.
        last_column_id: the highest id that was given to a column.
    """
    ids: dict[FieldPath, set[int]] = {}
    leaves: dict[int, list[set[int]]] = {}
    for schema in every:
        for field in schema.fields:
            for path, one in walk_fields(field):
                in_files = tuple(make_compatible_name(name) for name in path)
                for spelled in {lower_case(path), lower_case(in_files)}:
                    ids.setdefault(spelled, set()).add(one.field_id)
                if not one.field_type.is_primitive:
                    leaves.setdefault(one.field_id, []).append(leaf_ids(one))
    numbers = {schema.schema_id for schema in every}
    columns = {number for numbers in ids.values() for number in numbers}
    return SchemaHistory(numbers == set(range(len(numbers))) and len(columns) == last_column_id, ids, leaves)


def walk_fields(field: NestedField, above: FieldPath = ()) -> Iterator[tuple[FieldPath, NestedField]]:
    """A column and all within it, with their paths."""
    path = (*above, field.name)
    yield path, field
    for inner in _inner(field.field_type):
        yield from walk_fields(inner, path)


def lower_case(path: FieldPath) -> FieldPath:
    """The path in lower case."""
    return tuple(name.lower() for name in path)


def leaf_ids(field: NestedField) -> set[int]:
    """The ids of the columns within it that have none in them."""
    return {one.field_id for _, one in walk_fields(field) if one.field_type.is_primitive}


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
