"""Rows as a data file of the report, written where they were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import uuid4

import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import WriteTask
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from sfn.report.columns import RUN_COLUMN, SLICE_COLUMN, ReportRow, column_values


def write_data_file(
    report: str, properties: Mapping[str, str], number: int, entries: Sequence[ReportRow]
) -> DataFile | None:
    """A data file that is in no snapshot yet; None for no rows.

    Args:
        report: the report's metadata, JSON.
        properties: how PyIceberg opens its files.
        number: the slice.

    Raises:
        OSError: it can't be written; on an object store what its driver raises.
    """
    if not entries:
        return None
    metadata = TableMetadataUtil.parse_raw(report)
    schema = metadata.schema()
    arrow = schema_to_pyarrow(schema)
    columns = [pa.array(column_values(entries, field.name), type=field.type) for field in arrow]
    task = WriteTask(
        write_uuid=uuid4(),
        task_id=number,
        schema=schema,
        record_batches=pa.Table.from_arrays(columns, schema=arrow).to_batches(),
        partition_key=_partition_key(metadata, entries[0].run, number),
    )
    (file,) = write_file(load_file_io(dict(properties), metadata.location), metadata, iter([task]))
    return file


def _partition_key(metadata: TableMetadata, run: str, number: int) -> PartitionKey:
    spec, values = metadata.spec(), {RUN_COLUMN: run, SLICE_COLUMN: number}
    return PartitionKey(
        [PartitionFieldValue(field, values[field.name]) for field in spec.fields], spec, metadata.schema()
    )
