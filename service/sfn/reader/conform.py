"""Arrow arrays of exactly the types that a schema asks for, down to whether fields are nullable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeAlias

import pyarrow as pa

ArrayConverter: TypeAlias = Callable[[pa.Array], pa.Array]
"""What becomes of the values of a list or map."""

_LARGEST: Final = 1 << 30
"""Bytes of a batch: Spark's strings and lists count theirs in 32 bits."""
_UUID: Final = 16
_TEXT: Final = 36
_PLACES: Final = [place for place in range(_TEXT) if place not in {8, 13, 18, 23}]
"""Where a uuid's digits stand between its dashes (RFC 9562)."""


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch, in several where it is too large for one of Spark's."""
    rows = batch.num_rows
    step = max(1, rows * _LARGEST // max(batch.nbytes, _LARGEST))
    for start in range(0, rows, step):
        yield batch.slice(start, step)


def cast_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array of another type that can have all of its values; fields of structs are taken in their order."""
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        children = [cast_array(array.field(number), field.type) for number, field in enumerate(kind)]
        return rebuild_struct(array, kind, children)
    if pa.types.is_map(kind):
        return rebuild_map(
            array, kind, partial(cast_array, kind=kind.key_type), partial(cast_array, kind=kind.item_type)
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return rebuild_list(array, kind, partial(cast_array, kind=kind.value_type))
    if pa.types.is_string(kind) and _is_uuid(array.type):
        return _uuid_text(array)
    # Some writers' times have nanoseconds, which Iceberg's did not before version 3.
    return array.cast(kind, safe=not pa.types.is_timestamp(kind))


def rebuild_struct(array: pa.StructArray, kind: pa.StructType, children: list[pa.Array]) -> pa.StructArray:
    """A struct with other fields, NULL where it was."""
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=_mask(array))


def rebuild_list(
    array: pa.ListArray | pa.LargeListArray, kind: pa.ListType | pa.LargeListType, values: ArrayConverter
) -> pa.ListArray | pa.LargeListArray:
    """A list with other values."""
    whole = _unsliced(array)
    made, offsets = (pa.LargeListArray, pa.int64()) if pa.types.is_large_list(kind) else (pa.ListArray, pa.int32())
    return made.from_arrays(whole.offsets.cast(offsets), values(whole.values), type=kind, mask=_mask(whole))


def rebuild_map(array: pa.MapArray, kind: pa.MapType, keys: ArrayConverter, items: ArrayConverter) -> pa.MapArray:
    """A map with other keys and values."""
    whole = _unsliced(array)
    return pa.MapArray.from_arrays(whole.offsets, keys(whole.keys), items(whole.items), type=kind, mask=_mask(whole))


def _unsliced(array: pa.Array) -> pa.Array:
    """The same, in buffers of its own: what is made of offsets and a mask can't begin in the middle."""
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.UuidType) or (pa.types.is_fixed_size_binary(kind) and kind.byte_width == _UUID)


def _uuid_text(array: pa.Array) -> pa.StringArray:
    # Spark needs NumPy and texts; `sfn.read` needs neither.
    import numpy as np

    pairs = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)
    whole = _unsliced(array.storage if isinstance(array, pa.ExtensionArray) else array)
    rows = len(whole)
    digits = np.frombuffer(whole.buffers()[1] or b"", np.uint8)[: rows * _UUID]
    text = np.full((rows, _TEXT), ord("-"), np.uint8)
    text[:, _PLACES] = pairs[digits].reshape(rows, 2 * _UUID)
    offsets = np.arange(0, (rows + 1) * _TEXT, _TEXT, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text), whole.buffers()[0])
