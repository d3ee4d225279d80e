"""A file's columns as the table's, matched by field id, of given types (Iceberg specification, "Column Projection").

PyIceberg 0.12 has its own, which makes an empty list of one that is NULL where it holds structs, and the same of maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema

from sfn.reader.conform import cast_array, rebuild_list, rebuild_map, rebuild_struct

_DAYS: Final = pa.int32()
_LONG: Final = pa.int64()


class Projection:
    """From the columns of one file.

    Args:
        file: its schema.
        columns: what is wanted.
        schema: of which types, column by column.
        constants: values of columns and of fields of structs that the file may lack, by field id: those that its
            partition has.
    """

    def __init__(self, file: Schema, columns: Schema, schema: pa.Schema, constants: Mapping[int, Any]) -> None:
        self._file, self._columns, self._schema = file, columns, schema
        self._constants = constants

    @property
    def names(self) -> list[str]:
        """The columns of the file that it needs, by their names there."""
        wanted = {field.field_id for field in self._columns.fields}
        return [field.name for field in self._file.fields if field.field_id in wanted]

    def project(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The wanted columns of a batch that has those of `names`."""
        own = {field.field_id: field for field in self._file.fields}
        arrays: list[pa.Array] = []
        for field, target in zip(self._columns.fields, self._schema, strict=True):
            if (there := own.get(field.field_id)) is not None:
                arrays.append(self._value(batch.column(there.name), there.field_type, field.field_type, target.type))
            else:
                arrays.append(self._absent(field, target.type, batch.num_rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _value(
        self, array: pa.Array, have: iceberg.IcebergType, want: iceberg.IcebergType, kind: pa.DataType
    ) -> pa.Array:
        of = self._value
        match have, want:
            case iceberg.StructType(), iceberg.StructType():
                return self._struct(array, have, want, kind)
            case iceberg.ListType(), iceberg.ListType():
                return rebuild_list(
                    array,
                    kind,
                    lambda values: of(values, have.element_type, want.element_type, kind.value_type),
                )
            case iceberg.MapType(), iceberg.MapType():
                return rebuild_map(
                    array,
                    kind,
                    lambda keys: of(keys, have.key_type, want.key_type, kind.key_type),
                    lambda items: of(items, have.value_type, want.value_type, kind.item_type),
                )
            case _:
                return cast_array(array, kind)

    def _struct(
        self, array: pa.StructArray, have: iceberg.StructType, want: iceberg.StructType, kind: pa.StructType
    ) -> pa.Array:
        own = {field.field_id: field for field in have.fields}
        # The partition has a value for a field of this struct, so the struct is not NULL, even where it is NULL in the
        # file. It stays NULL if another field of it may not be.
        is_known = any(
            field.field_id not in own and self._constants.get(field.field_id) is not None for field in want.fields
        ) and not (array.null_count and any(not target.nullable for target in kind))
        children: list[pa.Array] = []
        for field, target in zip(want.fields, kind, strict=True):
            if (there := own.get(field.field_id)) is None:
                children.append(self._absent(field, target.type, len(array)))
            else:
                # Where the file's struct is NULL, its own fields stay NULL in the new struct.
                part = pc.struct_field(array, [there.name]) if is_known else array.field(there.name)
                children.append(self._value(part, there.field_type, field.field_type, target.type))
        return (
            pa.StructArray.from_arrays(children, fields=list(kind))
            if is_known
            else rebuild_struct(array, kind, children)
        )

    def _absent(self, field: iceberg.NestedField, kind: pa.DataType, rows: int) -> pa.Array:
        """The values of a field that the file lacks: those of its partition, or what it has since it was added."""
        value = self._constants.get(field.field_id, field.initial_default)
        return _repeated(to_scalar(value, field.field_type), kind, rows)


def to_scalar(value: Any, kind: iceberg.IcebergType) -> pa.Scalar:  # noqa: ANN401 - of any type
    """Return a value of a partition, or an initial default, as a scalar that `conformed` casts to the column's type.

    Args:
        value: as PyIceberg has it in memory, or as the JSON of a schema has it.
    """
    match kind:
        case iceberg.DateType() if isinstance(value, int):
            return pa.scalar(value, _DAYS).cast(pa.date32())
        case iceberg.TimeType() if isinstance(value, int):
            return pa.scalar(value, _LONG).cast(pa.time64("us"))
        case iceberg.TimestampType() | iceberg.TimestamptzType() if isinstance(value, int):
            return pa.scalar(value, _LONG).cast(pa.timestamp("us"))
        case iceberg.TimestampNanoType() | iceberg.TimestamptzNanoType() if isinstance(value, int):
            return pa.scalar(value, _LONG).cast(pa.timestamp("ns"))
        case iceberg.UUIDType() if value is not None:
            return pa.scalar(value if isinstance(value, bytes) else UUID(str(value)).bytes, pa.binary(16))
        case iceberg.BinaryType() | iceberg.FixedType() if isinstance(value, str):
            return pa.scalar(bytes.fromhex(value))
        case _:
            return pa.scalar(value)


def _repeated(value: pa.Scalar, kind: pa.DataType, rows: int) -> pa.Array:
    return cast_array(pa.repeat(value, rows), kind) if value.is_valid else pa.nulls(rows, kind)
