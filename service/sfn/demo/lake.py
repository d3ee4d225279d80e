"""The client of the demo's tables: it commits rows, and reads a directory with DuckDB and PyIceberg.

PyArrow is not needed. DuckDB writes the data files, and PyIceberg commits them.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from sfn.errors import SfnError
from sfn.extras import install_command
from sfn.reader.api import resolve
from sfn.sfnfile.locations import canonical

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from sfn.demo.environment import CatalogServer

NAMESPACE = "shop"
ItemRow = tuple[int, str, float]

FILE_IO = "pyiceberg.io.fsspec.FsspecFileIO"
"""PyIceberg's driver for files that needs no PyArrow."""

_NEEDED_PACKAGES = ("duckdb", "duckdb_extension_iceberg", "pyiceberg", "sqlalchemy")
_EXTENSIONS = ("avro", "iceberg")
_COLUMNS = ("id BIGINT", "item VARCHAR", "price DOUBLE")


def require_packages() -> None:
    """Import the optional packages of the demo.

    Raises:
        SfnError: the optional dependencies are not installed.
    """
    for name in _NEEDED_PACKAGES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise SfnError(
                "sfn demo",
                expected="PyIceberg and DuckDB",
                found=f"no {error.name or name}",
                remedy=install_command("demo"),
            ) from error


@dataclass(frozen=True, slots=True)
class Lake:
    """A client of the tables of one namespace."""

    catalog: Catalog

    @classmethod
    def connect(cls, server: CatalogServer, through: str | None = None) -> Lake:
        """Connect to a catalog, through a gateway if one is given."""
        return cls(server.client(through, **{"py-io-impl": FILE_IO}))

    def create_namespace(self, name: str = NAMESPACE) -> None:
        """Create the namespace if the catalog has none of the name."""
        self.catalog.create_namespace_if_not_exists(name)

    def create(self, name: str, namespace: str = NAMESPACE) -> str:
        """Create an empty table. Return its metadata location."""
        from pyiceberg.schema import Schema  # noqa: PLC0415 - an optional dependency
        from pyiceberg.types import DoubleType, LongType, NestedField, StringType  # noqa: PLC0415 - an optional dependency

        schema = Schema(
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "item", StringType(), required=False),
            NestedField(3, "price", DoubleType(), required=False),
        )
        return str(self.catalog.create_table_if_not_exists((namespace, name), schema).metadata_location)

    def append(self, name: str, *rows: ItemRow, namespace: str = NAMESPACE) -> str:
        """Commit rows. Return the new metadata location."""
        table = self.catalog.load_table((namespace, name))
        _append_rows(table, rows)
        return str(table.metadata_location)

    def rename(self, old: str, new: str) -> None:
        """Rename a table."""
        self.catalog.rename_table((NAMESPACE, old), (NAMESPACE, new))

    def drop(self, name: str) -> None:
        """Drop a table without deleting its files."""
        self.catalog.drop_table((NAMESPACE, name))

    def pointer(self, name: str) -> str:
        """Return the metadata location in the catalog."""
        return str(self.catalog.load_table((NAMESPACE, name)).metadata_location)

    def directory(self, name: str, namespace: str = NAMESPACE) -> Path:
        """Return a table's directory."""
        return _directory(self.catalog.load_table((namespace, name)).location())


def _directory(location: str) -> Path:
    return Path(canonical(location).removeprefix("file://"))


def _append_rows(table: Table, rows: Sequence[ItemRow]) -> None:
    """Write a data file with DuckDB, and commit it with PyIceberg."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat  # noqa: PLC0415 - an optional dependency
    from pyiceberg.typedef import Record  # noqa: PLC0415 - an optional dependency

    name = f"{uuid4()}.parquet"
    file = _directory(table.location()) / "data" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    _write_parquet(file, rows)
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/data/{name}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(rows),
        file_size_in_bytes=file.stat().st_size,
    )
    data_file.spec_id = table.metadata.default_spec_id
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        snapshot.append_data_file(data_file)


def _write_parquet(file: Path, rows: Sequence[ItemRow]) -> None:
    import duckdb  # noqa: PLC0415 - an optional dependency

    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE items ({', '.join(_COLUMNS)})")
        connection.executemany("INSERT INTO items VALUES (?, ?, ?)", rows)
        # Readers of Iceberg find columns by their field ids.
        connection.execute("COPY items TO ? (FORMAT parquet, FIELD_IDS {id: 1, item: 2, price: 3})", [str(file)])


def read_with_pyiceberg(directory: Path) -> list[ItemRow]:
    """Let PyIceberg plan a scan with the file that `sfn.resolve` names, and read the planned files with DuckDB.

    PyIceberg's own reader of data files needs PyArrow.
    """
    import duckdb  # noqa: PLC0415 - an optional dependency
    from pyiceberg.table import StaticTable  # noqa: PLC0415 - an optional dependency

    table = StaticTable.from_metadata(resolve(directory).metadata_location, {"py-io-impl": FILE_IO})
    files = [canonical(task.file.file_path).removeprefix("file://") for task in table.scan().plan_files()]
    with duckdb.connect() as connection:
        return connection.execute("SELECT id, item, price FROM read_parquet(?) ORDER BY id", [files]).fetchall()


def read_with_duckdb(directory: Path) -> list[ItemRow]:
    """Read a table's rows from its directory with DuckDB, which uses the version hint."""
    with duckdb_for_iceberg() as connection:
        return connection.execute(
            "SELECT id, item, price FROM iceberg_scan(?) ORDER BY id", [str(directory)]
        ).fetchall()


def duckdb_for_iceberg(*more: str) -> DuckDBPyConnection:
    """Open DuckDB in memory with the extensions for Iceberg.

    Args:
        more: other extensions, such as `httpfs` for a REST catalog, from their PyPI packages.
    """
    import duckdb  # noqa: PLC0415 - an optional dependency

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for name in (*more, *_EXTENSIONS):
        connection.load_extension(str(_extension(name)))
    return connection


def _extension(name: str) -> Path:
    """Return the file of an extension from its PyPI package, so that DuckDB downloads nothing."""
    package = importlib.import_module(f"duckdb_extension_{name}")
    (file,) = Path(str(package.__file__)).parent.glob(f"extensions/*/{name}.duckdb_extension")
    return file
