"""A table's schema for Spark's Parquet reader, which finds columns by their field ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, UUIDType
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from sfn.spark.arrow_types import PRIMITIVE_TYPES

FIELD_ID: Final = "parquet.field.id"
"""The key of a field's id in its metadata, where Spark looks for it."""

# A uuid is read as its 16 bytes, and converted to text afterwards.
_PRIMITIVES: Final[Mapping[type[iceberg.IcebergType], spark.DataType]] = {
    **PRIMITIVE_TYPES,
    iceberg.UUIDType: spark.BinaryType(),
}


def read_field(field: iceberg.NestedField, name: str) -> spark.StructField:
    """Return a column for reading.

    Args:
        name: the column's name while it is read.

    Raises:
        KeyError: Spark has no such type, see `first_unmappable_type`.
    """
    return _field(field, name, with_ids=True)


def result_field(field: iceberg.NestedField) -> spark.StructField:
    """Return a column as callers see it.

    Raises:
        KeyError: Spark has no such type, see `first_unmappable_type`.
    """
    if isinstance(field.field_type, iceberg.UUIDType):
        return spark.StructField(field.name, spark.StringType(), not field.required)
    return _field(field, field.name, with_ids=False)


def first_unmappable_type(kind: iceberg.IcebergType, *, nested: bool = False) -> str:
    """Return the first type within a type that can't be read, as text; empty if there is none."""
    match kind:
        case iceberg.StructType(fields=fields):
            inner = [field.field_type for field in fields]
        case iceberg.ListType():
            inner = [kind.element_type]
        case iceberg.MapType():
            inner = [kind.key_type, kind.value_type]
        case iceberg.UUIDType():
            return "a uuid within another column" if nested else ""
        case iceberg.DecimalType():
            return ""
        case _:
            return "" if type(kind) in _PRIMITIVES else f"the type {kind}"
    return next(filter(None, (first_unmappable_type(one, nested=True) for one in inner)), "")


def _field(field: iceberg.NestedField, name: str, *, with_ids: bool) -> spark.StructField:
    metadata = {FIELD_ID: field.field_id} if with_ids else None
    return spark.StructField(name, _type(field.field_type, with_ids=with_ids), not field.required, metadata)


def _type(kind: iceberg.IcebergType, *, with_ids: bool) -> spark.DataType:
    match kind:
        case iceberg.StructType(fields=fields):
            return spark.StructType([_field(field, field.name, with_ids=with_ids) for field in fields])
        case iceberg.ListType():
            return spark.ArrayType(_type(kind.element_type, with_ids=with_ids), not kind.element_required)
        case iceberg.MapType():
            key, value = (_type(one, with_ids=with_ids) for one in (kind.key_type, kind.value_type))
            return spark.MapType(key, value, not kind.value_required)
        case iceberg.DecimalType():
            return spark.DecimalType(kind.precision, kind.scale)
        case _:
            return _PRIMITIVES[type(kind)]


FieldPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """The columns of a table in all its schemas.

    Attributes:
        is_whole: whether all schemas of the table are known: those that no snapshot needs may have been removed.
        ids: the ids of the columns that had a path, by the path in the table and by the one in files; in lower case,
            because Spark compares case-insensitively by default.
        leaves: for each nested column, by id: the ids of its innermost columns in each schema.
    """

    is_whole: bool
    ids: Mapping[FieldPath, set[int]]
    leaves: Mapping[int, Sequence[set[int]]]


def schema_history(every: Sequence[Schema], last_column_id: int) -> SchemaHistory:
    """Collect the columns of a table's schemas.

    Args:
        every: all known schemas of the table.
        last_column_id: the highest id that a column ever had.
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
    """Yield a column and all columns within it, with their paths."""
    path = (*above, field.name)
    yield path, field
    for inner in _inner(field.field_type):
        yield from walk_fields(inner, path)


def lower_case(path: FieldPath) -> FieldPath:
    """Return the path in lower case."""
    return tuple(name.lower() for name in path)


def leaf_ids(field: NestedField) -> set[int]:
    """Return the ids of the innermost columns within a column."""
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


COLUMN_PREFIX: Final = "_sfn_"
"""The prefix of names that are not a column's own."""


def column_names(schema: Schema, past: SchemaHistory) -> dict[int, str]:
    """Return the names under which the columns are read, by field id."""
    return {
        field.field_id: field.name if _is_unambiguous(field, past) else f"{COLUMN_PREFIX}{field.field_id}"
        for field in schema.fields
    }


def _is_unambiguous(field: NestedField, past: SchemaHistory) -> bool:
    if not past.is_whole or field.name.lower().startswith(COLUMN_PREFIX):
        return False
    return all(past.ids.get(lower_case(path)) == {one.field_id} for path, one in walk_fields(field))


class ColumnScope(Enum):
    """The part of a column that Spark must read."""

    AS_REQUESTED = auto()
    WHOLE = auto()
    NOTHING = auto()


def column_scope(field: NestedField, past: SchemaHistory) -> ColumnScope:
    """Return how much of a column must be read, whatever a query asks for."""
    parts = [one for _, one in walk_fields(field) if not one.field_type.is_primitive]
    if not parts:
        return ColumnScope.AS_REQUESTED
    if not past.is_whole:
        return ColumnScope.NOTHING
    pairs = [(leaf_ids(part), then) for part in parts for then in past.leaves[part.field_id]]
    if all(now == then for now, then in pairs):
        return ColumnScope.AS_REQUESTED
    return ColumnScope.WHOLE if all(now & then for now, then in pairs) else ColumnScope.NOTHING


_UUID: Final = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
"""Start and length of the groups of a UUID among its 32 digits; the first digit is 1."""


def output_columns(
    rows: DataFrame, fields: Sequence[NestedField], names: Mapping[int, str], past: SchemaHistory
) -> DataFrame:
    """Return the rows with the table's columns.

    Nested columns keep their metadata if they need no cast: rebuilding them would cost more than everything else.

    Args:
        names: the names under which the columns were read, by field id.
    """
    shown = rows.selectExpr(*(_expression(field, names[field.field_id]) for field in fields))
    for field in fields:
        if field.field_type.is_primitive:
            continue
        column = shown[_quoted(field.name)]
        if column_scope(field, past) is ColumnScope.WHOLE:
            # The cast removes the metadata within. Spark then sees another type, and reads the column as a whole.
            column = column.cast(result_field(field).dataType)
        shown = shown.withColumn(field.name, column.alias(field.name, metadata={}))
    return shown


def _expression(field: NestedField, name: str) -> str:
    column = _quoted(name)
    if isinstance(field.field_type, UUIDType):
        digits = f"lower(hex({column}))"
        column = " || '-' || ".join(f"substring({digits}, {begin}, {length})" for begin, length in _UUID)
    elif field.field_type.is_primitive:
        # Spark's optimiser drops this cast, but it removes the column's field id.
        column = f"CAST({column} AS {result_field(field).dataType.simpleString()})"
    return f"{column} AS {_quoted(field.name)}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
