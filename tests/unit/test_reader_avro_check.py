"""What PyIceberg's decoder is given lies within its buffer: nothing else passes, and all that is whole does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from io import BytesIO
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.codecs import AVRO_CODEC_KEY, KNOWN_CODECS
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader, construct_writer
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from sfn.reader.avro_check import check_avro

_PART = StructType(NestedField(30, "least", LongType(), required=True), NestedField(31, "most", StringType()))
_SCHEMA = Schema(
    NestedField(1, "flag", BooleanType(), required=True),
    NestedField(2, "count", IntegerType(), required=True),
    NestedField(3, "price", FloatType()),
    NestedField(4, "weight", DoubleType(), required=True),
    NestedField(5, "day", DateType()),
    NestedField(6, "amount", DecimalType(9, 2), required=True),
    NestedField(7, "key", DecimalType(20, 0), required=True),
    NestedField(8, "id", UUIDType()),
    NestedField(9, "sizes", MapType(40, IntegerType(), 41, LongType()), required=True),
    NestedField(10, "bounds", MapType(42, IntegerType(), 43, BinaryType())),
    NestedField(11, "words", MapType(44, StringType(), 45, StringType()), required=True),
    NestedField(12, "offsets", ListType(46, LongType())),
    NestedField(13, "parts", ListType(47, _PART), required=True),
)
"""Each way in which values are written."""
_SYNC = bytes(range(16))
_LEAST = Record(True, -1, None, 0.5, None, Decimal("0.01"), Decimal(1 << 60), None, {}, None, {}, None, [])
_MOST = Record(
    False,
    2**31 - 1,
    1.5,
    -2.5,
    20_000,
    Decimal("-1234567.89"),
    Decimal(-(1 << 40)),
    UUID(int=7),
    {1: 2**63 - 1, 300: -(2**63)},
    {1: b"", 70_000: b"n" * 200},
    {"key": "value", "e": "y"},
    [0, -1, 127, 128],
    [Record(1, "x"), Record(-(2**40), None)],
)
_TEXTS = Schema(NestedField(1, "path", StringType(), required=True))
_LISTS = Schema(NestedField(1, "offsets", ListType(2, LongType(), element_required=True), required=True))


def written(*records: Record) -> bytes:
    body = BytesIO()
    writer = construct_writer(_SCHEMA)
    for record in records:
        writer.write(BinaryEncoder(body), record)
    return body.getvalue()


def container(blocks: Sequence[tuple[int, bytes]], codec: str = "null", kind: Schema = _SCHEMA) -> bytes:
    body, packing = BytesIO(), {str(name): one for name, one in KNOWN_CODECS.items()}[codec]
    encoder = BinaryEncoder(body)
    schema = json.dumps(AvroSchemaConversion().iceberg_to_avro(kind, schema_name="entry"))
    header = AvroFileHeader(MAGIC, {"avro.schema": schema, AVRO_CODEC_KEY: codec}, _SYNC)
    construct_writer(META_SCHEMA).write(encoder, header)
    for count, block in blocks:
        packed = block if packing is None else packing.compress(block)[0]
        encoder.write_int(count)
        encoder.write_int(len(packed))
        encoder.write(packed)
        encoder.write(_SYNC)
    return body.getvalue()


_WHOLE = container([(2, written(_LEAST, _MOST)), (1, written(_MOST))])


@pytest.mark.parametrize("codec", ["bzip2", "deflate", "null", "zstandard"])
def test_what_is_whole_passes(codec: str) -> None:
    check_avro(container([], codec))
    check_avro(container([(0, b""), (2, written(_MOST, _LEAST)), (1, written(_LEAST))], codec))


def test_where_no_compression_is_told_there_is_none() -> None:
    check_avro(_WHOLE.replace(AVRO_CODEC_KEY.encode(), b"avro.other"))


def test_no_part_of_a_file_passes_but_at_the_end_of_a_block() -> None:
    ends = {len(container(blocks)) for blocks in ([], [(2, written(_LEAST, _MOST))])}
    for length in set(range(len(MAGIC), len(_WHOLE))) - ends:
        with pytest.raises(ValueError, match=f"continues after the end, in {length} bytes|2 values in . bytes"):
            check_avro(_WHOLE[:length])


def test_values_of_fixed_length_are_refused_as_writers_differ() -> None:
    kind = Schema(NestedField(1, "key", FixedType(5)))
    with pytest.raises(NotImplementedError, match=r"a partition by values of type fixed\[5\]"):
        check_avro(container([(1, b"\2fixed")], kind=kind))


def in_lists(block: bytes) -> bytes:
    return container([(1, block)], kind=_LISTS)


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (bytes([4, 2, 4]), "continues after the end"),
        (bytes([4, 2, 4, 0, 9]), "a block of 5 bytes, but its records end at byte 4"),
        (bytes([0xFE, 0xFF, 0xFF, 0x7F, 2, 0]), "134217727 values"),
        (bytes([3, 2, 2, 4, 0]), "2 bytes of values instead of 1"),
        (bytes([2, *[0x81] * 10, 1, 0]), "more than 64 bits"),
        (bytes([*[0xFF] * 9, 2, 0]), "more than 64 bits"),
    ],
)
def test_a_list_that_is_wrong_is_refused(block: bytes, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        check_avro(in_lists(block))


def test_a_list_may_tell_the_size_of_its_blocks() -> None:
    check_avro(in_lists(bytes([3, 4, 2, 4, 4, 6, 8, 0])))


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", "no bytes"),
        (b"PAR1", "b'PAR1' at its start"),
        (b"\xff" * 1_000, "at its start"),
        (MAGIC + b"\xff" * 1_000, "continues after the end"),
        (MAGIC + b"\xff" * 1_000 + b"\0", "more than 64 bits"),
        (MAGIC + bytes([0xFE, 0xFF, 0xFF, 0x7F]) + bytes(100), "values in 100 bytes"),
        (_WHOLE[:-1] + b"x", "no end of a block"),
        (MAGIC + bytes([2, 1, 0]), "a length of -1"),
        (container([(1, bytes([1]))], kind=_TEXTS), "a length of -1"),
        (container([]) + bytes([0, 35]), "a length of -18"),
        (container([(-1, b"")]), "-1 values"),
        (container([(1 << 40, b"")]), "values in 0 bytes"),
    ],
)
def test_a_container_that_is_wrong_is_refused(body: bytes, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        check_avro(body)


def is_read_within(body: bytes) -> bool:
    """Whether PyIceberg, with the decoder that minds where its bytes end, reads all."""
    try:
        decoder = StreamingBinaryDecoder(body)
        header = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
        reader = construct_reader(header.get_schema())
        while decoder.tell() < len(body):
            count, block = decoder.read_int(), StreamingBinaryDecoder(decoder.read_bytes())
            for _ in range(count):
                reader.read(block)
            decoder.read(len(_SYNC))
    except EOFError:
        return False
    except Exception:  # noqa: BLE001 - it is wrong, but nothing beyond the end was looked at
        return True
    return True


@given(
    st.lists(st.tuples(st.integers(len(container([])), len(_WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_nothing_passes_that_is_read_beyond_its_end(changes: list[tuple[int, int]]) -> None:
    body = bytearray(_WHOLE)
    for at, byte in changes:
        body[at] = byte
    try:
        check_avro(bytes(body))
    except Exception:  # noqa: BLE001 - refused, for whatever reason
        return
    assert is_read_within(bytes(body))
