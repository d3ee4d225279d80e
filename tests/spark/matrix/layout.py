"""Features of the layout: partitions and sort orders, locations and odd names, imported files."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from tests.spark.matrix.table import BEFORE, COLUMNS, HADOOP, Feature, State, Table

DATED_COLUMNS: Final = "id INT, item STRING, day DATE, at TIMESTAMP"
DATED_ROWS: Final = (
    "(1, 'apple', DATE'2026-05-31', TIMESTAMP'2026-05-31 23:59:59.999999')",
    "(2, 'apricot', DATE'1969-12-31', TIMESTAMP'1969-12-31 12:00:00')",
    "(3, NULL, NULL, NULL)",
)
LATER_ROWS: Final = ("(4, 'fig', DATE'2026-06-01', TIMESTAMP'2026-06-01 00:00:00')",)
TRANSFORMS: Final = {
    "identity": "item",
    "identity of a date": "day",
    "years": "years(day)",
    "months": "months(at)",
    "days": "days(at)",
    "hours": "hours(at)",
    "bucket": "bucket(2, item)",
    "truncate": "truncate(2, item)",
    "several fields": "bucket(2, id), days(at)",
}


def partitioned(table: Table, by: str) -> Iterable[State]:
    table.create(DATED_COLUMNS, by)
    table.insert(*DATED_ROWS)
    yield table.now()


def field_dropped(table: Table) -> Iterable[State]:
    """A field that is dropped stays as `void`, with version 1."""
    table.create(DATED_COLUMNS, "item", {"format-version": "1"})
    table.insert(*DATED_ROWS)
    table.run("ALTER TABLE {t} DROP PARTITION FIELD item")
    table.insert(*LATER_ROWS)
    yield table.now()


def source_dropped(table: Table) -> Iterable[State]:
    table.create(DATED_COLUMNS, "item")
    table.insert(*DATED_ROWS)
    table.run("ALTER TABLE {t} DROP PARTITION FIELD item", "ALTER TABLE {t} DROP COLUMN item")
    table.insert("(4, DATE'2026-06-01', NULL)")
    yield table.now()


def spec_changed(table: Table) -> Iterable[State]:
    table.create(DATED_COLUMNS)
    table.insert(*DATED_ROWS)
    old = table.snapshot
    table.run("ALTER TABLE {t} ADD PARTITION FIELD days(at)")
    table.insert(*LATER_ROWS)
    table.run("ALTER TABLE {t} REPLACE PARTITION FIELD days(at) WITH months(at)")
    table.insert(*LATER_ROWS)
    yield table.now()
    yield table.at_snapshot(old, BEFORE)


def source_renamed(table: Table) -> Iterable[State]:
    table.create(DATED_COLUMNS, "item")
    table.insert(*DATED_ROWS)
    table.run("ALTER TABLE {t} RENAME COLUMN item TO fruit")
    table.insert(*LATER_ROWS)
    yield table.now()


def source_widened(table: Table) -> Iterable[State]:
    table.create("id INT, n INT", "n")
    table.insert("(1, 1)", "(2, NULL)")
    table.run("ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT")
    table.insert("(3, 9223372036854775807)")
    yield table.now()


def ordered(table: Table) -> Iterable[State]:
    table.create(DATED_COLUMNS)
    table.run("ALTER TABLE {t} WRITE ORDERED BY item")
    table.insert(*DATED_ROWS)
    table.run("ALTER TABLE {t} WRITE ORDERED BY bucket(2, id), at DESC NULLS LAST")
    table.insert(*LATER_ROWS)
    yield table.now()


PARTITIONS: Final = (
    *(Feature(f"partitions: {name}", partial(partitioned, by=by)) for name, by in TRANSFORMS.items()),
    Feature("partitions: void", field_dropped),
    Feature("partitions: column dropped that they were made of", source_dropped),
    Feature("partitions: column renamed that they are made of", source_renamed),
    Feature("partitions: column widened that they are made of", source_widened),
    Feature("partition evolution", spec_changed),
    Feature("sort order changed", ordered),
)


ROWS: Final = ("(1, 'apple')", "(2, 'pear')")
ODD_VALUES: Final = ("with space", "a/b", "50%", "%2F", "a=b", "é😀", '"double"', "it''s", "#?&+", "..", "", "null")


def files_elsewhere(table: Table, key: str) -> Iterable[State]:
    """Files of one kind lie beside the table's directory."""
    outside = (table.lake.folder / "beside" / table.name).as_uri()
    table.create(COLUMNS, properties={key: outside})
    table.insert(*ROWS)
    assert outside.removeprefix("file://") in str(table.files())
    yield table.now()


def object_storage(table: Table) -> Iterable[State]:
    table.create(COLUMNS, "item", {"write.object-storage.enabled": "true"})
    table.insert(*ROWS)
    yield table.now()


def location_changed(table: Table) -> Iterable[State]:
    """Another location from now on: what was written before stays where it was."""
    table.create(COLUMNS)
    table.insert(*ROWS)
    table.run(f"ALTER TABLE {{t}} SET LOCATION '{(table.lake.folder / 'moved' / table.name).as_uri()}'")
    table.insert("(3, 'fig')")
    yield table.now()


def written_plainly(table: Table) -> Iterable[State]:
    """`v<N>.metadata.json`, as catalogs that are folders write."""
    table.create(COLUMNS)
    table.insert(*ROWS)
    yield table.now()


def odd_location(table: Table) -> Iterable[State]:
    location = f"{table.lake.folder.as_uri()}/a place/100% it\\'s +%20"
    table.create(COLUMNS, "item", tail=f"LOCATION '{location}'")
    table.insert(*ROWS, "(3, 'with space')")
    table.run("DELETE FROM {t} WHERE id = 1")
    yield table.now()


