"""A table's schema as Spark's Parquet reader takes it, which finds columns by their field ids."""

from __future__ import annotations

from typing import Final

from pyiceberg import types as iceberg
from pyspark.sql import types as spark

FIELD_ID: Final = "parquet.field.id"
"""Where Spark looks for the id of a field, in its metadata."""

_PRIMITIVES: Final[dict[type[iceberg.IcebergType], spark.DataType]] = {
    iceberg.BooleanType: spark.BooleanType(),
    iceberg.IntegerType: spark.IntegerType(),
    iceberg.LongType: spark.LongType(),
    iceberg.FloatType: spark.FloatType(),
    iceberg.DoubleType: spark.DoubleType(),
    iceberg.DateType: spark.DateType(),
    iceberg.TimestampType: spark.TimestampNTZType(),
    iceberg.TimestamptzType: spark.TimestampType(),
    iceberg.StringType: spark.StringType(),
    iceberg.BinaryType: spark.BinaryType(),
    iceberg.FixedType: spark.BinaryType(),
    iceberg.UUIDType: spark.BinaryType(),  # sixteen bytes, which are spelled out once they are read
}


def as_read(field: iceberg.NestedField, name: str) -> spark.StructField:
    """A column as it is read.

    Args:
        name: what it is called meanwhile.

    Raises:
        KeyError: Spark has no such type, see `unmappable`.
    """
    return spark.StructField(name, _type(field.field_type), not field.required, {FIELD_ID: field.field_id})


def as_seen(field: iceberg.NestedField) -> spark.StructField:
    """A column as its reader sees it.

    Raises:
        KeyError: as above.
    """
    is_uuid = isinstance(field.field_type, iceberg.UUIDType)
    seen = spark.StringType() if is_uuid else _type(field.field_type)
    return spark.StructField(field.name, seen, not field.required)


def unmappable(kind: iceberg.IcebergType, *, nested: bool = False) -> str:
    """The first type in it that is not read, in words; empty where there is none."""
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
    return next(filter(None, (unmappable(one, nested=True) for one in inner)), "")


def _type(kind: iceberg.IcebergType) -> spark.DataType:
    match kind:
        case iceberg.StructType(fields=fields):
            return spark.StructType([as_read(field, field.name) for field in fields])
        case iceberg.ListType():
            return spark.ArrayType(_type(kind.element_type), not kind.element_required)
        case iceberg.MapType():
            return spark.MapType(_type(kind.key_type), _type(kind.value_type), not kind.value_required)
        case iceberg.DecimalType():
            return spark.DecimalType(kind.precision, kind.scale)
        case _:
            return _PRIMITIVES[type(kind)]
