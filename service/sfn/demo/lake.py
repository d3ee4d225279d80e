"""The tables' users: PyIceberg writes through the catalog, PyIceberg and DuckDB read a directory alone."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sfn.errors import SfnError
from sfn.reader.api import resolve
from sfn.sfnfile.locations import canonical

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyiceberg.catalog import MetastoreCatalog
    from pyiceberg.catalog.rest import RestCatalog

    from sfn.demo.catalog import CatalogServer

NAMESPACE = "shop"
_NEEDED_PACKAGES = ("pyarrow", "pyiceberg", "duckdb", "duckdb_extension_iceberg")
_EXTENSIONS = ("avro", "httpfs", "iceberg")
ItemRow = tuple[int, str, float]


def require_packages() -> None:
    """Import what the demo needs beside the service.

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
                remedy="pip install '.[demo]'",
            ) from error


@dataclass(frozen=True, slots=True)
class Lake:
    """The tables of one namespace, through their catalog."""

    catalog: "RestCatalog | MetastoreCatalog"

    @classmethod
    def connect(cls, server: "CatalogServer", through: str | None) -> "Lake":
        """Connect, through a gateway if one is named, and create the namespace."""
        catalog = server.client(through)
        catalog.create_namespace(NAMESPACE)
        return cls(catalog)

    def create(self, name: str) -> str:
        """Make an empty table; its pointer."""
        from pyiceberg.schema import Schema  # noqa: PLC0415 - an optional dependency
        from pyiceberg.types import DoubleType, LongType, NestedField, StringType  # noqa: PLC0415 - an optional dependency

        schema = Schema(
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "item", StringType(), required=False),
            NestedField(3, "price", DoubleType(), required=False),
        )
        return str(self.catalog.create_table((NAMESPACE, name), schema).metadata_location)

    def append(self, name: str, *rows: ItemRow) -> str:
        """Commit rows; the new pointer."""
        import pyarrow as pa  # noqa: PLC0415 - an optional dependency

        table = self.catalog.load_table((NAMESPACE, name))
        ids, items, prices = zip(*rows, strict=True)
        table.append(pa.table({"id": list(ids), "item": list(items), "price": list(prices)}))
        return str(table.metadata_location)

    def rename(self, old: str, new: str) -> None:
        """Give a table another name."""
        self.catalog.rename_table((NAMESPACE, old), (NAMESPACE, new))

    def drop(self, name: str) -> None:
        """Remove a table from the catalog; its files stay."""
        self.catalog.drop_table((NAMESPACE, name))

    def pointer(self, name: str) -> str:
        """What the catalog says is the current metadata file."""
        return str(self.catalog.load_table((NAMESPACE, name)).metadata_location)

    def directory(self, name: str) -> Path:
        """Where a table lies."""
        location = self.catalog.load_table((NAMESPACE, name)).location()
        return Path(canonical(location).removeprefix("file://"))


def read_with_pyiceberg(directory: Path) -> list[ItemRow]:
    """A table's rows by its directory: our reader finds the metadata file."""
    from pyiceberg.table import StaticTable  # noqa: PLC0415 - an optional dependency

    table = StaticTable.from_metadata(resolve(directory).metadata_location)
    return sorted((row["id"], row["item"], row["price"]) for row in table.scan().to_arrow().to_pylist())


def read_with_duckdb(directory: Path) -> list[ItemRow]:
    """A table's rows by its directory: DuckDB reads the version hint."""
    with duckdb_for_iceberg() as connection:
        return connection.execute(
            "SELECT id, item, price FROM iceberg_scan(?) ORDER BY id", [str(directory)]
        ).fetchall()


def duckdb_for_iceberg() -> "DuckDBPyConnection":
    """DuckDB, in memory, with the extensions that read Iceberg."""
    import duckdb  # noqa: PLC0415 - an optional dependency

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for name in _EXTENSIONS:
        connection.load_extension(str(_extension(name)))
    return connection


def _extension(name: str) -> Path:
    """The file of an extension that PyPI brought: nothing is downloaded."""
    package = importlib.import_module(f"duckdb_extension_{name}")
    (file,) = Path(str(package.__file__)).parent.glob(f"extensions/*/{name}.duckdb_extension")
    return file
