"""Real Iceberg tables, made by PyIceberg in a directory.

One has rows, a branch, a tag and an SFN file. One lists deletes, and any partition and statistics of a file. One has
files with names that a URL can't have as they are.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.transforms import IdentityTransform, Transform
from pyiceberg.typedef import Properties, Record
from pyiceberg.types import LongType, NestedField, PrimitiveType, StringType
from typing_extensions import override

import sfn
from sfn.sfnfile.document import Document, render
from sfn.sfnfile.naming import FileLayout, FileOwner
from tests.support.table_directory import FIRST_ORDINAL, WRITTEN_AT, Directory

IDENTIFIER = "sales.orders"

POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)

ODD: Final = (
    *("s=a#1", "s=a?1", "s=a?x=1&y=2#z", "s=a%2Fb", "s=100%", "s=%zz", "s=a b", " s", "s ", "s=a+b", "s=ä/é", "s=日本"),
    *("s=a;b", "s=a&b", "s=a'b", 's="b"', "s=a,b", "s=a:b", "s=a@b", "s=a|b", "s=a^b", "s=`a`", "s=<a>", "s=~", "s=$a"),
    *("s=*", "s=[a]", "s={a}", "s=!a", "s=(a)", "..a", "a..", "...", "_s", ".s", "s=\U0001f9ca", "s=e\u0301"),
)
"""Folders of data files, one file in each."""
NOT_ON_EVERY_STORE: Final = ("s=a\\1", "/s=1", "//s=2/")
"""Such with a backslash or with empty segments."""


@dataclass(frozen=True, slots=True)
class RealTable:
    """The table.

    Attributes:
        place: its directory.
        pointer: its current metadata file.
        main, audit, tagged: the snapshots of branch `main`, branch `audit` and tag `v1`.
    """

    place: Directory
    pointer: str
    main: int
    audit: int
    tagged: int

    @property
    def directory(self) -> str:
        return str(self.place.path)

    def files(self, kind: str) -> list[Path]:
        """Its files of an extension."""
        return sorted(self.place.path.rglob(f"*.{kind}"))


def real_table(folder: Path) -> RealTable:
    """One row is tagged; a second one and a column come on branch `main`; a third row on branch `audit`."""
    with closing(_catalog(folder, f"file://{folder}/warehouse")) as catalog:
        return _made(catalog)


def table_in_memory(folder: Path, bucket: str) -> str:
    """A table of one row in fsspec's own memory; its directory.

    Args:
        folder: of the catalog's database.
    """
    properties = {"py-io-impl": f"{__name__}.{MemoryIO.__name__}"}
    with closing(_catalog(folder, f"memory://{bucket}/warehouse", **properties)) as catalog:
        catalog.create_namespace("sales")
        table = catalog.create_table(IDENTIFIER, _rows(1, "2026-11-01").schema)
        table.append(_rows(1, "2026-11-01"))
        place = Directory(folder / "doc")
        guid, pointer = str(table.metadata.table_uuid), table.metadata_location
        body = render(place.document(IDENTIFIER, guid=guid, metadata_file_path=pointer, snapshot_id=_head(table)))
        MemoryFileSystem().pipe_file(f"{table.location()}/metadata/_sfn/sales_orders_main.ver", body)
        return table.location()


def table_by_price(folder: Path) -> str:
    """A table of three rows that is partitioned by their prices, 0.1, 0.3 and 5; its directory."""
    with closing(_catalog(folder, f"file://{folder}/warehouse")) as catalog:
        catalog.create_namespace("sales")
        rows = pa.table({"price": [0.1, 0.3, 5.0]})
        table = catalog.create_table(IDENTIFIER, rows.schema)
        with table.update_spec() as spec:
            spec.add_field("price", IdentityTransform(), "price")
        table.append(rows)
    return _published(table, _head(table)).path.as_posix()


class MemoryIO(FsspecFileIO):
    """PyIceberg's way to files, for a scheme that it does not know."""

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self._scheme_to_fs["memory"] = lambda _: MemoryFileSystem()


