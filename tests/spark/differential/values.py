"""Values of every type in Java's JSON, Arrow and filter text, and filters that compare them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final, TypeAlias
from uuid import UUID

from pyiceberg import types
from pyiceberg.schema import Schema

_NAN, _INF = float("nan"), float("inf")
_DAY: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - micros are counted without a zone
_LONG_TEXT: Final = "the same beginning of a text "

TIMES: Final = (types.TimestampType, types.TimestamptzType)

_POOLS: Final[Mapping[type[types.IcebergType], Sequence[Any]]] = {
    types.BooleanType: [True, False],
    types.IntegerType: [-(1 << 31), -1, 0, 1, 2, 3, (1 << 31) - 1],
    types.LongType: [-(1 << 63), -1, 0, 1, 2, 3, (1 << 31) + 5, (1 << 53) + 1, (1 << 63) - 1],
    types.FloatType: [-_INF, -1.5, -0.0, 0.0, 0.1, 1.5, 2.0, _INF, _NAN],
    types.DoubleType: [-_INF, -1.5, -0.0, 0.0, 0.1, 1.5, 2.0, 1e300, _INF, _NAN],
    types.DateType: [
        date(1, 1, 1),
        date(1582, 10, 4),
        date(1969, 12, 31),
        date(1970, 1, 1),
        date(2026, 11, 2),
        date(9999, 12, 31),
    ],
    types.TimeType: [0, 1, 86_399_999_999],
    types.TimestampType: [-62_135_596_800_000_000, -_DAY - 1, -1, 0, 1, 1_793_620_800_000_001, 253_402_300_799_999_999],
    types.TimestamptzType: [-62_135_596_800_000_000, -_DAY, -1, 0, 1, 1_793_620_800_000_001, 253_402_300_799_000_000],
    types.StringType: ["", "a", "ab", "abc", "b", "ü", "😀", "\uffff", "a%", "it's", _LONG_TEXT, _LONG_TEXT + "b"],
    types.UUIDType: [
        f"{number:08x}-0000-4000-8000-00000000000{number & 7}" for number in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF)
    ],
    types.BinaryType: [b"", b"\x00", b"ab", b"\xff\xff", bytes(range(40))],
}
_MILLISECONDS: Final = [-62_135_596_800_000_000, -_DAY, -1_000, 0, 1_793_620_800_000_000, 253_402_300_799_000_000]


def single(value: float) -> float:
    """Return the nearest number of 32 bits."""
    narrow: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return narrow


def pool(kind: types.IcebergType) -> Sequence[Any]:
    """Return values of a primitive type."""
    match kind:
        case types.DecimalType(precision=precision, scale=scale):
            most = 10**precision - 1
            return [Decimal(one).scaleb(-scale) for one in (-most, -15, 0, 1, 15, 150, most)]
        case types.FixedType():
            return [bytes(len(kind)), b"\xff" * len(kind), b"a" * len(kind)]
        case types.FloatType():
            return [single(one) for one in _POOLS[types.FloatType]]
        case _:
            return _POOLS[type(kind)]


def some(rng: Random, kind: types.IcebergType, *, optional: bool = True, whole: bool = False) -> Any:  # noqa: ANN401 - of any type
    """Return a value.

    Args:
        optional: it may be NULL.
        whole: times are whole milliseconds.
    """
    if optional and rng.random() < 0.25:
        return None
    match kind:
        case types.StructType(fields=fields):
            return tuple(some(rng, one.field_type, optional=not one.required, whole=whole) for one in fields)
        case types.ListType():
            inner, may = kind.element_type, not kind.element_required
            return tuple(some(rng, inner, optional=may, whole=whole) for _ in range(rng.randrange(4)))
        case types.MapType():
            keys = dict.fromkeys(some(rng, kind.key_type, optional=False) for _ in range(rng.randrange(4)))
            may = not kind.value_required
            return tuple((key, some(rng, kind.value_type, optional=may, whole=whole)) for key in keys)
        case _ if whole and isinstance(kind, TIMES):
            return rng.choice(_MILLISECONDS)
        case _:
            return rng.choice(pool(kind))


def to_arrow(value: Any, kind: types.IcebergType) -> Any:  # noqa: ANN401 - of any type
    """Return a value as `pa.array` takes it."""
    if value is None:
        return None
    match kind:
        case types.StructType(fields=fields):
            return {one.name: to_arrow(part, one.field_type) for one, part in zip(fields, value, strict=True)}
        case types.ListType():
            return [to_arrow(part, kind.element_type) for part in value]
        case types.MapType():
            return [(to_arrow(key, kind.key_type), to_arrow(part, kind.value_type)) for key, part in value]
        case types.UUIDType():
            return UUID(value).bytes
        case _:
            return value


def from_arrow(value: Any, kind: types.IcebergType) -> Any:  # noqa: ANN401 - of any type
    """Return a value of `to_pylist`."""
    if value is None:
        return None
    match kind:
        case types.StructType(fields=fields):
            return tuple(from_arrow(value[one.name], one.field_type) for one in fields)
        case types.ListType():
            return tuple(from_arrow(part, kind.element_type) for part in value)
        case types.MapType():
            return tuple((from_arrow(key, kind.key_type), from_arrow(part, kind.value_type)) for key, part in value)
        case types.UUIDType():
            return f"{UUID(bytes=value) if isinstance(value, bytes) else value}"
        case _ if isinstance(value, datetime):
            return (value.replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)
        case _ if isinstance(value, time):
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        case _:
            return value


def moment(micros: int, *, zone: bool) -> str:
    """Return a time as ISO 8601 has it."""
    text = (_EPOCH + timedelta(microseconds=micros)).isoformat()
    return f"{text}+00:00" if zone else text


def to_json(value: Any, kind: types.IcebergType) -> Any:  # noqa: ANN401 - of any type
    """Return a primitive value as Java's `SingleValueParser` takes it."""
    match kind:
        case types.DateType() | types.DecimalType():
            return f"{value}"
        case _ if isinstance(kind, TIMES):
            return moment(value, zone=isinstance(kind, types.TimestamptzType))
        case types.TimeType():
            return (_EPOCH + timedelta(microseconds=value)).time().isoformat()
        case _ if isinstance(value, bytes):
            return value.hex().upper()
        case _:
            return value


def from_json(value: Any, kind: types.IcebergType) -> Any:  # noqa: ANN401 - of any type
    """Return a value that Java's `SingleValueParser` made."""
    if value is None:
        return None
    match kind:
        case types.StructType(fields=fields):
            return tuple(from_json(value.get(f"{one.field_id}"), one.field_type) for one in fields)
        case types.ListType():
            return tuple(from_json(part, kind.element_type) for part in value)
        case types.MapType():
            pairs = zip(value["keys"], value["values"], strict=True)
            return tuple((from_json(key, kind.key_type), from_json(part, kind.value_type)) for key, part in pairs)
        case _:
            return _primitive_of_json(value, kind)


def _primitive_of_json(value: Any, kind: types.IcebergType) -> Any:  # noqa: ANN401 - of any type
    match kind:
        case types.FloatType():
            return single(float(value))
        case types.DoubleType():
            return float(value)
        case types.DecimalType():
            return Decimal(value)
        case types.DateType():
            return date.fromisoformat(value)
        case types.TimeType():
            return from_arrow(time.fromisoformat(value), kind)
        case _ if isinstance(kind, TIMES):
            return from_arrow(datetime.fromisoformat(value).replace(tzinfo=UTC), kind)
        case types.BinaryType() | types.FixedType():
            return bytes.fromhex(value)
        case _:
            return value


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
