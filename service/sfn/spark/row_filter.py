"""Apply a row filter of PyIceberg to a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Reference,
    SetPredicate,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, visit
from pyiceberg.types import DecimalType as IcebergDecimal
from pyiceberg.types import IcebergType
from pyiceberg.types import IntegerType as IcebergInteger
from pyiceberg.types import LongType as IcebergLong
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, IntegerType, LongType, StructType
from typing_extensions import override

from sfn.reader.predicate import to_exact

_COMPARED: Final[Mapping[type[BooleanExpression], Callable[[Column, Any], Column]]] = {
    EqualTo: Column.__eq__,
    NotEqualTo: Column.__ne__,
    LessThan: Column.__lt__,
    LessThanOrEqual: Column.__le__,
    GreaterThan: Column.__gt__,
    GreaterThanOrEqual: Column.__ge__,
    StartsWith: Column.startswith,
    NotStartsWith: lambda column, value: ~column.startswith(value),
}

_WITH_NAN: Final = (NotEqualTo, GreaterThan, GreaterThanOrEqual)
"""Comparisons that are true for NaN, which Spark treats as greater than every number."""


def apply_filter(rows: DataFrame, which: BooleanExpression) -> DataFrame:
    """Return the rows for which a filter is true, compared by Spark.

    Raises:
        ValueError: there is no such column, or a number is compared with something that is none.
    """
    return rows.where(visit(which, _SparkFilter(rows.schema)))


class _SparkFilter(BooleanExpressionVisitor[Column]):
    """A visitor that converts a filter to a boolean column of Spark."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    @override
    def visit_true(self) -> Column:
        return f.lit(True)

    @override
    def visit_false(self) -> Column:
        return f.lit(False)

    @override
    def visit_not(self, child_result: Column) -> Column:
        return ~child_result

    @override
    def visit_and(self, left_result: Column, right_result: Column) -> Column:
        return left_result & right_result

    @override
    def visit_or(self, left_result: Column, right_result: Column) -> Column:
        return left_result | right_result

    @override
    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> Column:
        if not isinstance(predicate.term, Reference):
            raise TypeError(f"the filter must compare columns: {predicate}")
        column, kind = self._column(predicate.term.name)
        if isinstance(predicate, LiteralPredicate | SetPredicate) and (own := _exact_type(kind)) is not None:
            found = to_exact(predicate, own)
            if isinstance(found, bool):
                return f.when(column.isNotNull(), f.lit(found))
            predicate = found
        match predicate:
            case IsNull():
                return column.isNull()
            case NotNull():
                return column.isNotNull()
            case IsNaN() | NotNaN():
                # As in every other comparison, the result for NULL is unknown.
                is_nan = f.when(column.isNotNull(), f.isnan(column))
                return is_nan if isinstance(predicate, IsNaN) else ~is_nan
            case In() | NotIn():
                column = _one_zero(column, kind, [one.value for one in predicate.literals])
                is_in = _with_nan_apart(
                    column.isin([_value(one.value, kind) for one in predicate.literals]), column, kind
                )
                return is_in if isinstance(predicate, In) else ~is_in
            case LiteralPredicate():
                column = _one_zero(column, kind, [predicate.literal.value])
                is_so = _COMPARED[type(predicate)](column, _value(predicate.literal.value, kind))
                return _with_nan_apart(is_so, column, kind, with_nan=type(predicate) in _WITH_NAN)
            case _:
                raise TypeError(f"an unknown comparison: {predicate}")

    @override
    def visit_bound_predicate(self, predicate: Any) -> Column:
        raise TypeError(f"a filter that is not bound to a schema: {predicate}")

    def _column(self, name: str) -> tuple[Column, DataType]:
        if name in self._schema.names:
            return f.col(_quoted(name)), self._schema[name].dataType
        first, *parts = name.split(".")
        if first not in self._schema.names:
            raise ValueError(f"a row_filter of the table's columns, {', '.join(self._schema.names)}: {name!r}")
        kind = self._schema[first].dataType
        for part in parts:
            if not isinstance(kind, StructType) or part not in kind.names:
                raise ValueError(f"a row_filter of the table's columns: {name!r}")
            kind = kind[part].dataType
        return reduce(Column.getField, parts, f.col(_quoted(first))), kind


def _exact_type(kind: DataType) -> IcebergType | None:
    """Return the Iceberg type of a column that is compared only with values of its own type.

    Spark would cast both to a type of 38 digits, or to doubles, and so lose digits or fail for some values.
    """
    match kind:
        case IntegerType():
            return IcebergInteger()
        case LongType():
            return IcebergLong()
        case DecimalType():
            return IcebergDecimal(kind.precision, kind.scale)
        case _:
            return None


def _value(value: Any, kind: DataType) -> Any:  # noqa: ANN401 - a literal of any type
    """Return a literal for Spark's comparison: for a float column the nearest float, as in Iceberg's own library."""
    return f.lit(float(value)).cast(kind) if isinstance(kind, FloatType | DoubleType) else value


def _one_zero(column: Column, kind: DataType, literals: Sequence[Any]) -> Column:
    """Add 0.0 to a floating column, so that Iceberg's own library, where `-0.0` is not `0.0`, does not filter."""
    is_floating = isinstance(kind, FloatType | DoubleType)
    return column + f.lit(0.0).cast(kind) if is_floating and any(float(one) == 0 for one in literals) else column


def _with_nan_apart(is_so: Column, column: Column, kind: DataType, *, with_nan: bool = False) -> Column:
    """Return a comparison with an explicit result for NaN, because statistics of files ignore NaN.

    NaN is named, so that Spark does not push a comparison down to Iceberg's own library, which would leave out files.
    """
    if not isinstance(kind, FloatType | DoubleType):
        return is_so
    return is_so | f.isnan(column) if with_nan else is_so & ~f.isnan(column)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
