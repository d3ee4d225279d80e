"""Read one data file as record batches of the table's types, without its deleted rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg import types as iceberg
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids, translate_column_names
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import expression_to_pyarrow, pyarrow_to_schema
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import FileScanTask
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, TimestampType, TimestamptzType, UUIDType

from sfn.errors import NotSupported

_NANOSECONDS: Final = 1_000
_MOST: Final = (1 << 63) // _NANOSECONDS
"""The limit of ORC timestamps in PyArrow, in microseconds from 1970: PyArrow counts nanoseconds, from 1677 to 2262."""


def first_misread_field(file: DataFile, schema: Schema) -> str:
    """Return the first kind of value in a file that PyArrow misreads; empty if it reads all."""
    for field in index_by_id(schema).values():
        if isinstance(field.field_type, UUIDType):
            return "a uuid"
        if isinstance(field.field_type, TimestampType | TimestamptzType) and _has_far_times(file, field):
            return "a time before 1677 or after 2262"
    return ""


def _has_far_times(file: DataFile, field: NestedField) -> bool:
    """Return whether a column has such times; within a list or map there are no bounds, and so no answer."""
    bounds = [(each or {}).get(field.field_id) for each in (file.lower_bounds, file.upper_bounds)]
    # As Iceberg's specification writes them, "Binary single-value serialization".
    times = [int.from_bytes(bound, "little", signed=True) for bound in bounds if bound is not None]
    return any(abs(time) >= _MOST for time in times)


ArrayConverter: TypeAlias = Callable[[pa.Array], pa.Array]
"""A conversion of the values of a list or map."""

_LARGEST: Final = 1 << 30
"""The maximum size of a batch in bytes: Spark's strings and lists have offsets of 32 bits."""
_UUID: Final = 16
_TEXT: Final = 36
_PLACES: Final = [place for place in range(_TEXT) if place not in {8, 13, 18, 23}]
"""The positions of a uuid's digits between its dashes (RFC 9562)."""


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch, in several parts if it is too large for Spark."""
    rows = batch.num_rows
    step = max(1, rows * _LARGEST // max(batch.nbytes, _LARGEST))
    for start in range(0, rows, step):
        yield batch.slice(start, step)


def cast_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array with its values cast to another type; fields of structs are taken by position."""
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
    # Some writers use nanoseconds, which Iceberg's timestamps did not have before version 3.
    return array.cast(kind, safe=not pa.types.is_timestamp(kind))


def rebuild_struct(array: pa.StructArray, kind: pa.StructType, children: list[pa.Array]) -> pa.StructArray:
    """Return a struct with other fields, NULL in the same rows."""
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=_mask(array))


def rebuild_list(
    array: pa.ListArray | pa.LargeListArray, kind: pa.ListType | pa.LargeListType, values: ArrayConverter
) -> pa.ListArray | pa.LargeListArray:
    """Return a list with converted values."""
    whole = _unsliced(array)
    made, offsets = (pa.LargeListArray, pa.int64()) if pa.types.is_large_list(kind) else (pa.ListArray, pa.int32())
    return made.from_arrays(whole.offsets.cast(offsets), values(whole.values), type=kind, mask=_mask(whole))


def rebuild_map(array: pa.MapArray, kind: pa.MapType, keys: ArrayConverter, items: ArrayConverter) -> pa.MapArray:
    """Return a map with converted keys and values."""
    whole = _unsliced(array)
    return pa.MapArray.from_arrays(whole.offsets, keys(whole.keys), items(whole.items), type=kind, mask=_mask(whole))


def _unsliced(array: pa.Array) -> pa.Array:
    """Return the array in buffers of its own: Arrow refuses offsets with a mask if an array begins in the middle."""
    return pa.concat_arrays([array, array.slice(0, 0)]) if array.offset else array


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _is_uuid(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.UuidType) or (pa.types.is_fixed_size_binary(kind) and kind.byte_width == _UUID)


def _uuid_text(array: pa.Array) -> pa.StringArray:
    # Only Spark needs uuids as text, and so NumPy; `sfn.read` needs neither.
    import numpy as np

    pairs = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)
    whole = _unsliced(array.storage if isinstance(array, pa.ExtensionArray) else array)
    rows = len(whole)
    digits = np.frombuffer(whole.buffers()[1] or b"", np.uint8)[: rows * _UUID]
    text = np.full((rows, _TEXT), ord("-"), np.uint8)
    text[:, _PLACES] = pairs[digits].reshape(rows, 2 * _UUID)
    offsets = np.arange(0, (rows + 1) * _TEXT, _TEXT, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text), whole.buffers()[0])


_DAYS: Final = pa.int32()
_LONG: Final = pa.int64()


