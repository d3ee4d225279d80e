"""Read a table by its directory, with the first engine that can, and apply a row filter of PyIceberg."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final
from uuid import UUID

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
from pyiceberg.types import (
    DecimalType as IcebergDecimal,
)
from pyiceberg.types import (
    IcebergType,
)
from pyiceberg.types import (
    IntegerType as IcebergInteger,
)
from pyiceberg.types import (
    LongType as IcebergLong,
)
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, IntegerType, LongType, StructType
from typing_extensions import override

from sfn.errors import NotInstalled, NotSupported, suggest_name
from sfn.reader.api import Time
from sfn.reader.predicate import parse_filter, to_exact
from sfn.spark.engine_files import FilesEngine
from sfn.spark.engine_iceberg import IcebergEngine
from sfn.spark.engine_sfn import SfnEngine
from sfn.spark.request import Engine, ReadRequest, make_read_request

AUTO: Final = "auto"

ENGINES: Final[tuple[Engine, ...]] = (IcebergEngine(), FilesEngine(), SfnEngine())
"""The engines in the order in which `auto` tries them."""


def read(
    spark: SparkSession,
    directory: str | os.PathLike[str],
    table: str | Sequence[str] | None = None,
    ref: str | None = None,
    as_of: Time | None = None,
    engine: str = AUTO,
    *,
    row_filter: str | None = None,
    uuid: str | UUID | None = None,
    allowed: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return the rows of the table in a directory.

    The table's state is fixed now: the DataFrame shows the same rows however often it is read.

    Args:
        spark: the session.
        directory: the table's location: a path, or a URL that both fsspec and Spark have a driver for.
        table: the table's identifier; needed if several tables share the directory.
        ref: a branch or tag; default: `main`.
        as_of: another state: a snapshot's id (int), a time (aware datetime, or ISO 8601 text with a time zone), an
            Ordinal (`YYYYMMDDTHHMMSSmmm`, UTC), an entry of `sfn.history`, or a branch or tag.
        engine: `iceberg`, `files`, `sfn`, or `auto`: the first of them that can.
        row_filter: the condition for the rows, as PyIceberg's `Table.scan` takes it. The engine `files` then opens no
            file that column statistics rule out; it does not see conditions in `where`.
        uuid: the table's uuid, instead of its identifier or with it.
        allowed: prefixes below which files may lead, besides the directory; see `sfn.resolve`.
        storage_options: options for fsspec's driver, for SFN files and metadata. Spark reads data with its own.

    Raises:
        NotSupported: the engine can't read the table; the remedy names one that can.
        NotInstalled: PySpark, pandas or Iceberg's runtime is missing, or has the wrong version.
        Unreadable: see `sfn.errors` for its other kinds.
        ValueError: an argument is not valid; for `as_of` the error is a TypeError, too.
    """
    which = None if row_filter is None else parse_filter(row_filter)
    request = make_read_request(
        directory, table, uuid, ref, as_of, allowed=allowed, storage_options=storage_options, row_filter=row_filter
    )
    rows = _read_with_engine(spark, request, engine)
    return rows if which is None else apply_filter(rows, which)


def _read_with_engine(spark: SparkSession, request: ReadRequest, engine: str) -> DataFrame:
    if engine != AUTO:
        return _engine_named(engine).read(spark, request)
    refusals: list[str] = []
    for one in ENGINES:
        if lacking := one.missing_requirement(spark):
            refusals.append(f"{one.name}: {lacking}")
            continue
        try:
            return one.read(spark, request)
        except (NotSupported, NotInstalled) as refusal:
            refusals.append(f"{one.name}: {refusal.found}")
    raise NotSupported(
        request.directory, expected="a table that one of the engines can read", found="; ".join(refusals)
    )


def _engine_named(name: str) -> Engine:
    for engine in ENGINES:
        if engine.name == name:
            return engine
    known = [AUTO, *(engine.name for engine in ENGINES)]
    raise ValueError(f"an engine, one of {', '.join(known)}: {name!r}; {suggest_name(name, known)}")


# ── Row filters

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
