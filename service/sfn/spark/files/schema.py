"""A table's schema as Spark's Parquet reader takes it, which finds columns by their field ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyiceberg import types as iceberg
from pyspark.sql import types as spark

from sfn.spark.kinds import PRIMITIVE_TYPES

FIELD_ID: Final = "parquet.field.id"
"""Where Spark looks for the id of a field, in its metadata."""

# Sixteen bytes, which are spelled out once they are read.
_PRIMITIVES: Final[Mapping[type[iceberg.IcebergType], spark.DataType]] = {
    **PRIMITIVE_TYPES,
    iceberg.UUIDType: spark.BinaryType(),
}


def read_field(field: iceberg.NestedField, name: str) -> spark.StructField:
    """A column as it is read.

    Args:
        name: what it is called meanwhile.

    Raises:
        KeyError: Spark has no such type, see `unmappable`.
    """
    return _field(field, name, with_ids=True)


def result_field(field: iceberg.NestedField) -> spark.StructField:
    """A column as its reader sees it.

    Raises:
        KeyError: as above.
    """
    if isinstance(field.field_type, iceberg.UUIDType):
        return spark.StructField(field.name, spark.StringType(), not field.required)
    return _field(field, field.name, with_ids=False)


def first_unmappable_type(kind: iceberg.IcebergType, *, nested: bool = False) -> str:
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
