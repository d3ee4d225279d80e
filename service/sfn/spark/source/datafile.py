"""Reading one data file, without the rows that its delete files name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
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
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import IdentityTransform

from sfn.spark.source.project import Projection

_FORMATS: Final = {
    FileFormat.PARQUET: ds.ParquetFileFormat(pre_buffer=True, buffer_size=8 << 20),
    FileFormat.ORC: ds.OrcFileFormat(),
}


def batches(
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
    deleted = _deleted(task, io)
    with io.new_input(task.file.file_path).open() as stream:
        fragment = _FORMATS[task.file.file_format].make_fragment(stream)
        file = pyarrow_to_schema(
            fragment.physical_schema,
            metadata.name_mapping(),
            downcast_ns_timestamp_to_us=True,
            format_version=metadata.format_version,
        )
        projection = Projection(file, columns, schema, _of_partition(task.file, metadata))
        # Positions count all rows.
        where = None if len(deleted) else _filter(which, metadata.schema(), file)
        scanner = ds.Scanner.from_fragment(
            fragment, schema=fragment.physical_schema, columns=projection.names, filter=where
        )
        for batch in _without(deleted, scanner.to_batches()):
            if batch.num_rows:
                yield projection.project(batch)


def _without(deleted: npt.NDArray[np.int64], found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of a file, in order, without some of its rows.

    Args:
        deleted: their positions, ascending.
    """
    if not len(deleted):
        yield from found
        return
    start = 0
    for batch in found:
        end = start + batch.num_rows
        first, last = np.searchsorted(deleted, (start, end))
        if first < last:
            kept = np.ones(batch.num_rows, np.bool_)
            kept[deleted[first:last] - start] = False
            yield batch.filter(pa.array(kept))
        else:
            yield batch
        start = end


def _deleted(task: FileScanTask, io: FileIO) -> npt.NDArray[np.int64]:
    """The positions of a file's deleted rows, ascending."""
    found = [_positions(delete, task.file.file_path, io) for delete in task.delete_files]
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _positions(delete: DataFile, path: str, io: FileIO) -> npt.NDArray[np.int64]:
    with io.new_input(delete.file_path).open() as stream:
        if delete.file_format is FileFormat.PUFFIN:
            vectors = deletion_vectors_from_puffin_file(PuffinFile(stream.read()))
            own = [vector.to_vector() for vector in vectors if vector.referenced_data_file == path]
            return np.concatenate([_numbers(one) for one in own]) if own else np.empty(0, np.int64)
        fragment = _FORMATS[delete.file_format].make_fragment(stream)
        scanner = ds.Scanner.from_fragment(fragment, columns=["pos"], filter=pc.field("file_path") == path)
        return _numbers(scanner.to_table()["pos"])


def _numbers(positions: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    return np.asarray(positions.to_numpy(), np.int64)


def _filter(which: BooleanExpression, table: Schema, file: Schema) -> pc.Expression | None:
    """What a file's rows can be filtered by; nothing where that needs a column that the file does not have."""
    if isinstance(which, AlwaysTrue):
        return None
    bound = bind(table, which, case_sensitive=True)
    used = extract_field_ids(bound)
    # A column that was widened since would have its literal made to fit the old type, by rounding if need be.
    if not used <= file.field_ids or any(file.find_type(one) != table.find_type(one) for one in used):
        return None
    own = translate_column_names(bound, file, case_sensitive=True)
    return expression_to_pyarrow(bind(file, own, case_sensitive=True), file)


def _of_partition(file: DataFile, metadata: TableMetadata) -> dict[int, Any]:
    """The values of a file's columns that its partition has, by field id."""
    spec = metadata.specs()[file.spec_id]
    return {
        field.source_id: file.partition[number]
        for number, field in enumerate(spec.fields)
        if isinstance(field.transform, IdentityTransform)
    }
