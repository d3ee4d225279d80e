"""Check the Avro files of manifests before PyIceberg decodes them, and patch errors of its decoder.

PyIceberg's compiled decoder trusts every length that it reads (apache/iceberg-python#3952). If a manifest is cut off,
the decoder reads on in memory, which gives a wrong path at best, and ends the process at worst. The decoder also drops
half of a double (#3808): `price = 0.1` found no row of a table partitioned by price. Both are errors of 0.12.0, fixed
since. PyIceberg also makes a new object for each NaN. Two partitions with NaN are then unequal, and the lookup of
deletes by partition fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from pyiceberg import types
from pyiceberg.avro.codecs import AVRO_CODEC_KEY, KNOWN_CODECS
from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.reader import DoubleReader, FloatReader
from pyiceberg.utils.decimal import decimal_required_bytes
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

_Step: TypeAlias = Callable[[bytes, int], int]
"""A function from the start of a value to its end. For a value that is cut off it raises IndexError, or returns a
position behind the end."""
_Steps: TypeAlias = Callable[[bytes, int, int], int]
"""A function like `_Step` for a given number of values."""

_MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16
_CODECS: Final[Mapping[str, type[Codec] | None]] = MappingProxyType(
    {str(name): one for name, one in KNOWN_CODECS.items()}
)

_DOUBLE: Final = Struct("<d")
_NAN: Final = float("nan")

_LONGEST: Final = 10
"""The maximum length in bytes of a 64-bit long in Avro."""
_MORE: Final = 0x80
"""The bit in a byte of a number that announces another byte."""

_WIDTHS: Final[Mapping[type, int]] = MappingProxyType(
    {types.UnknownType: 0, types.BooleanType: 1, types.FloatType: 4, types.DoubleType: 8, types.UUIDType: 16}
)
_LONGS: Final = (
    types.IntegerType,
    types.LongType,
    types.DateType,
    types.TimeType,
    types.TimestampType,
    types.TimestamptzType,
    types.TimestampNanoType,
    types.TimestamptzNanoType,
)
_TEXTS: Final = (types.StringType, types.BinaryType, types.GeometryType, types.GeographyType)


def patch_doubles() -> None:
    """Patch PyIceberg's reader of doubles in the whole process, if it is wrong."""
    if new_decoder(_DOUBLE.pack(0.1)).read_double() != 0.1:  # noqa: PLR2004 - as written
        # PyIceberg offers no way to pass another reader.
        setattr(DoubleReader, "read", _double)  # noqa: B010 - mypy refuses an assignment


def _double(_reader: DoubleReader, decoder: BinaryDecoder) -> float:
    value: float = _DOUBLE.unpack(decoder.read(_DOUBLE.size))[0]
    return value


def patch_nan() -> None:
    """Patch PyIceberg to read every NaN as one object, in the whole process.

    PyIceberg looks up the deletes of a data file in a dictionary by the partition. Lists with a NaN are equal only if
    the NaN is the same object. Zeros need no patch: Iceberg's Java library, too, treats `-0.0` and `0.0` as two
    partitions.
    """
    for reader in (FloatReader, DoubleReader):
        setattr(reader, "read", _with_one_nan(reader.read))  # noqa: B010 - mypy refuses an assignment


def _with_one_nan(read: Callable[[Any, BinaryDecoder], float]) -> Callable[[Any, BinaryDecoder], float]:
    def read_number(reader: FloatReader | DoubleReader, decoder: BinaryDecoder) -> float:
        value = read(reader, decoder)
        return value if value == value else _NAN  # noqa: PLR0124 - NaN alone differs from itself

    return read_number


def check_avro(body: bytes) -> None:
    """Check that each value of an Avro file lies within the file, and within its block.

    The container is that of the Avro specification 1.11, "Object Container Files"; the lengths of values are those
    that PyIceberg's readers assume.

    Args:
        body: the whole file.

    Raises:
        ValueError: the file is cut off, or was overwritten.
        NotImplementedError: the file has values that writers encode in different ways.
        ImportError: its compression needs a package that is missing.
        Exception: PyIceberg can't read its schema or its compression; of any type.
    """
    if not body.startswith(_MAGIC):
        raise ValueError(f"{body[:4]!r} at its start" if body else "no bytes")
    try:
        _check(body)
    except IndexError:
        raise ValueError(f"a value that continues after the end, in {len(body)} bytes") from None


def _check(body: bytes) -> None:
    head, at = _header(body)
    sync, at = body[at : at + _SYNC], at + _SYNC
    if at > len(body):
        raise IndexError
    step = _record(head["avro.schema"])
    codec = _CODECS[head.get(AVRO_CODEC_KEY, "null")]
    while at < len(body):
        count, start = _long(body, at)
        length, start = _length(body, start)
        at = start + length
        if at + _SYNC > len(body):
            raise IndexError
        if body[at : at + _SYNC] != sync:
            raise ValueError(f"no end of a block at byte {at}")
        block = body[start:at]
        _block(block if codec is None else codec.decompress(block), count, step)
        at += _SYNC


def _block(block: bytes, count: int, step: _Step) -> None:
    at = 0
    for _ in range(_counted(block, 0, count)):
        at = step(block, at)
    if at != len(block):
        raise ValueError(f"a block of {len(block)} bytes, but its records end at byte {at}")


