"""Row filters: parse them, bind them to a schema, apply them to rows, and use them to rule out files.

Rows are compared here, as in Spark SQL, and not by PyIceberg and PyArrow. PyIceberg rounds literals to the column's
type, and treats NULL as a value that differs from every other. PyArrow uses statistics that ignore NaN, and looks for
columns in data files that lack them. `docs/read/filters.md` states the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, inf, isinf
from struct import pack, unpack
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import expressions as iceberg
from pyiceberg import types
from pyiceberg.expressions import literals
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.parser import boolean_expression
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, visit
from pyiceberg.schema import Schema
from typing_extensions import override

_Mask: TypeAlias = Callable[[pa.RecordBatch], pa.Array]
"""A function from rows to the filter's values: true, false, or NULL if unknown."""

_EQUAL, _DIFFERENT, _LESS, _AT_MOST, _MORE, _AT_LEAST = "=", "<>", "<", "<=", ">", ">="
_OPERATORS: Final[Mapping[type[iceberg.BooleanExpression], str]] = MappingProxyType(
    {
        iceberg.EqualTo: _EQUAL,
        iceberg.NotEqualTo: _DIFFERENT,
        iceberg.LessThan: _LESS,
        iceberg.LessThanOrEqual: _AT_MOST,
        iceberg.GreaterThan: _MORE,
        iceberg.GreaterThanOrEqual: _AT_LEAST,
    }
)
_OPPOSITES: Final = MappingProxyType(
    {_EQUAL: _DIFFERENT, _DIFFERENT: _EQUAL, _LESS: _AT_LEAST, _AT_LEAST: _LESS, _MORE: _AT_MOST, _AT_MOST: _MORE}
)
_KERNELS: Final = MappingProxyType(
    {
        _EQUAL: pc.equal,
        _DIFFERENT: pc.not_equal,
        _LESS: pc.less,
        _AT_MOST: pc.less_equal,
        _MORE: pc.greater,
        _AT_LEAST: pc.greater_equal,
    }
)
_PRUNING: Final[Mapping[str, type[iceberg.LiteralPredicate]]] = MappingProxyType(
    {
        _EQUAL: iceberg.EqualTo,
        _LESS: iceberg.LessThan,
        _AT_MOST: iceberg.LessThanOrEqual,
        _MORE: iceberg.GreaterThan,
        _AT_LEAST: iceberg.GreaterThanOrEqual,
    }
)
"""The comparisons that can rule files out. Bounds say nothing about values that differ from one value."""

_INTEGERS: Final = MappingProxyType({types.IntegerType: 1 << 31, types.LongType: 1 << 63})
_MICROSECONDS: Final = (types.TimestampType, types.TimestamptzType)
_NANOSECONDS: Final = (types.TimestampNanoType, types.TimestamptzNanoType)
_FLOATING: Final = (types.FloatType, types.DoubleType)
_BYTES: Final = (types.BinaryType, types.FixedType, types.UUIDType)
_WITHOUT_STEPS: Final = (types.BooleanType, types.StringType, *_BYTES, *_FLOATING)
"""Types that are compared only with literals of their own type, or that do not count in whole numbers."""
_DAY: Final = 86_400_000_000
"""Microseconds."""
_FAR: Final = 400
"""A power of ten beyond every value of a column, and beyond the range of a double."""

_TOKENS: Final = re.compile(
    r"""'(?:[^'\n\r\\]|''|\\(?:[^x]|x[0-9a-fA-F]+))*'|"[^"\n\r]*"|"""
    r"""(?<![\w$.])(?P<number>(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?)(?![\w$.])"""
)
"""PyIceberg's tokens for a string, a quoted name and a number, which here may have an exponent."""


def parse_filter(text: str) -> iceberg.BooleanExpression:
    """Parse a filter, as PyIceberg's `Table.scan` takes it, without rounding its numbers.

    Raises:
        ValueError: the text is no filter.
    """
    try:
        return _tree(text)
    except Exception as error:
        # The parser's errors come from another package, and have no common base.
        raise ValueError(f"a row_filter such as \"id > 1 and day = '2026-11-25'\": {text!r}: {error}") from error


