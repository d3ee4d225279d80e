"""Spark's filters as PyIceberg's. Only rows that Spark would drop may be left out: it looks at all others again."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final, TypeAlias

from pyiceberg import expressions as iceberg
from pyiceberg.expressions.literals import literal
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import datasource as spark

_ORDERED: Final = (
    BooleanType,
    IntegerType,
    LongType,
    DateType,
    TimestampType,
    TimestamptzType,
    StringType,
    DecimalType,
)
"""Types whose values compare in Arrow as in Spark. A uuid is no string there, binary has no order, NaN is no number."""
_FLOATING: Final = (FloatType, DoubleType)

_Value: TypeAlias = Any
"""Whatever Spark compares a column with."""


def to_iceberg_filter(filters: Iterable[spark.Filter], schema: Schema) -> iceberg.BooleanExpression:
    """What holds for every row that passes all filters."""
    which: iceberg.BooleanExpression = iceberg.AlwaysTrue()
    for one in filters:
        what = _of(one, schema)
        if what is not None and _fits(what, schema):
            which = iceberg.And(which, what)
    return which


def _of(one: spark.Filter, schema: Schema) -> iceberg.BooleanExpression | None:
    if isinstance(one, spark.Not):
        # NaN is greater than all in Spark, and NULL is told from values by `<=>`.
        is_exact = not isinstance(one.child, spark.EqualNullSafe) and not _is_floating(one.child, schema)
        inner = _of(one.child, schema) if is_exact else None
        return None if inner is None else iceberg.Not(inner)
    kind = _type(one, schema)
    if kind is None:
        return None
    column = iceberg.Reference(_name(one))
    match one:
        case spark.IsNull():
            return iceberg.IsNull(term=column)
        case spark.IsNotNull():
            return iceberg.NotNull(term=column)
        case spark.EqualNullSafe(value=None):
            return iceberg.IsNull(term=column)
        case _:
            pass
    value = getattr(one, "value", None)
    if isinstance(kind, _FLOATING):
        return _of_floating(one, column, value)
    return _of_ordered(one, column, value) if isinstance(kind, _ORDERED) and value is not None else None


def _of_ordered(one: spark.Filter, column: iceberg.Reference, value: _Value) -> iceberg.BooleanExpression | None:
    match one:
        case spark.EqualTo() | spark.EqualNullSafe():
            return iceberg.EqualTo(term=column, value=literal(value))
        case spark.GreaterThan():
            return iceberg.GreaterThan(term=column, value=literal(value))
        case spark.GreaterThanOrEqual():
            return iceberg.GreaterThanOrEqual(term=column, value=literal(value))
        case spark.LessThan():
            return iceberg.LessThan(term=column, value=literal(value))
        case spark.LessThanOrEqual():
            return iceberg.LessThanOrEqual(term=column, value=literal(value))
        case spark.In():
            values = [each for each in value if each is not None]
            return iceberg.In(term=column, values=set(map(literal, values))) if len(values) == len(value) else None
        case spark.StringStartsWith():
            return iceberg.StartsWith(term=column, value=literal(value))
        case _:
            return None


def _of_floating(one: spark.Filter, column: iceberg.Reference, value: _Value) -> iceberg.BooleanExpression | None:
    if not isinstance(value, float | int | Decimal) or value != value:  # noqa: PLR0124 - NaN alone differs from itself
        return None
    match one:
        case spark.EqualTo() | spark.EqualNullSafe() | spark.LessThan() | spark.LessThanOrEqual():
            return _of_ordered(one, column, value)
        # NaN is greater than all to Spark, and statistics of files know none.
        case _:
            return None


def _name(one: spark.Filter) -> str:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _type(one: spark.Filter, schema: Schema) -> IcebergType | None:
    """Of the column that it is about; None where that lies in another, or has a name that could be such a path."""
    name = _name(one)
    if "." in name:
        return None
    return next((field.field_type for field in schema.fields if field.name == name), None)


def _is_floating(one: spark.Filter, schema: Schema) -> bool:
    return isinstance(_type(one, schema), _FLOATING) and not isinstance(one, spark.IsNull | spark.IsNotNull)


def _fits(what: iceberg.BooleanExpression, schema: Schema) -> bool:
    """Whether its values can be values of its column."""
    try:
        bind(schema, what, case_sensitive=True)
    except (ValueError, TypeError):
        return False
    return True
