"""Filters: made up, written as text, and applied to rows by SQL's rules in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any, Final, TypeAlias

from pyiceberg import types
from pyiceberg.schema import Schema

from tests.spark.differential.values import TIMES, moment, pool, single

Row: TypeAlias = Mapping[str, Any]
_COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
_NUMBERS: Final = (types.IntegerType, types.LongType, types.FloatType, types.DoubleType, types.DecimalType)
_UNWRITTEN: Final = (types.BinaryType, types.FixedType, types.TimeType)
"""Types that a filter's text has no literal of."""
_BESIDE: Final = Decimal("0.00001")
"""Less than between any two decimals of the tables."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter.

    Attributes:
        text: as readers take it.
        holds: true, false, or None where that is not known.
        columns: the top-level columns that it compares.
        pushed: operator, column and value of what Spark would offer a data source of it; None where that is nothing.
    """

    text: str
    holds: Callable[[Row], bool | None]
    columns: frozenset[str] = frozenset()
    pushed: tuple[str, str, Any] | None = None


def some_filter(rng: Random, schema: Schema, depth: int = 2) -> Filter:
    """Return a filter of the columns of a schema."""
    chance = rng.random()
    if depth and chance < 0.3:
        left, right = some_filter(rng, schema, depth - 1), some_filter(rng, schema, depth - 1)
        return _and(left, right) if rng.random() < 0.5 else _or(left, right)
    if depth and chance < 0.4:
        return _not(some_filter(rng, schema, depth - 1))
    if chance < 0.42 and depth == 2:
        truth = rng.random() < 0.5
        return Filter(f"{truth}".lower(), lambda _: truth)
    path = rng.choice(_paths(schema))
    return _leaf(rng, path)


def _paths(schema: Schema) -> list[list[types.NestedField]]:
    """Return the columns that a filter's text can name, and the fields of structs."""
    found = []
    for field in schema.fields:
        if "." in field.name:
            continue
        found.append([field])
        if isinstance(field.field_type, types.StructType):
            found += [[field, inner] for inner in field.field_type.fields if inner.field_type.is_primitive]
    return found


