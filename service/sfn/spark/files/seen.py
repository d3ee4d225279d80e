"""Columns as readers see them: under their names, and without the metadata that they were found by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyiceberg.types import NestedField, UUIDType
from pyspark.sql import DataFrame

from sfn.spark.files.history import SchemaHistory
from sfn.spark.files.nested import ColumnScope, column_scope
from sfn.spark.files.schema import result_field

_UUID: Final = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
"""Where the groups of a UUID begin among its 32 digits, from 1, and how many digits each has."""


def output_columns(
    rows: DataFrame, fields: Sequence[NestedField], names: Mapping[int, str], past: SchemaHistory
) -> DataFrame:
    """The rows with these columns.

    Within columns that are read as asked for the metadata stays: to rebuild them would cost more than all else.

    Args:
        names: by which they were read, by the columns' ids.
    """
    shown = rows.selectExpr(*(_expression(field, names[field.field_id]) for field in fields))
    for field in fields:
        if field.field_type.is_primitive:
            continue
        column = shown[_quoted(field.name)]
        if column_scope(field, past) is ColumnScope.WHOLE:
            # What is in it has no metadata then, and so is another type to Spark: it does not look through the cast.
            column = column.cast(result_field(field).dataType)
        shown = shown.withColumn(field.name, column.alias(field.name, metadata={}))
    return shown


def _expression(field: NestedField, name: str) -> str:
    column = _quoted(name)
    if isinstance(field.field_type, UUIDType):
        digits = f"lower(hex({column}))"
        column = " || '-' || ".join(f"substring({digits}, {begin}, {length})" for begin, length in _UUID)
    elif field.field_type.is_primitive:
        # Spark's optimiser drops such a cast; what it was of is not known any more.
        column = f"CAST({column} AS {result_field(field).dataType.simpleString()})"
    return f"{column} AS {_quoted(field.name)}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
