"""Which files have none of the rows that are asked for, as the statistics of their columns say.

The rows themselves are compared by Spark. So only what both take for the same rules a file out: PyIceberg makes a
literal fit its column's type, by rounding if need be, and knows no nulls in a struct and no NaN among bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    IsNull,
    LiteralPredicate,
    NotNull,
    Or,
    Reference,
    SetPredicate,
    UnboundPredicate,
)
from pyiceberg.expressions.visitors import (
    BooleanExpressionVisitor,
    _InclusiveMetricsEvaluator,
    rewrite_not,
    visit,
)
from pyiceberg.manifest import ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DateType, IcebergType, IntegerType, LongType, StringType
from typing_extensions import override

from sfn.spark.files.manifests import is_data_file

_SAME: Final[dict[type[IcebergType], type]] = {StringType: str, BooleanType: bool}
_INTEGERS: Final[dict[type[IcebergType], int]] = {IntegerType: 1 << 31, LongType: 1 << 63}


def prune_files(entries: Sequence[ManifestEntry], which: BooleanExpression, schema: Schema) -> list[ManifestEntry]:
    """The files that may have such rows, and all delete files.

    Raises:
        ValueError: the filter names a column that there is not.
    """
    sure = visit(rewrite_not(which), _PruningFilter(schema))
    # PyIceberg's public scans plan with it too, but can't be asked for files and deletes by themselves.
    evaluator = _InclusiveMetricsEvaluator(schema, sure, case_sensitive=True)
    return [one for one in entries if not is_data_file(one.data_file) or evaluator.eval(one.data_file)]


class _PruningFilter(BooleanExpressionVisitor[BooleanExpression]):
    """A filter, with what can't rule a file out left to be true; it has no `not`."""

    def __init__(self, schema: Schema) -> None:
        self._types = {field.name: field.field_type for field in schema.fields}
        self._schema = schema

    @override
    def visit_true(self) -> BooleanExpression:
        return AlwaysTrue()

    @override
    def visit_false(self) -> BooleanExpression:
        return AlwaysFalse()

    @override
    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        return AlwaysTrue()

    @override
    def visit_and(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return And(left_result, right_result)

    @override
    def visit_or(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return Or(left_result, right_result)

    @override
    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        name = predicate.term.name if isinstance(predicate.term, Reference) else ""
        kind = self._types.get(name)
        if kind is None:
            self._check(name)
            return AlwaysTrue()
        match predicate:
            case IsNull() | NotNull():
                is_sure = True
            case LiteralPredicate():
                is_sure = _fits(predicate.literal.value, kind)
            case SetPredicate():
                is_sure = all(_fits(literal.value, kind) for literal in predicate.literals)
            case _:
                is_sure = False
        return predicate if is_sure else AlwaysTrue()

    @override
    def visit_bound_predicate(self, predicate: Any) -> BooleanExpression:
        return AlwaysTrue()

    def _check(self, name: str) -> None:
        try:
            self._schema.find_field(name)
        except ValueError as error:
            raise ValueError(f"a row_filter that fits the table's columns: {error}") from error


def _fits(value: Any, kind: IcebergType) -> bool:  # noqa: ANN401 - a literal of any type
    """Whether a literal is the same value to PyIceberg and to Spark, once it is compared to a column of a type."""
    if type(kind) in _INTEGERS:
        return type(value) is int and -_INTEGERS[type(kind)] <= value < _INTEGERS[type(kind)]
    if isinstance(kind, DateType):
        return isinstance(value, str) and _is_day(value)
    same = _SAME.get(type(kind))
    return same is not None and isinstance(value, same)


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
