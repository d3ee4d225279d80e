"""Types of Iceberg's in Spark's terms, and what they are called where an engine refuses them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pyiceberg import types as iceberg
from pyspark.sql import types as spark

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
"""Those that Iceberg's own library gives a column (its documentation, "Spark and Iceberg type conversion")."""


def describe_column(kind: iceberg.IcebergType, column: str) -> str:
    """A column of a type."""
    return f"the type {kind}, of column {column!r}"
