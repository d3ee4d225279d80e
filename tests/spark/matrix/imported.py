"""Files that were there before the table, which know no ids of columns: they are matched by name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from tests.spark.matrix.feature import Feature
from tests.spark.matrix.table import Look, Table

COLUMNS: Final = "id INT, item STRING, s STRUCT<a: INT>"
ROW: Final = "SELECT 1 AS id, 'apple' AS item, named_struct('a', 2) AS s"


def added(table: Table, kind: str = "parquet") -> Iterable[Look]:
    table.create(COLUMNS)
    _add(table, kind)
    yield table.now()


def beside_own(table: Table) -> Iterable[Look]:
    """Rows that were written to the table lie in files that know the ids."""
    table.create(COLUMNS)
    table.insert("(2, 'pear', struct(3))")
    _add(table)
    yield table.now()


def renamed(table: Table) -> Iterable[Look]:
    """The mapping keeps the names of before beside those of now."""
    table.create(COLUMNS)
    _add(table)
    table.run("ALTER TABLE {t} RENAME COLUMN item TO fruit", "ALTER TABLE {t} DROP COLUMN id")
    table.run("ALTER TABLE {t} ADD COLUMN id INT", "ALTER TABLE {t} RENAME COLUMN s.a TO b")
    yield table.now()


def deleted(table: Table) -> Iterable[Look]:
    table.create(COLUMNS, properties={"write.delete.mode": "merge-on-read"})
    _add(table, rows=f"{ROW} UNION ALL SELECT 2, 'pear', NULL")
    table.run("DELETE FROM {t} WHERE id = 1")
    yield table.now()


def partitioned(table: Table) -> Iterable[Look]:
    """As Hive has it: the column that partitions are made of is in no file."""
    table.create("id INT, item STRING, region STRING, day DATE", "region, day")
    _add(
        table,
        rows="SELECT 1 AS id, 'apple' AS item, 'north' AS region, DATE'2026-05-31' AS day "
        "UNION ALL SELECT 2, 'pear', 'so/u th', DATE'2026-06-01'",
        by="PARTITIONED BY (region, day)",
    )
    yield table.now()


def not_null(table: Table) -> Iterable[Look]:
    """A file lacks a column that came later."""
    table.create(f"{COLUMNS}, price DECIMAL(9, 2)")
    _add(table)
    yield table.now()


def _add(table: Table, kind: str = "parquet", rows: str = ROW, by: str = "") -> None:
    place = table.lake.folder / "found" / table.name
    name = f"found_{table.name}"
    table.run(
        f"CREATE TABLE {name} USING {kind} {by} LOCATION '{place.as_uri()}' "
        f"AS SELECT /*+ COALESCE(1) */ * FROM ({rows})",
        f"CALL {{system}}.add_files(table => {{q}}, source_table => '{name}')",
    )


FEATURES: Final = (
    *(Feature(f"add_files: {kind}", partial(added, kind=kind.lower())) for kind in ("Parquet", "ORC")),
    Feature("add_files beside files of the table's own", beside_own),
    Feature("add_files, then columns renamed, dropped, added", renamed),
    Feature("add_files, then position deletes", deleted),
    Feature("add_files: partition columns that no file has", partitioned),
    Feature("add_files that lack a column", not_null),
)