def _header(body: bytes) -> tuple[dict[str, str], int]:
    """Return the file's own properties, and the position of their end."""
    found, at = {}, len(_MAGIC)
    count, at = _long(body, at)
    while count:
        if count < 0:
            count, (_, at) = -count, _long(body, at)
        for _ in range(_counted(body, at, count)):
            key, at = _text(body, at)
            found[key], at = _text(body, at)
        count, at = _long(body, at)
    return found, at


@lru_cache(maxsize=64)
def _record(schema: str) -> _Step:
    """Return the function for a record. A table's files share it, and parsing it costs more than a short file."""
    return _step(AvroSchemaConversion().avro_to_iceberg(json.loads(schema)).as_struct())


def _step(kind: types.IcebergType) -> _Step:
    if isinstance(kind, _LONGS):
        return _over_long
    if isinstance(kind, _TEXTS):
        return _over_bytes
    if isinstance(kind, types.StructType):
        return _over_struct([_field(one) for one in kind.fields])
    if isinstance(kind, types.ListType):
        return _over_items(_each(_step(kind.element_type)))
    if isinstance(kind, types.MapType):
        return _over_items(_entries(_step(kind.key_type), _step(kind.value_type)))
    if isinstance(kind, types.FixedType):
        # Iceberg's own library writes a length before each value, and no other reader expects one.
        raise NotImplementedError(f"a partition by values of type {kind}")
    if isinstance(kind, types.DecimalType):
        return _over_width(decimal_required_bytes(kind.precision))
    return _over_width(_WIDTHS[type(kind)])


def _field(one: types.NestedField) -> _Step:
    step = _step(one.field_type)
    return step if one.required else _over_option(step)


def _long(body: bytes, at: int) -> tuple[int, int]:
    """Return a number, and the position of its end: "zig-zag", of variable length."""
    number = body[at]
    if number >= _MORE:
        end = _over_long(body, at)
        number = 0
        for byte in reversed(body[at:end]):
            number = number << 7 | byte % _MORE
        if number >> 64:
            raise ValueError(f"a number of more than 64 bits at byte {at}")
        at = end - 1
    return (number >> 1) ^ -(number & 1), at + 1


def _length(body: bytes, at: int) -> tuple[int, int]:
    length, at = _long(body, at)
    if length < 0:
        raise ValueError(f"a length of {length} before byte {at}")
    return length, at


def _text(body: bytes, at: int) -> tuple[str, int]:
    length, at = _length(body, at)
    return body[at : at + length].decode(), at + length


def _counted(body: bytes, at: int, count: int) -> int:
    """Return the number of values if it is possible: each value takes at least one byte."""
    if not 0 <= count <= len(body) - at:
        raise ValueError(f"{count} values in {len(body) - at} bytes")
    return count


def _over_long(body: bytes, at: int) -> int:
    end = at
    while body[end] >= _MORE:
        end += 1
    if end - at >= _LONGEST:
        raise ValueError(f"a number of more than 64 bits at byte {at}")
    return end + 1


def _over_bytes(body: bytes, at: int) -> int:
    length, at = _length(body, at)
    return at + length


def _over_width(width: int) -> _Step:
    return lambda _body, at: at + width


def _over_option(step: _Step) -> _Step:
    def over(body: bytes, at: int) -> int:
        which, at = _long(body, at)
        return step(body, at) if which > 0 else at

    return over


def _over_struct(steps: Sequence[_Step]) -> _Step:
    def over(body: bytes, at: int) -> int:
        for step in steps:
            at = step(body, at)
        return at

    return over


def _over_items(many: _Steps) -> _Step:
    """Return the function for a list, which consists of blocks of values.

    If a count is negative, the block's size in bytes follows. PyIceberg uses the size to skip a list, and ignores it
    to read one.
    """

    def over(body: bytes, at: int) -> int:
        count, at = _long(body, at)
        while count:
            size = None
            if count < 0:
                count, (size, at) = -count, _long(body, at)
            start, at = at, many(body, at, _counted(body, at, count))
            if size is not None and size != at - start:
                raise ValueError(f"{at - start} bytes of values instead of {size}, before byte {at}")
            count, at = _long(body, at)
        return at

    return over


def _each(step: _Step) -> _Steps:
    def over(body: bytes, at: int, count: int) -> int:
        for _ in range(count):
            at = step(body, at)
        return at

    return over


def _entries(key: _Step, value: _Step) -> _Steps:
    """Return the function for the entries of a map; entries of statistics are most of a manifest."""
    if (key, value) == (_over_long, _over_long):
        return _pairs
    if (key, value) == (_over_long, _over_bytes):
        return _statistics
    return _each(_over_struct([key, value]))


def _pairs(body: bytes, at: int, count: int) -> int:
    found = re.compile(rb"(?:[\x80-\xff]{0,9}+[\0-\x7f]){%d}+" % (2 * count)).match(body, at)
    if found is None:
        raise IndexError
    return found.end()


def _statistics(body: bytes, at: int, count: int) -> int:
    for _ in range(count):
        at = _over_bytes(body, _over_long(body, at))
    return at