def _tree(text: str) -> iceberg.BooleanExpression:
    """Parse a filter.

    PyIceberg's parser makes a float of each number with a fraction. So each number is replaced by its index, which is
    whole, and is put back into the tree afterwards. Signs are not part of a number here.
    """
    numbers: list[str] = []

    def placed(token: re.Match[str]) -> str:
        if (number := token["number"]) is None:
            return token[0]
        numbers.append(number)
        return str(len(numbers))

    # By default the parser replaces tabs by spaces, also within strings.
    grammar = boolean_expression.copy().parse_with_tabs()
    found: iceberg.BooleanExpression
    try:
        found = grammar.parse_string(_TOKENS.sub(placed, text), parse_all=True)[0]
    except Exception:
        # Parse the original text again, so that the message has its positions and numbers.
        grammar.parse_string(text, parse_all=True)
        raise
    return visit(found, _Numbered(numbers))


class _Numbered(BooleanExpressionVisitor[iceberg.BooleanExpression]):
    """A visitor that replaces the indexes of numbers by the numbers.

    Args:
        numbers: the numbers as written, without signs.
    """

    def __init__(self, numbers: Sequence[str]) -> None:
        self._numbers = numbers

    @override
    def visit_true(self) -> iceberg.BooleanExpression:
        return iceberg.AlwaysTrue()

    @override
    def visit_false(self) -> iceberg.BooleanExpression:
        return iceberg.AlwaysFalse()

    @override
    def visit_not(self, child_result: iceberg.BooleanExpression) -> iceberg.BooleanExpression:
        return iceberg.Not(child_result)

    @override
    def visit_and(
        self, left_result: iceberg.BooleanExpression, right_result: iceberg.BooleanExpression
    ) -> iceberg.BooleanExpression:
        return iceberg.And(left_result, right_result)

    @override
    def visit_or(
        self, left_result: iceberg.BooleanExpression, right_result: iceberg.BooleanExpression
    ) -> iceberg.BooleanExpression:
        return iceberg.Or(left_result, right_result)

    @override
    def visit_unbound_predicate(self, predicate: iceberg.UnboundPredicate) -> iceberg.BooleanExpression:
        match predicate:
            case iceberg.LiteralPredicate():
                return type(predicate)(predicate.term, self._written(predicate.literal))
            case iceberg.SetPredicate():
                return type(predicate)(predicate.term, {self._written(one) for one in predicate.literals})
            case _:
                return predicate

    @override
    def visit_bound_predicate(self, predicate: Any) -> iceberg.BooleanExpression:
        raise TypeError(f"a filter that is not bound to a schema: {predicate}")

    def _written(self, literal: Literal[Any]) -> Literal[Any]:
        if isinstance(literal, literals.DecimalLiteral):
            raise TypeError(f"a number must be followed by a space, an operator or a parenthesis: {literal}")
        if not isinstance(literal, literals.LongLiteral):
            return literal
        written, is_negative = self._numbers[abs(literal.value) - 1], literal.value < 0
        if written.isdecimal():
            return literals.LongLiteral(-int(written) if is_negative else int(written))
        number = Decimal(written)
        # The minus operator would round to the digits of the decimal context.
        return literals.DecimalLiteral(number.copy_negate() if is_negative else number)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A filter of the rows of a table.

    Attributes:
        columns: the ids of the top-level columns that it compares.
        pruning: a PyIceberg expression that is true for every row that the filter selects; a file without such rows
            need not be read. Columns, operators and types with misleading statistics are left out.
    """

    columns: frozenset[int]
    pruning: iceberg.BooleanExpression
    _mask: _Mask | None

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which the filter is true.

        Args:
            batch: rows with the columns that the filter compares, with their types and names in the table.
        """
        return batch if self._mask is None else batch.filter(self._mask(batch))