def _catalog(folder: Path, warehouse: str, **properties: str) -> SqlCatalog:
    return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=warehouse, **properties)


def _made(catalog: SqlCatalog) -> RealTable:
    catalog.create_namespace("sales")
    table = catalog.create_table(IDENTIFIER, pa.schema([("id", pa.int64()), ("day", pa.string())]))
    with table.update_spec() as spec:
        spec.add_field("day", IdentityTransform(), "day")
    table.append(_rows(1, "2026-11-01"))
    tagged = _head(table)
    with table.update_schema() as schema:
        schema.add_column("note", StringType())
    table.append(_rows(2, "2026-11-02"))
    main = _head(table)
    table.manage_snapshots().create_tag(tagged, "v1").create_branch(tagged, "audit").commit()
    table.append(_rows(3, "2026-11-03"), branch="audit")
    audit = table.metadata.refs["audit"].snapshot_id
    return RealTable(_published(table, main), table.metadata_location, main, audit, tagged)


def _published(table: Table, snapshot_id: int) -> Directory:
    place = Directory(Path(table.location().removeprefix("file://")))
    doc = place.document(
        IDENTIFIER,
        guid=str(table.metadata.table_uuid),
        metadata_file_path=table.metadata_location,
        snapshot_id=snapshot_id,
    )
    place.sfn_file(IDENTIFIER).write_bytes(render(doc))
    return place


def published_table(table: Table) -> Directory:
    """Publish the current state of `sales.orders`, as the service does; its directory."""
    table.refresh()
    return _published(table, _head(table))


def _rows(number: int, day: str) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "day": [day]})


def _head(table: Table) -> int:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


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


@dataclass(frozen=True, slots=True)
class OddTable:
    """The table.

    Attributes:
        directory: where it is read.
        rows: how many it has.
    """

    directory: str
    rows: int


def odd_table(
    catalog: SqlCatalog, location: str, put: Callable[[str, bytes], None], names: tuple[str, ...], below: str = "odd#?"
) -> OddTable:
    """Make the table, with its SFN file.

    Args:
        catalog: writes metadata; its namespace `n` is there.
        put: writes a file at a location.
        names: of the folders of data files, one row in each.
        below: the folder of manifests and manifest list.
    """
    schema = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    metadata = f"{location}/metadata"
    table = catalog.create_table(
        "n.t", schema, location=location, properties={"write.metadata.path": f"{metadata}/{below}"}
    )
    files = []
    for number, name in enumerate(names):
        path, body = f"{location}/data/{name}/f.parquet", io.BytesIO()
        pq.write_table(pa.table({"id": [number]}, schema=schema), body)
        put(path, body.getvalue())
        files.append(_data_file(path, len(body.getvalue())))
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for one in files:
            append.append_data_file(one)
    table.refresh()
    # A metadata file of such a name is not published.
    pointer = f"{metadata}/00001-a.metadata.json"
    put(pointer, table.metadata.model_dump_json().encode())
    document = Document(
        catalog_id="0123456789abcdef0123456789abcdef",
        namespace=("n",),
        name="t",
        guid=str(table.metadata.table_uuid),
        metadata_file_path=pointer,
        ordinal=FIRST_ORDINAL,
        written_at=WRITTEN_AT,
        snapshot_id=table.metadata.current_snapshot_id,
    )
    put(FileLayout(location).keys(FileOwner(("n",), "t"))[0], render(document))
    assert json.loads(table.metadata.model_dump_json())["snapshots"][0]["manifest-list"].startswith(
        f"{metadata}/{below}/"
    )
    return OddTable(location, len(names))


def _data_file(path: str, size: int) -> DataFile:
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=size,
        column_sizes=None,
        value_counts=None,
        null_value_counts=None,
        nan_value_counts=None,
        lower_bounds=None,
        upper_bounds=None,
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    made.spec_id = 0
    return made
