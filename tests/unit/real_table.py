"""A real Iceberg table with rows, a branch, a tag and an SFN file, made by PyIceberg in a directory."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from fsspec.implementations.memory import MemoryFileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Properties
from pyiceberg.types import StringType

from sfn.sfnfile.document import render
from tests.unit.directory import Directory

IDENTIFIER = "sales.orders"


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
