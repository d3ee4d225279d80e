"""The types that a metadata table has on Spark, of those that PyIceberg's has in Arrow."""

from __future__ import annotations

import pyarrow as pa


def spark_view_schema(schema: pa.Schema) -> pa.Schema:
    """The columns, with types that Iceberg's own library gives them there."""
    return pa.schema([_field(field) for field in schema])


def _field(field: pa.Field, name: str | None = None) -> pa.Field:
    return pa.field(name or field.name, _type(field.type), field.nullable)


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field).with_nullable(False))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_field(kind.value_field, "element").with_nullable(False))
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type)
    if pa.types.is_int8(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) and kind.unit == "ms":
        # The table's own times; those of a column's bounds have its type.
        return pa.timestamp("us", "UTC")
    return _plain(kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.UuidType) or pa.types.is_large_string(kind) or pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind
