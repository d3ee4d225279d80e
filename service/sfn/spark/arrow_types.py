"""Spark's types for Iceberg's types, and the selection of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from sfn.errors import NotSupported, suggest_name

PRIMITIVE_TYPES: Final[Mapping[type[iceberg.IcebergType], spark.DataType]] = MappingProxyType(
    {
        iceberg.BooleanType: spark.BooleanType(),
        iceberg.IntegerType: spark.IntegerType(),
        iceberg.LongType: spark.LongType(),
        iceberg.FloatType: spark.FloatType(),
        iceberg.DoubleType: spark.DoubleType(),
        iceberg.DateType: spark.DateType(),
        iceberg.TimestampType: spark.TimestampNTZType(),
        iceberg.TimestamptzType: spark.TimestampType(),
        iceberg.StringType: spark.StringType(),
        iceberg.UUIDType: spark.StringType(),
        iceberg.FixedType: spark.BinaryType(),
        iceberg.BinaryType: spark.BinaryType(),
    }
)
"""The types of Iceberg's own library on Spark (its documentation, "Spark and Iceberg type conversion")."""


def describe_column(kind: iceberg.IcebergType, column: str) -> str:
    """Return the type and name of a column as text."""
    return f"the type {kind}, of column {column!r}"


_UNSUPPORTED_TYPES: Final = (iceberg.TimeType, iceberg.TimestampNanoType, iceberg.TimestamptzNanoType)
"""Types that Iceberg's own library refuses as well."""


def spark_schema(schema: Schema, where: str) -> spark.StructType:
    """Return the columns with Spark's types.

    Args:
        where: the metadata file, for messages.

    Raises:
        NotSupported: a column has a type that this engine can't read.
    """
    return spark.StructType([_field(field, field.name, where) for field in schema.fields])


def select_columns(schema: Schema, names: Sequence[str] | None) -> Schema:
    """Return the named columns, in the order of the names; all columns for None.

    A name is compared exactly at first, and then case-insensitively, as in Spark.

    Raises:
        ValueError: a name has no column or several, or is given twice.
    """
    if names is None:
        return schema
    fields = [_named(schema, name) for name in names]
    if len({field.field_id for field in fields}) < len(fields):
        raise ValueError(f"each column once: {', '.join(names)}")
    return Schema(*fields, schema_id=schema.schema_id)


def _named(schema: Schema, name: str) -> iceberg.NestedField:
    exact = [field for field in schema.fields if field.name == name]
    found = exact or [field for field in schema.fields if field.name.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    names = [field.name for field in schema.fields]
    reason = "matches several columns that differ in case" if found else f"is none; {suggest_name(name, names)}"
    raise ValueError(f"a column of the table: {name!r} {reason}")


def _field(field: iceberg.NestedField, path: str, where: str) -> spark.StructField:
    return spark.StructField(field.name, _type(field.field_type, path, where), not field.required)


def _type(kind: iceberg.IcebergType, path: str, where: str) -> spark.DataType:
    match kind:
        case iceberg.StructType():
            return spark.StructType([_field(field, f"{path}.{field.name}", where) for field in kind.fields])
        case iceberg.ListType():
            return spark.ArrayType(_type(kind.element_type, f"{path}.element", where), not kind.element_required)
        case iceberg.MapType():
            key = _type(kind.key_type, f"{path}.key", where)
            return spark.MapType(key, _type(kind.value_type, f"{path}.value", where), not kind.value_required)
        case iceberg.DecimalType():
            return spark.DecimalType(kind.precision, kind.scale)
        case _ if type(kind) in PRIMITIVE_TYPES:
            return PRIMITIVE_TYPES[type(kind)]
        case _:
            raise _unknown(kind, path, where)


def _unknown(kind: iceberg.IcebergType, path: str, where: str) -> NotSupported:
    remedy = "leave the column out with the option `columns`"
    if not isinstance(kind, _UNSUPPORTED_TYPES):
        remedy = f"read it with engine='iceberg', or {remedy}"
    return NotSupported(
        where,
        expected="columns of types that PySpark's data source has",
        found=describe_column(kind, path),
        remedy=remedy,
    )
