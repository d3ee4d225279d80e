"""Reading one data file, without the rows that its delete files name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids, translate_column_names
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import expression_to_pyarrow, pyarrow_to_schema
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import IdentityTransform

from sfn.errors import NotSupported
from sfn.reader.project import Projection

_FORMATS: Final = {
    # Times of 96 bits are counted in nanoseconds else, of which there are none before 1677 and after 2262.
    FileFormat.PARQUET: ds.ParquetFileFormat(pre_buffer=True, buffer_size=8 << 20, coerce_int96_timestamp_unit="us"),
    FileFormat.ORC: ds.OrcFileFormat(),
}

_FIELD_ID: Final = (b"PARQUET:field_id", b"iceberg.id")
"""Where Arrow has the field ids of Parquet and of ORC."""

_NAMES: Final = {"PARQUET": "Parquet", "ORC": "ORC", "AVRO": "Avro", "PUFFIN": "Puffin"}


def read_batches(
    task: FileScanTask,
    metadata: TableMetadata,
    io: FileIO,
    columns: Schema,
    schema: pa.Schema,
    which: BooleanExpression,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file.

    Args:
        columns: which columns.
        schema: their types.
        which: rows that it does not hold for may be left out.
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
        # Positions count all rows.
        where = None if len(deleted) else _arrow_filter(which, metadata.schema(), file, fragment.physical_schema)
        # By expressions: a dot in a name alone would be taken for a path.
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
    """Return the known ones of the columns of a file, or of the parts of a column.

    Args:
        mapped: their names and ids; None where field ids decide.
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
    """Batches of a file, in order, without some of its rows.

    Args:
        deleted: their positions.
    """
    start = 0
    for batch in found:
        end = start + batch.num_rows
        positions = pa.arange(start, end)
        start = end
        yield batch.filter(pc.invert(pc.is_in(positions, value_set=deleted))) if len(deleted) else batch


def _deleted_positions(task: FileScanTask, io: FileIO) -> pa.Array:
    """The positions of a file's deleted rows."""
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
    """What a file's rows can be filtered by; nothing where that needs a column that the file does not have."""
    if isinstance(which, AlwaysTrue):
        return None
    bound = bind(table, which, case_sensitive=True)
    used = extract_field_ids(bound)
    # A column that was widened since would have its literal made to fit the old type, by rounding if need be.
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
    """Whether Arrow may not compare a column with a literal.

    It has no comparison of a uuid, and a literal that is far away overflows times of other units.
    """
    is_other_time = pa.types.is_timestamp(kind) and kind.unit != "us"
    return is_other_time or pa.types.is_time32(kind) or isinstance(kind, pa.BaseExtensionType)


def _partition_values(file: DataFile, metadata: TableMetadata) -> dict[int, Any]:
    """The values of a file's columns that its partition has, by field id."""
    spec = metadata.specs()[file.spec_id]
    return {
        field.source_id: file.partition[number]
        for number, field in enumerate(spec.fields)
        if isinstance(field.transform, IdentityTransform)
    }


def describe_file(what: str, file: DataFile) -> str:
    """What a file holds, and its format, for messages."""
    return f"{what} in {_NAMES.get(file.file_format.value, file.file_format.value)} files"
