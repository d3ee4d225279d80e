"""Tables whose manifests list what other writers may list: deletes, and any partition and statistics of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.transforms import Transform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, PrimitiveType
from typing_extensions import override

import sfn
from tests.unit.real_table import published_table

POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)


class DeleteManifest(ManifestWriterV2):
    """A manifest of delete files, which PyIceberg does not write."""

    @override
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    @override
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class RowDelta(_FastAppendFiles):
    """A commit of delete files."""

    @override
    def new_manifest_writer(self, spec: PartitionSpec) -> DeleteManifest:
        output = self.new_manifest_output()
        return DeleteManifest(spec, self.schema(), output, self._snapshot_id, self._compression)


class ListedTable:
    """A table whose files a test makes, and lists as it likes."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def path(self, name: str) -> Path:
        path = Path(self.table.location().removeprefix("file://")) / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def data(self, *files: tuple[str, Mapping[str, Sequence[Any]], Record]) -> list[str]:
        """Add files of rows in partitions; their paths as the manifest has them."""
        whole = schema_to_pyarrow(self.table.schema())
        added = []
        for name, rows, partition in files:
            schema = pa.schema([whole.field(column) for column in rows])
            arrays = [pa.array(values, schema.field(column).type) for column, values in rows.items()]
            added.append(self._file(name, pa.Table.from_arrays(arrays, schema=schema), partition))
        with self.table.transaction() as change, change.update_snapshot().fast_append() as append:
            for file in added:
                append.append_data_file(file)
        return [file.file_path for file in added]

    def deletes(self, name: str, rows: pa.Table, partition: Record, content: DataFileContent, **said: Any) -> None:  # noqa: ANN401 - of a DataFile
        """Add a file of deletes, and what its manifest says of it."""
        file = self._file(name, rows, partition, content, **said)
        with self.table.transaction() as change, RowDelta(Operation.DELETE, change, self.table.io) as delta:
            delta.append_data_file(file)

    @property
    def directory(self) -> str:
        """Its directory, once the current state is published."""
        return str(published_table(self.table).path)

    def read(self, row_filter: str | None = None) -> pa.Table:
        return sfn.read(self.directory, row_filter=row_filter)

    def ids(self, row_filter: str | None = None) -> list[int]:
        return sorted(self.read(row_filter)["id"].to_pylist())

    def _file(
        self,
        name: str,
        rows: pa.Table,
        partition: Record,
        content: DataFileContent = DataFileContent.DATA,
        **said: Any,  # noqa: ANN401 - as above
    ) -> DataFile:
        path = self.path(name)
        pq.write_table(rows, path)
        file = DataFile.from_args(
            content=content,
            file_path=f"file://{path}",
            file_format=FileFormat.PARQUET,
            partition=partition,
            file_size_in_bytes=path.stat().st_size,
            **{"record_count": rows.num_rows, **said},
        )
        file.spec_id = self.table.metadata.default_spec_id
        return file


@contextmanager
def own_catalog(folder: Path) -> Iterator[SqlCatalog]:
    """A catalog with the namespace `sales`."""
    with closing(SqlCatalog("own", uri=f"sqlite:///{folder}/own.db", warehouse=f"file://{folder}")) as catalog:
        catalog.create_namespace("sales")
        yield catalog


def listed(
    catalog: SqlCatalog, kind: PrimitiveType, transform: Transform[Any, Any] | None, *, version: int = 2
) -> ListedTable:
    """Create a table of the columns `id` and `x` that is partitioned by a transform of `x`, if by anything."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", kind))
    spec = PartitionSpec(PartitionField(2, 1000, transform, "p")) if transform else PartitionSpec()
    properties = {"format-version": f"{version}"}
    return ListedTable(catalog.create_table("sales.orders", schema, partition_spec=spec, properties=properties))
