"""Which rows: a filter as PyIceberg has it, which prunes files, as Spark has it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, visit
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from typing_extensions import override

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


def parsed(row_filter: str) -> BooleanExpression:
    """The filter of a text, as of PyIceberg's `Table.scan`.

    Raises:
        ValueError: it is none.
    """
    try:
        return parse(row_filter)
    except Exception as error:
        # The parser's errors are another package's, and of no family.
        raise ValueError(f"a row_filter such as \"id > 1 and day = '2026-11-25'\": {row_filter!r}: {error}") from error


def filtered(rows: DataFrame, which: BooleanExpression) -> DataFrame:
    """The rows that a filter holds for, by Spark's own comparison.

    Raises:
        ValueError: there is no such column.
    """
    return rows.where(visit(which, _Columns(rows.columns)))


class _Columns(BooleanExpressionVisitor[Column]):
    """A filter as Spark's column of what it says of each row."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

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
            raise TypeError(f"a filter of columns: {predicate}")
        column = self._column(predicate.term.name)
        match predicate:
            case IsNull():
                return column.isNull()
            case NotNull():
                return column.isNotNull()
            case IsNaN():
                return f.isnan(column)
            case NotNaN():
                # As of every other comparison, nothing holds for a null.
                return column.isNotNull() & ~f.isnan(column)
            case In() | NotIn():
                is_in = column.isin([literal.value for literal in predicate.literals])
                return is_in if isinstance(predicate, In) else ~is_in
            case LiteralPredicate():
                return _COMPARED[type(predicate)](column, predicate.literal.value)
            case _:
                raise TypeError(f"a filter that is compared somehow: {predicate}")

    @override
    def visit_bound_predicate(self, predicate: Any) -> Column:
        raise TypeError(f"a filter that no schema was put to: {predicate}")

    def _column(self, name: str) -> Column:
        if name in self._names:
            return f.col(_quoted(name))
        first, *parts = name.split(".")
        if first not in self._names:
            raise ValueError(f"a row_filter of the table's columns, {', '.join(self._names)}: {name!r}")
        return reduce(Column.getField, parts, f.col(_quoted(first)))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
