"""PyIceberg, Daft, Polars and DuckDB read through `sfn facade`, and can change nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import daft
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from sfn.demo.demo import DirectCatalog
from tests.integration.facade import Facing, facing
from tests.support.pages import ROOT
from tests.support.real_table import RealTable, real_table

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
ORDERS = ("sales", "orders")


@dataclass(frozen=True)
class World:
    """A real table, and a facade that shows it."""

    made: RealTable
    root: Path
    facade: Facing

    def client(self) -> RestCatalog:
        return DirectCatalog("facade", uri=self.facade.uri)

    def sweep(self, before: set[Path]) -> None:
        """See that nothing is gone, and that nothing came but manifests that no metadata names; these are removed.

        DuckDB writes them before it asks, and leaves them where the catalog says no.
        """
        now = self.files()
        assert before <= now
        assert {(path.parent.name, path.suffix) for path in now - before} <= {("metadata", ".avro")}
        for path in now - before:
            path.unlink()

    def files(self) -> set[Path]:
        return {path for path in self.root.rglob("*") if path.is_file()}


@pytest.fixture(name="world", scope="module")
def fixture_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("clients").resolve()
    made = real_table(folder)
    with facing(folder, folder / "warehouse") as facade:
        yield World(made, folder / "warehouse", facade)


@pytest.fixture(name="catalog")
def fixture_catalog(world: World) -> RestCatalog:
    return world.client()


def test_pyiceberg_reads(world: World, catalog: RestCatalog) -> None:
    assert catalog.list_namespaces() == [("dir",), ("sales",)]
    assert catalog.list_tables("sales") == [ORDERS]
    assert catalog.table_exists(ORDERS)
    assert not catalog.table_exists(("sales", "none"))
    assert catalog.namespace_exists("sales")
    assert not catalog.namespace_exists("none")
    with pytest.raises(NoSuchTableError):
        catalog.load_table(("sales", "none"))
    table = catalog.load_table(ORDERS)
    assert table.metadata_location == world.made.pointer
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert table.scan(snapshot_id=world.made.tagged).to_arrow()["id"].to_pylist() == [1]
    assert table.scan("id = 2").to_arrow().num_rows == 1
    assert table.inspect.snapshots().num_rows == 3
    by_directory = catalog.load_table(("dir", world.made.directory))
    assert by_directory.metadata == table.metadata


def test_daft_and_polars_read(catalog: RestCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    table = catalog.load_table(ORDERS)
    assert sorted(daft.read_iceberg(table).to_pydict()["id"]) == [1, 2]
    assert sorted(pl.scan_iceberg(table).collect()["id"].to_list()) == [1, 2]


NOT_ASKED = "Server does not support endpoint"
"""What PyIceberg says of what is not among the endpoints."""
READ_ONLY = "this catalog is read only"
NO_FOLDER = "/dev/null/this-catalog-is-read-only"
FORBIDDEN = "ForbiddenException"
ROWS = pa.table({"id": [9], "day": ["x"], "note": ["y"]})
Write = Callable[[RestCatalog, Table], object]
WRITES: dict[str, tuple[Write, str]] = {
    "append": (lambda _, table: table.append(ROWS), READ_ONLY),
    "overwrite": (lambda _, table: table.overwrite(ROWS), READ_ONLY),
    "delete": (lambda _, table: table.delete("id = 1"), READ_ONLY),
    "upsert": (lambda _, table: table.upsert(ROWS, join_cols=["day"]), READ_ONLY),
    "add files": (lambda _, table: table.add_files([a_file(table)], check_duplicate_files=False), READ_ONLY),
    "daft": (lambda _, table: daft.from_arrow(ROWS).write_iceberg(table), NO_FOLDER),
    "polars": (lambda _, table: frame().write_iceberg(table, mode="append"), READ_ONLY),
    "polars sink": (lambda _, table: frame().lazy().sink_iceberg(table, mode="append"), READ_ONLY),
    "properties": (lambda _, table: table.transaction().set_properties(a="b").commit_transaction(), FORBIDDEN),
    "tag": (lambda _, table: table.manage_snapshots().create_tag(newest(table), "t").commit(), FORBIDDEN),
    "create": (lambda catalog, _: catalog.create_table(("sales", "new"), SCHEMA), NOT_ASKED),
    "register": (lambda catalog, table: catalog.register_table(("sales", "new"), table.metadata_location), NOT_ASKED),
    "rename": (lambda catalog, _: catalog.rename_table(ORDERS, ("sales", "new")), NOT_ASKED),
    "drop": (lambda catalog, _: catalog.drop_table(ORDERS), NOT_ASKED),
    "purge": (lambda catalog, _: catalog.purge_table(ORDERS), NOT_ASKED),
    "create namespace": (lambda catalog, _: catalog.create_namespace("new"), NOT_ASKED),
    "drop namespace": (lambda catalog, _: catalog.drop_namespace("sales"), NOT_ASKED),
    "namespace": (lambda catalog, _: catalog.update_namespace_properties("sales", updates={"a": "b"}), NOT_ASKED),
}


def a_file(table: Table) -> str:
    return next(iter(table.scan().plan_files())).file.file_path


def frame() -> pl.DataFrame:
    return pl.DataFrame(ROWS)


def newest(table: Table) -> int:
    return max(table.snapshots(), key=lambda one: one.sequence_number or 0).snapshot_id


@pytest.mark.parametrize("write", WRITES)
def test_pyiceberg_changes_nothing(world: World, catalog: RestCatalog, write: str) -> None:
    table, before = catalog.load_table(ORDERS), world.files()
    change, said = WRITES[write]
    with pytest.raises(Exception, match=said):
        change(catalog, table)
    assert world.files() == before
    assert world.client().load_table(ORDERS).metadata == table.metadata


ENVIRON: dict[str, str] = {}
"""No variable of the user's: a proxy would be asked for the catalog."""


def said(world: World, *statements: str) -> list[object]:
    """What DuckDB says to each statement; of one that fails the error."""
    line = [sys.executable, "-m", "tests.integration.child_processes", "duckdb", world.facade.uri, *statements]
    done = subprocess.run(line, cwd=ROOT, env=ENVIRON, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        return [done.stderr]
    return [json.loads(answer) for answer in done.stdout.splitlines()]


def test_duckdb_reads(world: World) -> None:
    answers = said(
        world,
        "SELECT id FROM lake.sales.orders ORDER BY id",
        f'SELECT count(*) FROM lake.dir."{world.made.directory}"',  # noqa: S608 - a folder of our own
        "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'sales'",
    )
    assert answers == [[[1], [2]], [[2]], [["orders"]]]


REFUSED = "expected a read, as this catalog is answered from SFN files"


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("INSERT INTO lake.sales.orders VALUES (9, 'x', 'y')", NO_FOLDER),
        ("UPDATE lake.sales.orders SET note = 'y'", NO_FOLDER),
        ("DELETE FROM lake.sales.orders WHERE id = 1", REFUSED),
        ("DROP TABLE lake.sales.orders", REFUSED),
        ("CREATE TABLE lake.sales.new (id BIGINT)", REFUSED),
        ("CREATE SCHEMA lake.new", REFUSED),
        ("DROP SCHEMA lake.sales", REFUSED),
        ("ALTER TABLE lake.sales.orders ADD COLUMN more BIGINT", REFUSED),
    ],
)
def test_duckdb_changes_nothing(world: World, statement: str, why: str) -> None:
    before = world.files()
    [error] = said(world, statement)
    assert why in str(error)
    world.sweep(before)
    assert world.client().load_table(ORDERS).metadata_location == world.made.pointer
