"""The client of the demo's tables: what it commits, other readers see."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.demo.catalog import open_catalog
from sfn.demo.lake import Lake, duckdb_for_iceberg

ROWS = ((1, "rope", 4.25), (2, "anvil", 19.5))
MORE = ((3, "magnet", 12.0),)


@pytest.fixture(name="lake")
def fixture_lake(tmp_path: Path) -> Lake:
    lake = Lake(open_catalog(tmp_path))
    lake.create_namespace()
    lake.create("orders")
    return lake


def test_duckdb_reads_what_was_appended(lake: Lake) -> None:
    lake.append("orders", *ROWS)
    pointer = lake.append("orders", *MORE)
    assert pointer == lake.pointer("orders")
    with duckdb_for_iceberg() as connection:
        found = connection.execute("FROM iceberg_scan(?) ORDER BY id", [pointer.removeprefix("file://")]).fetchall()
    assert found == [*ROWS, *MORE]


def test_pyiceberg_reads_what_was_appended(lake: Lake) -> None:
    lake.append("orders", *ROWS)
    table = lake.catalog.load_table("shop.orders")
    assert sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist()) == list(ROWS)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["added-records"] == "2"


def test_data_files_lie_below_the_table(lake: Lake, tmp_path: Path) -> None:
    lake.append("orders", *ROWS)
    directory = lake.directory("orders")
    assert directory == tmp_path / "warehouse" / "shop" / "orders"
    assert [file.suffix for file in (directory / "data").iterdir()] == [".parquet"]
