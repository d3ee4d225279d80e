"""Arrow batches as Spark takes them: of exactly the types that its schema says, down to whether fields are nullable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_LARGEST: Final = 1 << 30
"""Bytes of a batch: Spark's strings and lists count theirs in 32 bits."""
_UUID: Final = 16
_TEXT: Final = 36
_HEX: Final[npt.NDArray[np.uint8]] = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8)
_PLACES: Final = [place for place in range(_TEXT) if place not in {8, 13, 18, 23}]
"""Where a uuid's digits stand between its dashes (RFC 9562)."""


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A batch with the types of a schema, in parts where it is too large for one."""
    rows = batch.num_rows
    step = max(1, rows * _LARGEST // max(batch.nbytes, _LARGEST))
    for start in range(0, rows, step):
        part = batch.slice(start, step)
        columns = [_as(column, field.type) for column, field in zip(part.columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        return _struct(array, kind)
    if pa.types.is_map(kind):
        return _map(array, kind)
    if pa.types.is_list(kind):
        return _list(array, kind)
    if pa.types.is_string(kind) and _is_uuid(array.type):
        return _uuid_text(array)
    return array.cast(kind)


def _struct(array: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    fields = list(kind)
    children = [_as(array.field(number), field.type) for number, field in enumerate(fields)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _list(array: pa.ListArray | pa.LargeListArray, kind: pa.ListType) -> pa.ListArray:
    whole = _unsliced(array)
    values = _as(whole.values, kind.value_type)
    return pa.ListArray.from_arrays(whole.offsets.cast(pa.int32()), values, type=kind, mask=_mask(whole))


def _map(array: pa.MapArray, kind: pa.MapType) -> pa.MapArray:
    whole = _unsliced(array)
    keys, items = _as(whole.keys, kind.key_type), _as(whole.items, kind.item_type)
    return pa.MapArray.from_arrays(whole.offsets, keys, items, type=kind, mask=_mask(whole))


def _unsliced(array: pa.Array) -> pa.Array:
    """The same, in buffers of its own: what is made of offsets and a mask can't begin in the middle."""
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.UuidType) or (pa.types.is_fixed_size_binary(kind) and kind.byte_width == _UUID)


def _uuid_text(array: pa.Array) -> pa.StringArray:
    raw = array.storage if isinstance(array, pa.ExtensionArray) else array
    whole = _unsliced(raw)
    rows = len(whole)
    digits = np.frombuffer(whole.buffers()[1] or b"", np.uint8)[: rows * _UUID]
    text = np.full((rows, _TEXT), ord("-"), np.uint8)
    text[:, _PLACES] = _HEX.reshape(256, 2)[digits].reshape(rows, 2 * _UUID)
    offsets = np.arange(0, (rows + 1) * _TEXT, _TEXT, dtype=np.int32)
    buffers = (pa.py_buffer(offsets), pa.py_buffer(text))
    return pa.StringArray.from_buffers(rows, *buffers, whole.buffers()[0])
