"""Values of every type, and how Java's JSON, Arrow and a filter's text have them.

Rows are compared as Python values: times are microseconds, a uuid is its text, a struct a tuple, a map one of pairs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final
from uuid import UUID

from pyiceberg import types

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