class Projection:
    """A mapping from the columns of one file to those of the table.

    Args:
        file: the file's schema.
        columns: the requested columns.
        schema: their Arrow types, column by column.
        constants: values of the file's partition, by field id, for columns and struct fields that the file may lack.
    """

    def __init__(self, file: Schema, columns: Schema, schema: pa.Schema, constants: Mapping[int, Any]) -> None:
        self._file, self._columns, self._schema = file, columns, schema
        self._constants = constants

    @property
    def names(self) -> list[str]:
        """The names of the file's columns that the mapping needs."""
        wanted = {field.field_id for field in self._columns.fields}
        return [field.name for field in self._file.fields if field.field_id in wanted]

    def project(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the requested columns of a batch that has the columns of `names`."""
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
        """Return the values of a field that the file lacks: its partition's value, or the field's initial default."""
        value = self._constants.get(field.field_id, field.initial_default)
        return _repeated(to_scalar(value, field.field_type), kind, rows)


def to_scalar(value: Any, kind: iceberg.IcebergType) -> pa.Scalar:  # noqa: ANN401 - of any type
    """Return a value of a partition, or an initial default, as a scalar that `cast_array` casts to the column's type.

    Args:
        value: in PyIceberg's form in memory, or in the JSON form of a schema.
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


_FORMATS: Final = {
    # By default 96-bit times are counted in nanoseconds, which exist only between 1677 and 2262.
    FileFormat.PARQUET: ds.ParquetFileFormat(pre_buffer=True, buffer_size=8 << 20, coerce_int96_timestamp_unit="us"),
    FileFormat.ORC: ds.OrcFileFormat(),
}

_FIELD_ID: Final = (b"PARQUET:field_id", b"iceberg.id")
"""The keys of field ids in Arrow's metadata of Parquet and ORC columns."""

_NAMES: Final = {"PARQUET": "Parquet", "ORC": "ORC", "AVRO": "Avro", "PUFFIN": "Puffin"}


def read_batches(
    task: FileScanTask,
    metadata: TableMetadata,
    io: FileIO,
    columns: Schema,
    schema: pa.Schema,
    which: BooleanExpression,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file.

    Args:
        columns: the columns to read.
        schema: their types.
        which: a filter; rows for which it is false may be left out.
    """
    deleted = _deleted_positions(task, io)
    with io.new_input(task.file.file_path).open() as stream:
        fragment = _FORMATS[task.file.file_format].make_fragment(stream)
        mapping = metadata.name_mapping()
        file = pyarrow_to_schema(
            _known(fragment.physical_schema, mapping),
            mapping,
            downcast_ns_timestamp_to_us=True,
            format_version=metadata.format_version,
        )
        projection = Projection(file, columns, schema, _partition_values(task.file, metadata))
        # Deletes count the positions of all rows, so a filter would shift them.
        where = None if len(deleted) else _arrow_filter(which, metadata.schema(), file, fragment.physical_schema)
        # A name with a dot would be taken for a path, an expression is not.
        names = {name: pc.field(name) for name in projection.names}
        scanner = ds.Scanner.from_fragment(fragment, schema=fragment.physical_schema, columns=names, filter=where)
        for batch in _without(deleted, scanner.to_batches()):
            if batch.num_rows:
                yield _projected(projection, batch, task.file)


def _projected(projection: Projection, batch: pa.RecordBatch, file: DataFile) -> pa.RecordBatch:
    try:
        return projection.project(batch)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise NotSupported(
            file.file_path,
            expected="columns of the table's types, or of types that PyArrow casts to them",
            found=f"{error}"[:500],
            remedy="read it with PySpark: sfn.spark.read(…, engine='iceberg'), if Iceberg's own library can",
        ) from error


def _known(physical: pa.Schema, mapping: NameMapping | None) -> pa.Schema:
    """Return the columns of a file that belong to its table. PyIceberg refuses files with others.

    The rule is that of Iceberg's own library. If anything in the file has a field id, what has none is ignored. If
    nothing has, the name mapping decides, and what it does not name is ignored.
    """
    if any(_has_ids(field) for field in physical):
        return pa.schema(_fields(physical, None))
    return physical if mapping is None else pa.schema(_fields(physical, mapping.root))


def _has_ids(field: pa.Field) -> bool:
    inner = [field.type.field(number) for number in range(field.type.num_fields)]
    return _is_numbered(field) or any(_has_ids(one) for one in inner)


def _is_numbered(field: pa.Field) -> bool:
    return any(key in _FIELD_ID for key in field.metadata or ())


def _fields(fields: Iterable[pa.Field], mapped: Sequence[MappedField] | None) -> list[pa.Field]:
    """Return the known columns of a file, or the known parts of a column.

    Args:
        mapped: the names and ids that are known; None if field ids decide.
    """
    return [known for field in fields if (known := _field(field, field.name, mapped)) is not None]


def _field(field: pa.Field, name: str, mapped: Sequence[MappedField] | None) -> pa.Field | None:
    if mapped is None:
        kind = _type(field.type, None) if _is_numbered(field) else None
    else:
        of = next((one for one in mapped if name in one.names and one.field_id is not None), None)
        kind = None if of is None else _type(field.type, of.fields)
    return None if kind is None else field.with_type(kind)


def _type(kind: pa.DataType, mapped: Sequence[MappedField] | None) -> pa.DataType | None:
    """Return a type without the parts that are not known; None for a list or map of such parts."""
    if pa.types.is_struct(kind):
        return pa.struct(_fields(kind, mapped))
    if pa.types.is_map(kind):
        key, item = _field(kind.key_field, "key", mapped), _field(kind.item_field, "value", mapped)
        return None if key is None or item is None else pa.map_(key, item)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _element(kind.value_field, mapped)
        made = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return None if element is None else made(element)
    # PyIceberg refuses times of milliseconds, which PyArrow can cast.
    return pa.time64("us") if pa.types.is_time32(kind) else kind


def _element(field: pa.Field, mapped: Sequence[MappedField] | None) -> pa.Field | None:
    """Return the known part of a list's elements; None for structs without a known field."""
    known = _field(field, "element", mapped)
    return None if known is None or _is_empty(known.type) else known


def _is_empty(kind: pa.DataType) -> bool:
    """Return whether a type is a struct without a leaf field at any depth."""
    return pa.types.is_struct(kind) and all(_is_empty(field.type) for field in kind)


def _without(deleted: pa.Array, found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file, in order, without its deleted rows.

    Args:
        deleted: the positions of these rows.
    """
    start = 0
    for batch in found:
        end = start + batch.num_rows
        positions = pa.arange(start, end)
        start = end
        yield batch.filter(pc.invert(pc.is_in(positions, value_set=deleted))) if len(deleted) else batch


def _deleted_positions(task: FileScanTask, io: FileIO) -> pa.Array:
    """Return the positions of a file's deleted rows."""
    found = [_positions(delete, task.file.file_path, io) for delete in task.delete_files]
    return pc.unique(pa.chunked_array([chunk for each in found for chunk in each.chunks], pa.int64()))


def _positions(delete: DataFile, path: str, io: FileIO) -> pa.ChunkedArray:
    with io.new_input(delete.file_path).open() as stream:
        if delete.file_format is FileFormat.PUFFIN:
            vectors = deletion_vectors_from_puffin_file(PuffinFile(stream.read()))
            own = [vector.to_vector() for vector in vectors if vector.referenced_data_file == path]
            return pa.chunked_array([chunk for each in own for chunk in each.cast(pa.int64()).chunks], pa.int64())
        fragment = _FORMATS[delete.file_format].make_fragment(stream)
        scanner = ds.Scanner.from_fragment(fragment, columns=["pos"], filter=pc.field("file_path") == path)
        return scanner.to_table()["pos"].cast(pa.int64())


def _arrow_filter(which: BooleanExpression, table: Schema, file: Schema, physical: pa.Schema) -> pc.Expression | None:
    """Return the filter for a file's rows; None if it needs a column that the file does not have."""
    if isinstance(which, AlwaysTrue):
        return None
    bound = bind(table, which, case_sensitive=True)
    used = extract_field_ids(bound)
    # If a column was widened since, the literal would be rounded to the old type.
    if not used <= file.field_ids or any(file.find_type(one) != table.find_type(one) for one in used):
        return None
    columns = {field.field_id: field.name for field in file.fields}
    # A part of a struct has the struct's statistics, and PyIceberg takes a dot in a name for a path to one.
    if any(one not in columns or "." in columns[one] for one in used):
        return None
    kinds = [physical.field(columns[one]).type for one in used]
    if any(_is_incomparable(kind) for kind in kinds):
        return None
    own = translate_column_names(bound, file, case_sensitive=True)
    return expression_to_pyarrow(bind(file, own, case_sensitive=True), file)


def _is_incomparable(kind: pa.DataType) -> bool:
    """Return whether Arrow can't compare a column with a literal.

    Arrow has no comparison of uuids, and a literal that is far away overflows times of other units.
    """
    is_other_time = pa.types.is_timestamp(kind) and kind.unit != "us"
    return is_other_time or pa.types.is_time32(kind) or isinstance(kind, pa.BaseExtensionType)


def _partition_values(file: DataFile, metadata: TableMetadata) -> dict[int, Any]:
    """Return the values of a file's identity partition fields, by the field id of the source column."""
    spec = metadata.specs()[file.spec_id]
    return {
        field.source_id: file.partition[number]
        for number, field in enumerate(spec.fields)
        if isinstance(field.transform, IdentityTransform)
    }


def describe_file(what: str, file: DataFile) -> str:
    """Return a file's content and format as text, for messages."""
    return f"{what} in {_NAMES.get(file.file_format.value, file.file_format.value)} files"