def bind_filter(schema: Schema, which: str | iceberg.BooleanExpression | None) -> RowFilter:
    """Bind a filter to the schema of a table.

    Raises:
        ValueError: the filter can't be parsed, names no column, or compares one to what can't be a value of its type.
    """
    if which is None:
        return RowFilter(frozenset(), iceberg.AlwaysTrue(), None)
    binding = _Binding(schema)
    try:
        found = visit(_tree(which) if isinstance(which, str) else which, binding)
    except Exception as error:
        # The parser's errors have no common base, and conversions of literals raise errors of any type.
        raise ValueError(f"a row_filter that fits the table's columns: {which!r}: {error}") from error
    return RowFilter(frozenset(binding.columns), found.pruning, found.mask)


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of a filter.

    Attributes:
        mask: its value for each row.
        pruning: an expression that is true for every row for which this part is true.
        opposite: an expression that is true for every row for which this part is false.
    """

    mask: _Mask
    pruning: iceberg.BooleanExpression
    opposite: iceberg.BooleanExpression


class _Binding(BooleanExpressionVisitor[_Node]):
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.columns: set[int] = set()

    @override
    def visit_true(self) -> _Node:
        return _Node(lambda batch: pa.repeat(True, batch.num_rows), iceberg.AlwaysTrue(), iceberg.AlwaysFalse())

    @override
    def visit_false(self) -> _Node:
        return _Node(lambda batch: pa.repeat(False, batch.num_rows), iceberg.AlwaysFalse(), iceberg.AlwaysTrue())

    @override
    def visit_not(self, child_result: _Node) -> _Node:
        inner = child_result.mask
        return _Node(lambda batch: pc.invert(inner(batch)), child_result.opposite, child_result.pruning)

    @override
    def visit_and(self, left_result: _Node, right_result: _Node) -> _Node:
        left, right = left_result.mask, right_result.mask
        return _Node(
            lambda batch: pc.and_kleene(left(batch), right(batch)),
            iceberg.And(left_result.pruning, right_result.pruning),
            iceberg.Or(left_result.opposite, right_result.opposite),
        )

    @override
    def visit_or(self, left_result: _Node, right_result: _Node) -> _Node:
        left, right = left_result.mask, right_result.mask
        return _Node(
            lambda batch: pc.or_kleene(left(batch), right(batch)),
            iceberg.Or(left_result.pruning, right_result.pruning),
            iceberg.And(left_result.opposite, right_result.opposite),
        )

    @override
    def visit_unbound_predicate(self, predicate: iceberg.UnboundPredicate) -> _Node:
        if not isinstance(predicate.term, iceberg.Reference):
            raise TypeError(f"the filter must compare columns: {predicate}")
        column = _column(self._schema, predicate.term.name)
        self.columns.add(column.path[0].field_id)
        match predicate:
            case iceberg.IsNull() | iceberg.NotNull():
                return _null_test(column, is_null=isinstance(predicate, iceberg.IsNull))
            case iceberg.IsNaN() | iceberg.NotNaN():
                return _nan_test(column, is_nan=isinstance(predicate, iceberg.IsNaN))
            case iceberg.StartsWith() | iceberg.NotStartsWith():
                starts = _prefix_test(column, predicate.literal.value)
                return starts if isinstance(predicate, iceberg.StartsWith) else self.visit_not(starts)
            case iceberg.In() | iceberg.NotIn():
                is_in = _membership(column, predicate.literals)
                return is_in if isinstance(predicate, iceberg.In) else self.visit_not(is_in)
            case iceberg.LiteralPredicate():
                return _comparison(column, _OPERATORS[type(predicate)], predicate.literal)
            case _:
                raise TypeError(f"an unknown comparison: {predicate}")

    @override
    def visit_bound_predicate(self, predicate: Any) -> _Node:
        raise TypeError(f"a filter that is not bound to a schema: {predicate}")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column, or a field of a struct.

    Attributes:
        name: its name in the filter.
        path: the fields that lead to it, from a top-level column on.
    """

    name: str
    path: Sequence[types.NestedField]

    @property
    def kind(self) -> types.IcebergType:
        return self.path[-1].field_type

    @property
    def reference(self) -> iceberg.Reference:
        return iceberg.Reference(self.name)

    @property
    def is_prunable(self) -> bool:
        """True if statistics count its NULLs, and are written only if the column may have NULLs."""
        return len(self.path) == 1 and self.kind.is_primitive and not self.path[0].required

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return its values."""
        first, *others = self.path
        array = batch.column(first.name)
        # A field of a struct that is NULL is NULL.
        return pc.struct_field(array, [field.name for field in others]) if others else array


def _column(schema: Schema, name: str) -> _Column:
    """Return the column with a name.

    Raises:
        ValueError: there is none, or it lies in a list or map.
    """
    sought = schema.find_field(name).field_id
    path = _path(schema.fields, sought)
    if path is None:
        raise ValueError(f"a column that has one value for each row: {name!r}")
    return _Column(name, path)


def _path(fields: Sequence[types.NestedField], sought: int) -> list[types.NestedField] | None:
    for field in fields:
        if field.field_id == sought:
            return [field]
        if isinstance(field.field_type, types.StructType):
            inner = _path(field.field_type.fields, sought)
            if inner is not None:
                return [field, *inner]
    return None


def _null_test(column: _Column, *, is_null: bool) -> _Node:
    tests = [iceberg.IsNull(term=column.reference), iceberg.NotNull(term=column.reference)]
    prunings = tests if column.is_prunable else [iceberg.AlwaysTrue(), iceberg.AlwaysTrue()]
    kernel = pc.is_null if is_null else pc.is_valid
    first, second = prunings if is_null else reversed(prunings)
    return _Node(lambda batch: kernel(column.of(batch)), first, second)


def _nan_test(column: _Column, *, is_nan: bool) -> _Node:
    if not isinstance(column.kind, _FLOATING):
        return _constant(column, truth=not is_nan)

    def mask(batch: pa.RecordBatch) -> pa.Array:
        found = pc.is_nan(column.of(batch))
        return found if is_nan else pc.invert(found)

    return _Node(mask, iceberg.AlwaysTrue(), iceberg.AlwaysTrue())


def _prefix_test(column: _Column, prefix: object) -> _Node:
    if not isinstance(column.kind, types.StringType) or not isinstance(prefix, str):
        raise TypeError(f"only a string column has prefixes: {column.name!r} is of type {column.kind}")
    pruning = iceberg.StartsWith(term=column.reference, value=literals.StringLiteral(prefix))
    return _Node(lambda batch: pc.starts_with(column.of(batch), prefix), pruning, iceberg.AlwaysTrue())


def _constant(column: _Column, *, truth: bool) -> _Node:
    """Return a part that has the same truth for every value, and is unknown for NULL."""

    def mask(batch: pa.RecordBatch) -> pa.Array:
        there = pc.is_valid(column.of(batch))
        return pc.if_else(there, pa.scalar(truth), pa.scalar(None, pa.bool_()))

    there = iceberg.NotNull(term=column.reference) if column.is_prunable else iceberg.AlwaysTrue()
    never = iceberg.AlwaysFalse()
    return _Node(mask, *((there, never) if truth else (never, there)))


@dataclass(frozen=True, slots=True)
class _Value:
    """A literal as a value of a column's type.

    Attributes:
        scalar: the value that Arrow compares with the result of `_comparable`.
        literal: PyIceberg's literal for pruning; None if bounds may mislead.
    """

    scalar: pa.Scalar
    literal: Literal[Any] | None


def _comparable(kind: types.IcebergType) -> Callable[[pa.Array], pa.Array]:
    """Return a conversion to an array that Arrow compares as Spark compares the values, except for NaN."""
    match kind:
        case types.BooleanType():
            return lambda array: array.cast(pa.int8())
        case types.DateType():
            # Arrow has no cast from days to 64 bits.
            return lambda array: array.cast(pa.int32()).cast(pa.int64())
        case types.StringType():
            return lambda array: array.cast(pa.large_string())
        case types.DecimalType(scale=scale):
            return lambda array: array.cast(pa.decimal128(38, scale))
        case types.UUIDType():
            return lambda array: getattr(array, "storage", array).cast(pa.large_binary())
        case _ if isinstance(kind, _BYTES):
            return lambda array: array.cast(pa.large_binary())
        case _ if isinstance(kind, _FLOATING):
            # The addition turns -0.0 into 0.0.
            return lambda array: pc.add(array.cast(pa.float64()), 0.0)
        case _:
            return lambda array: array.cast(pa.int64())


def _comparison(column: _Column, operator: str, literal: Literal[Any]) -> _Node:
    """Bind a comparison with a literal."""
    if not isinstance(column.kind, _WITHOUT_STEPS):
        return _of_steps(column, operator, literal)
    value = _value(column.kind, literal)
    found = _test(column, operator, value)
    if isinstance(column.kind, _FLOATING) and operator in {_DIFFERENT, _MORE, _AT_LEAST}:
        compared = found.mask
        # NaN is greater than every literal: no literal of PyIceberg is NaN.
        return _Node(lambda batch: pc.or_(compared(batch), pc.is_nan(column.of(batch))), found.pruning, found.opposite)
    return found


def _test(column: _Column, operator: str, value: _Value) -> _Node:
    kernel, comparable, scalar = _KERNELS[operator], _comparable(column.kind), value.scalar

    def pruning(one: str) -> iceberg.BooleanExpression:
        if value.literal is None or one not in _PRUNING or one not in _pruned(column.kind):
            return iceberg.AlwaysTrue()
        return _PRUNING[one](column.reference, value.literal)

    return _Node(
        lambda batch: kernel(comparable(column.of(batch)), scalar), pruning(operator), pruning(_OPPOSITES[operator])
    )


def _pruned(kind: types.IcebergType) -> Collection[str]:
    """Return the comparisons for which bounds can rule a file out."""
    if isinstance(kind, _BYTES):
        # Writers disagree on the order of uuids, and so on bounds.
        return ()
    # Bounds ignore NaN, for which the other comparisons are true.
    return {_EQUAL, _LESS, _AT_MOST} if isinstance(kind, _FLOATING) else _PRUNING


def _membership(column: _Column, members: Collection[Literal[Any]]) -> _Node:
    """Bind a test for membership in a set."""
    found = [value for value in (_equal_to(column.kind, one) for one in members) if value is not None]
    if not found:
        return _constant(column, truth=False)
    comparable = _comparable(column.kind)
    scalars = pa.array([value.scalar.as_py() for value in found], found[0].scalar.type)

    def mask(batch: pa.RecordBatch) -> pa.Array:
        array = comparable(column.of(batch))
        # `is_in` returns false for NULL.
        return pc.if_else(pc.is_valid(array), pc.is_in(array, value_set=scalars), pa.scalar(None, pa.bool_()))

    own = {value.literal for value in found if value.literal is not None}
    # See `_pruned`; also, a lookup in a set treats 0.0 and -0.0 as two values.
    is_odd = isinstance(column.kind, (*_BYTES, *_FLOATING))
    is_pruned = len(own) == len({value.scalar for value in found}) and not is_odd
    pruning = iceberg.In(term=column.reference, values=own) if is_pruned else iceberg.AlwaysTrue()
    return _Node(mask, pruning, iceberg.AlwaysTrue())


def _equal_to(kind: types.IcebergType, literal: Literal[Any]) -> _Value | None:
    """Return the value of a type that equals a literal; None if there is none."""
    if isinstance(kind, _WITHOUT_STEPS):
        return _value(kind, literal)
    steps, place = _steps(kind), _position(literal, kind)
    if not isinstance(place, Fraction) or place.denominator > 1 or not steps.least <= place <= steps.most:
        return None
    return steps.value(int(place))


def _value(kind: types.IcebergType, literal: Literal[Any]) -> _Value:
    """Return a literal as a value of a type that is not counted in steps."""
    if isinstance(kind, _FLOATING):
        number = _float(literal)
        number = _single(number) if isinstance(kind, types.FloatType) else number
        # The addition turns -0.0 into 0.0, as in `_comparable`.
        return _Value(pa.scalar(number + 0.0, pa.float64()), None if isinf(number) else literals.DoubleLiteral(number))
    own = literal.to(kind)
    match kind:
        case types.BooleanType():
            return _Value(pa.scalar(int(own.value), pa.int8()), own)
        case types.StringType():
            return _Value(pa.scalar(own.value, pa.large_string()), own)
        case _:
            return _Value(pa.scalar(own.value, pa.large_binary()), own)


def _float(literal: Literal[Any]) -> float:
    value = literal.value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise TypeError(f"a number, not {value!r}")
    # Python can't convert a whole number beyond a double's range, but a Decimal it can.
    number = float(Decimal(value) if isinstance(value, int) else value)
    if number != number:  # noqa: PLR0124 - NaN alone differs from itself
        raise ValueError("a number; `is nan` finds NaN")
    return number


def _single(value: float) -> float:
    """Return the nearest 32-bit number."""
    try:
        single: float = unpack("<f", pack("<f", value))[0]
    except OverflowError:
        return inf if value > 0 else -inf
    return single


@dataclass(frozen=True, slots=True)
class _Steps:
    """A type with a range of whole numbers as values.

    Attributes:
        least, most: the range.
        value: a conversion from a whole number to a value.
    """

    least: int
    most: int
    value: Callable[[int], _Value]


def _longs(bound: int, literal: Callable[[int], Literal[Any]] | None) -> _Steps:
    def value(number: int) -> _Value:
        return _Value(pa.scalar(number, pa.int64()), None if literal is None else literal(number))

    return _Steps(-bound, bound - 1, value)


def _decimals(precision: int, scale: int) -> _Steps:
    def value(number: int) -> _Value:
        scaled = Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
        return _Value(pa.scalar(scaled, pa.decimal128(38, scale)), literals.DecimalLiteral(scaled))

    most = 10**precision - 1
    return _Steps(-most, most, value)


def _steps(kind: types.IcebergType) -> _Steps:
    match kind:
        case types.IntegerType() | types.LongType():
            return _longs(_INTEGERS[type(kind)], literals.LongLiteral)
        case types.DateType():
            return _longs(1 << 31, literals.DateLiteral)
        case types.TimeType():
            return _longs(1 << 63, literals.TimeLiteral)
        case types.DecimalType(precision=precision, scale=scale):
            return _decimals(precision, scale)
        case _ if isinstance(kind, _MICROSECONDS):
            return _longs(1 << 63, literals.TimestampLiteral)
        case _ if isinstance(kind, _NANOSECONDS):
            return _longs(1 << 63, None)
        case _:
            raise TypeError(f"a column of type {kind} can't be compared with a value")


def _of_steps(column: _Column, operator: str, literal: Literal[Any]) -> _Node:
    """Return a comparison of whole steps, such as days, with a number that may lie between two of them."""
    step = _step(column.kind, operator, literal)
    return _constant(column, truth=step) if isinstance(step, bool) else _test(column, operator, step)


def _step(kind: types.IcebergType, operator: str, literal: Literal[Any]) -> _Value | bool:
    """Return the value of a stepped type that can replace a literal in a comparison.

    Returns:
        True or False, if the comparison has this result for every value of the type.
    """
    steps, place = _steps(kind), _position(literal, kind)
    up, down = (ceil(place), floor(place)) if isinstance(place, Fraction) else (place, place)
    if operator in {_EQUAL, _DIFFERENT} and not (up == down and steps.least <= down <= steps.most):
        return operator == _DIFFERENT
    bound = up if operator in {_LESS, _AT_LEAST} else down
    if not steps.least <= bound <= steps.most:
        return (bound > 0) == (operator in {_LESS, _AT_MOST})
    return steps.value(int(bound))


def to_exact(predicate: iceberg.UnboundPredicate, kind: types.IcebergType) -> iceberg.UnboundPredicate | bool:
    """Return a comparison of an integer or decimal column with values of its own type, which selects the same rows.

    Returns:
        True or False, if the comparison has this result for every value.

    Raises:
        ValueError: the column is compared with something that is no number.
    """
    try:
        match predicate:
            case iceberg.SetPredicate():
                members = [_equal_to(kind, one) for one in predicate.literals]
                own = {one.literal for one in members if one is not None and one.literal is not None}
                return type(predicate)(predicate.term, own) if own else isinstance(predicate, iceberg.NotIn)
            case iceberg.LiteralPredicate() if type(predicate) in _OPERATORS:
                step = _step(kind, _OPERATORS[type(predicate)], predicate.literal)
                return step if isinstance(step, bool) else type(predicate)(predicate.term, step.literal)
            case _:
                return predicate
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ValueError(f"a row_filter that fits the table's columns: {predicate}: {error}") from error


def _position(literal: Literal[Any], kind: types.IcebergType) -> Fraction | float:
    """Return a literal's position among the values of a type; infinite if beyond all of them."""
    match kind:
        case types.IntegerType() | types.LongType():
            return _number(literal)
        case types.DecimalType(scale=scale):
            number = _number(literal)
            return number * 10**scale if isinstance(number, Fraction) else number
        case types.DateType() if isinstance(literal, literals.TimestampLiteral):
            return Fraction(literal.value, _DAY)
        case _ if isinstance(kind, _NANOSECONDS):
            return Fraction(_micros(literal, kind)) * 1_000
        case _ if isinstance(kind, _MICROSECONDS):
            return Fraction(_micros(literal, kind))
        case _:
            return Fraction(literal.to(kind).value)


def _micros(literal: Literal[Any], kind: types.IcebergType) -> int:
    has_zone = isinstance(kind, types.TimestamptzType | types.TimestamptzNanoType)
    if isinstance(literal, literals.DateLiteral):
        return literal.value * _DAY
    micros: int = literal.to(types.TimestamptzType() if has_zone else types.TimestampType()).value
    return micros


def _number(literal: Literal[Any]) -> Fraction | float:
    value = literal.value
    if isinstance(value, str):
        value = Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or value != value:  # noqa: PLR0124 - NaN
        raise TypeError(f"a number, not {value!r}")
    if isinstance(value, Decimal) and value.is_finite() and value and abs(value.adjusted()) > _FAR:
        # A fraction would have as many digits as the exponent demands.
        value = Decimal((int(value.is_signed()), (1,), _FAR if value.adjusted() > 0 else -_FAR))
    return float(value) if not isinstance(value, int) and isinf(value) else Fraction(value)