def odd_columns(table: Table) -> Iterable[State]:
    table.create(
        '`with space` INT, `dot.ted` INT, `a/b` INT, `100%` INT, `Größe` INT, `it\'s` INT, `"q"` INT, `UPPER` INT, '
        "`1st` INT, `#?&=;` INT, `nested` STRUCT<`x.y`: INT, `X Y`: INT>, ```tick``` INT"
    )
    table.insert("(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, struct(11, 12), 13)")
    yield table.now()


def odd_partition_columns(table: Table) -> Iterable[State]:
    table.create("`a b.c/d%` STRING, `Größe` INT", "`a b.c/d%`, bucket(2, `Größe`)")
    table.insert("('x', 1)", "(NULL, NULL)")
    yield table.now()


def odd_partition_values(table: Table) -> Iterable[State]:
    table.create(COLUMNS, "item", {"write.delete.mode": "merge-on-read"})
    rows = [
        (number, value)
        for number, text in enumerate(ODD_VALUES)
        for number, value in ((number, text), (-number - 1, text))
    ]
    table.insert(
        *(f"({number}, '{value}')".replace("''", "\\'") if value else f"({number}, '')" for number, value in rows)
    )
    table.run("DELETE FROM {t} WHERE id < 0")
    yield table.now()


LOCATIONS: Final = (
    Feature("`write.metadata.path`", partial(files_elsewhere, key="write.metadata.path")),
    Feature("`write.data.path`", partial(files_elsewhere, key="write.data.path")),
    Feature("`write.object-storage.enabled`", object_storage),
    Feature("location changed", location_changed),
    Feature("`v<N>.metadata.json`", written_plainly, catalog=HADOOP),
    Feature("odd identifier", written_plainly, catalog=HADOOP, name="we ird.100% it's +%20"),
    Feature("odd location", odd_location),
    Feature("namespace of two levels", written_plainly, namespace=("matrix", "deep")),
    Feature("odd names of columns", odd_columns),
    Feature("odd names of columns that partitions are made of", odd_partition_columns),
    Feature("odd values in partitions", odd_partition_values),
)


IMPORTED_COLUMNS: Final = "id INT, item STRING, s STRUCT<a: INT>"
IMPORTED_ROW: Final = "SELECT 1 AS id, 'apple' AS item, named_struct('a', 2) AS s"


def imported(table: Table, kind: str = "parquet") -> Iterable[State]:
    table.create(IMPORTED_COLUMNS)
    _import_files(table, kind)
    yield table.now()


def imported_to_own_files(table: Table) -> Iterable[State]:
    """Rows that were written to the table lie in files that know the ids."""
    table.create(IMPORTED_COLUMNS)
    table.insert("(2, 'pear', struct(3))")
    _import_files(table)
    yield table.now()


def imported_then_renamed(table: Table) -> Iterable[State]:
    """The mapping keeps the names of before beside those of now."""
    table.create(IMPORTED_COLUMNS)
    _import_files(table)
    table.run("ALTER TABLE {t} RENAME COLUMN item TO fruit", "ALTER TABLE {t} DROP COLUMN id")
    table.run("ALTER TABLE {t} ADD COLUMN id INT", "ALTER TABLE {t} RENAME COLUMN s.a TO b")
    yield table.now()


def imported_then_deleted(table: Table) -> Iterable[State]:
    table.create(IMPORTED_COLUMNS, properties={"write.delete.mode": "merge-on-read"})
    _import_files(table, rows=f"{IMPORTED_ROW} UNION ALL SELECT 2, 'pear', NULL")
    table.run("DELETE FROM {t} WHERE id = 1")
    yield table.now()


def imported_partitions(table: Table) -> Iterable[State]:
    """As Hive has it: the column that partitions are made of is in no file."""
    table.create("id INT, item STRING, region STRING, day DATE", "region, day")
    _import_files(
        table,
        rows="SELECT 1 AS id, 'apple' AS item, 'north' AS region, DATE'2026-05-31' AS day "
        "UNION ALL SELECT 2, 'pear', 'so/u th', DATE'2026-06-01'",
        by="PARTITIONED BY (region, day)",
    )
    yield table.now()


def imported_without_column(table: Table) -> Iterable[State]:
    """A file lacks a column that came later."""
    table.create(f"{IMPORTED_COLUMNS}, price DECIMAL(9, 2)")
    _import_files(table)
    yield table.now()


def _import_files(table: Table, kind: str = "parquet", rows: str = IMPORTED_ROW, by: str = "") -> None:
    location = table.lake.folder / "found" / table.name
    name = f"found_{table.name}"
    table.run(
        f"CREATE TABLE {name} USING {kind} {by} LOCATION '{location.as_uri()}' "
        f"AS SELECT /*+ COALESCE(1) */ * FROM ({rows})",
        f"CALL {{system}}.add_files(table => {{q}}, source_table => '{name}')",
    )


IMPORTS: Final = (
    *(Feature(f"add_files: {kind}", partial(imported, kind=kind.lower())) for kind in ("Parquet", "ORC")),
    Feature("add_files beside files of the table's own", imported_to_own_files),
    Feature("add_files, then columns renamed, dropped, added", imported_then_renamed),
    Feature("add_files, then position deletes", imported_then_deleted),
    Feature("add_files: partition columns that no file has", imported_partitions),
    Feature("add_files that lack a column", imported_without_column),
)
"""Files that existed before the table have no column ids: they are matched by name."""
