"""Views of a table by its directory: Iceberg's metadata tables, and the contents of the SFN file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from uuid import UUID

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.table import StaticTable
from pyspark.sql import DataFrame, SparkSession

from sfn.clock import SystemClock
from sfn.errors import SfnError, suggest_name
from sfn.reader.api import Time
from sfn.reader.data_file import cast_array
from sfn.reader.files import run_synchronously
from sfn.reader.lookup import FoundDocument, Lookup, identifier_text
from sfn.reader.table import open_allowed_io, to_unreadable
from sfn.sfnfile.document import render_ordinal
from sfn.spark.request import ReadRequest, make_read_request
from sfn.spark.time_travel import pin_table


def spark_view_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns with the types of Iceberg's own library on Spark."""
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
        # Times of the table itself have milliseconds; times in a column's bounds have the column's type.
        return pa.timestamp("us", "UTC")
    return _plain(kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.UuidType) or pa.types.is_large_string(kind) or pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


_MetadataTable: TypeAlias = Callable[[StaticTable], pa.Table]

SFN_VIEW: Final = "sfn"

_METADATA_TABLES: Final[Mapping[str, _MetadataTable]] = MappingProxyType(
    {
        "snapshots": lambda table: table.inspect.snapshots(),
        "history": lambda table: table.inspect.history(),
        "files": lambda table: table.inspect.files(),
        "manifests": lambda table: table.inspect.manifests(),
        "partitions": lambda table: table.inspect.partitions(),
        "refs": lambda table: table.inspect.refs(),
        "metadata_log": lambda table: table.inspect.metadata_log_entries(),
    }
)
VIEWS: Final = (*_METADATA_TABLES, SFN_VIEW)

_TIME: Final = pa.timestamp("us", "UTC")
_SFN: Final = pa.schema(
    [
        pa.field("table_identifier", pa.string(), nullable=False),
        pa.field("guid", pa.string()),
        pa.field("state", pa.string(), nullable=False),
        pa.field("metadata_location", pa.string(), nullable=False),
        pa.field("sfn_file", pa.string(), nullable=False),
        pa.field("ref", pa.string(), nullable=False),
        pa.field("snapshot_id", pa.int64()),
        pa.field("ordinal", pa.string(), nullable=False),
        pa.field("committed_at", _TIME, nullable=False),
        pa.field("written_at", _TIME, nullable=False),
        pa.field("lag_seconds", pa.float64(), nullable=False),
        pa.field("age_seconds", pa.float64(), nullable=False),
        pa.field("catalog_id", pa.string(), nullable=False),
        pa.field("writer", pa.string()),
    ]
)


def view(
    spark: SparkSession,
    directory: str | os.PathLike[str],
    name: str,
    table: str | Sequence[str] | None = None,
    ref: str | None = None,
    as_of: Time | None = None,
    *,
    uuid: str | UUID | None = None,
    allowed: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return a view of the table in a directory, in its present state.

    `snapshots`, `history`, `files`, `manifests`, `partitions`, `refs` and `metadata_log` have the columns of Iceberg's
    metadata tables (`metadata_log` those of `metadata_log_entries`), except the newest of `files`: `first_row_id`,
    `referenced_data_file`, `content_offset` and `content_size_in_bytes`.

    `sfn` has one row with the contents of the SFN file of branch `main`, also for a dropped table. `lag_seconds` is the
    time from the commit to the catalog's answer, `age_seconds` the time since then.

    Args:
        name: the name of the view.
        spark, directory, table, ref, as_of, uuid, allowed, storage_options: as for `sfn.spark.read`; `sfn` ignores
            `ref` and `as_of`.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
        ValueError: there is no such view (the message names the nearest), or an argument is not valid.
    """
    if name not in VIEWS:
        raise ValueError(f"a view, one of {', '.join(VIEWS)}: {name!r}; {suggest_name(name, VIEWS)}")
    request = make_read_request(directory, table, uuid, ref, as_of, allowed=allowed, storage_options=storage_options)
    if name == SFN_VIEW:
        return spark.createDataFrame(_sfn_table(_find_leading(request)))
    found = _read_metadata_table(request, _METADATA_TABLES[name])
    schema = spark_view_schema(found.schema)
    columns = [
        cast_array(column.combine_chunks(), field.type) for column, field in zip(found.columns, schema, strict=True)
    ]
    return spark.createDataFrame(pa.Table.from_arrays(columns, schema=schema))


def _read_metadata_table(request: ReadRequest, inspected: _MetadataTable) -> pa.Table:
    pinned = pin_table(request)
    head = None if pinned.snapshot is None else pinned.snapshot.snapshot_id
    location = pinned.found.metadata_location
    table = StaticTable(
        identifier=(*pinned.found.document.namespace, pinned.found.document.name),
        metadata=pinned.metadata.model_copy(update={"current_snapshot_id": head}),
        metadata_location=location,
        io=open_allowed_io(location, pinned.found.allowed_locations, request.file_system_options),
        catalog=NoopCatalog(SFN_VIEW),
    )
    try:
        return inspected(table)
    except SfnError:
        raise
    except Exception as error:
        # The same errors as in `sfn.reader.table.read_rows`.
        raise to_unreadable(location, error) from error


def _find_leading(request: ReadRequest) -> FoundDocument:
    question = request.question
    found, _ = run_synchronously(
        Lookup(
            request.file_system_options.open_file_system(), question.allowed_locations, question.selector
        ).find_leading(even_dropped=True),
    )
    return found


def _sfn_table(found: FoundDocument) -> pa.Table:
    doc = found.doc
    committed_at = datetime.fromtimestamp(doc.ordinal / 1_000, UTC)
    row = {
        "table_identifier": identifier_text(doc),
        "guid": doc.guid,
        "state": doc.state.value,
        "metadata_location": doc.metadata_file_path,
        "sfn_file": found.key,
        "ref": doc.ref,
        "snapshot_id": doc.snapshot_id,
        "ordinal": render_ordinal(doc.ordinal),
        "committed_at": committed_at,
        "written_at": doc.written_at,
        "lag_seconds": (doc.written_at - committed_at).total_seconds(),
        "age_seconds": (SystemClock().now() - doc.written_at).total_seconds(),
        "catalog_id": doc.catalog_id,
        "writer": doc.writer or None,
    }
    return pa.Table.from_pylist([row], _SFN)