def _leaf(rng: Random, path: Sequence[types.NestedField]) -> Filter:
    kind = path[-1].field_type
    name = ".".join(_quoted(field.name) for field in path)
    columns = frozenset({path[0].name})

    def value(row: Row) -> Any:  # noqa: ANN401 - of any type
        found = row[path[0].name]
        if len(path) == 1 or found is None:
            return found
        fields = path[0].field_type.fields  # type: ignore[attr-defined] # a struct's
        return found[[field.field_id for field in fields].index(path[1].field_id)]

    leaf = _Leaf(name, kind, value, columns, path[0].name if len(path) == 1 else "")
    chance = rng.random()
    if chance < 0.2 or not kind.is_primitive or isinstance(kind, _UNWRITTEN):
        return leaf.null_test(rng)
    if isinstance(kind, types.FloatType | types.DoubleType) and chance < 0.4:
        return leaf.nan_test(rng)
    if isinstance(kind, types.StringType) and chance < 0.4:
        return leaf.prefix_test(rng)
    return leaf.membership(rng) if chance < 0.55 else leaf.comparison(rng)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column, of which filters are made.

    Attributes:
        value: its value in a row.
        column: its name; empty where it is a part of a struct.
    """

    name: str
    kind: types.IcebergType
    value: Callable[[Row], Any]
    columns: frozenset[str]
    column: str

    def null_test(self, rng: Random) -> Filter:
        if rng.random() < 0.5:
            return Filter(f"{self.name} is null", lambda row: self.value(row) is None, self.columns)
        return Filter(f"{self.name} is not null", lambda row: self.value(row) is not None, self.columns)

    def nan_test(self, rng: Random) -> Filter:
        if rng.random() < 0.5:
            return self._known("is nan", lambda one: one != one)  # noqa: PLR0124 - NaN
        return self._known("is not nan", lambda one: one == one)  # noqa: PLR0124 - NaN

    def prefix_test(self, rng: Random) -> Filter:
        prefix = rng.choice(["", "a", "ab", "the same beginning of a text b", "the same", "ü", "z"])
        if rng.random() < 0.5:
            return self._known(f"like '{prefix}%'", lambda one: one.startswith(prefix), "like", prefix)
        return self._known(f"not like '{prefix}%'", lambda one: not one.startswith(prefix), "not like", prefix)

    def membership(self, rng: Random) -> Filter:
        texts, values = zip(*(_literal(rng, self.kind) for _ in range(rng.randrange(1, 4))), strict=True)
        is_in = rng.random() < 0.5
        keys = [_key(one) for one in values]
        operator = "in" if is_in else "not in"
        return self._known(
            f"{operator} ({', '.join(texts)})", lambda one: (_key(one) in keys) == is_in, operator, values
        )

    def comparison(self, rng: Random) -> Filter:
        operator = rng.choice(sorted(_COMPARED))
        if isinstance(self.kind, types.BooleanType):
            operator = rng.choice(["=", "<>"])
        text, literal = _literal(rng, self.kind)
        return self._known(
            f"{operator} {text}", lambda one: _COMPARED[operator](_key(one), _key(literal)), operator, literal
        )

    def _known(self, text: str, test: Callable[[Any], bool], operator: str = "", value: Any = None) -> Filter:  # noqa: ANN401 - of any type
        """Return a test whose result is unknown where the value is NULL."""

        def holds(row: Row) -> bool | None:
            found = self.value(row)
            return None if found is None else test(found)

        pushed = (operator, self.column, value) if operator and self.column and _is_of(value, self.kind) else None
        return Filter(f"{self.name} {text}", holds, self.columns, pushed)


def _is_of(value: Any, kind: types.IcebergType) -> bool:  # noqa: ANN401 - of any type
    """Whether Spark would offer a comparison with such a value: it casts the column for others."""
    if isinstance(value, tuple):
        return all(_is_of(one, kind) for one in value)
    match kind:
        case types.IntegerType() | types.LongType():
            return isinstance(value, int) and abs(value) < (1 << 31 if isinstance(kind, types.IntegerType) else 1 << 63)
        case types.DecimalType(scale=scale):
            return isinstance(value, Decimal) and value.as_tuple().exponent == -scale
        case _:
            return not isinstance(kind, TIMES)


def _key(value: Any) -> Any:  # noqa: ANN401 - of any type
    """Return what a value is compared by: NaN is equal to itself and greater than all, texts are UTF-8."""
    if isinstance(value, float):
        return (1, 0.0) if value != value else (0, value)  # noqa: PLR0124 - NaN
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return Decimal(value)
    return value


def _literal(rng: Random, kind: types.IcebergType) -> tuple[str, Any]:
    """Return a literal's text, and its value as one of the column's type."""
    value = rng.choice(pool(kind))
    if isinstance(kind, _NUMBERS):
        return _number(rng, kind, value)
    match kind:
        case types.BooleanType():
            return f"{value}".lower(), value
        case types.StringType() | types.UUIDType():
            return "'" + value.replace("'", "''") + "'", value
        case types.DateType():
            assert isinstance(value, date)
            return f"'{value.isoformat()}'", value
        case _:
            assert isinstance(kind, TIMES)
            return f"'{moment(value, zone=isinstance(kind, types.TimestamptzType))}'", value


def _number(rng: Random, kind: types.IcebergType, value: Any) -> tuple[str, Any]:  # noqa: ANN401 - a number
    if isinstance(kind, types.FloatType | types.DoubleType):
        value = rng.choice([-1.5, 0.0, 0.1, 1.5, 1.75, 2.0])
        text = f"{value}" if value % 1 or rng.random() < 0.5 else f"{int(value)}"
        return text, single(value) if isinstance(kind, types.FloatType) else value
    if isinstance(kind, types.DecimalType):
        small = [Decimal("-0.15"), Decimal("0.01"), Decimal("0.15"), Decimal("1.5"), Decimal("0.155")]
        # Those of the column, which may have more digits than a double, and what lies beside them.
        own = rng.choice(pool(kind))
        value = rng.choice([rng.choice(small), own, own, own + _BESIDE, own - _BESIDE])
        return (f"{value:f}" if rng.random() < 0.7 else f"{value:E}"), value
    if rng.random() < 0.3:
        value = rng.choice([Decimal("1.5"), Decimal("-0.5"), Decimal("2.0"), Decimal(99_999_999_999), value + _BESIDE])
    return f"{value}", value


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() and name not in {"not", "is", "in"} else f'"{name}"'


def _and(left: Filter, right: Filter) -> Filter:
    def holds(row: Row) -> bool | None:
        found = {left.holds(row), right.holds(row)}
        return False if False in found else None if None in found else True

    return Filter(f"({left.text}) and ({right.text})", holds, left.columns | right.columns)


def _or(left: Filter, right: Filter) -> Filter:
    def holds(row: Row) -> bool | None:
        found = {left.holds(row), right.holds(row)}
        return True if True in found else None if None in found else False

    return Filter(f"({left.text}) or ({right.text})", holds, left.columns | right.columns)


def _not(inner: Filter) -> Filter:
    def holds(row: Row) -> bool | None:
        found = inner.holds(row)
        return None if found is None else not found

    return Filter(f"not ({inner.text})", holds, inner.columns)
