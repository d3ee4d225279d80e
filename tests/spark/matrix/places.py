"""Where files lie, and odd names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from tests.spark.matrix.feature import Feature
from tests.spark.matrix.lake import HADOOP
from tests.spark.matrix.table import Look, Table

COLUMNS: Final = "id INT, item STRING"
ROWS: Final = ("(1, 'apple')", "(2, 'pear')")
VALUES: Final = ("with space", "a/b", "50%", "%2F", "a=b", "é😀", '"double"', "it''s", "#?&+", "..", "", "null")


def elsewhere(table: Table, key: str) -> Iterable[Look]:
    """Files of one kind lie beside the table's directory."""
    beside = (table.lake.folder / "beside" / table.name).as_uri()
    table.create(COLUMNS, properties={key: beside})
    table.insert(*ROWS)
    assert beside.removeprefix("file://") in str(table.files())
    yield table.now()


def hashed(table: Table) -> Iterable[Look]:
    table.create(COLUMNS, "item", {"write.object-storage.enabled": "true"})
    table.insert(*ROWS)
    yield table.now()


def moved(table: Table) -> Iterable[Look]:
    """Another location from now on: what was written before stays where it was."""
    table.create(COLUMNS)
    table.insert(*ROWS)
    table.run(f"ALTER TABLE {{t}} SET LOCATION '{(table.lake.folder / 'moved' / table.name).as_uri()}'")
    table.insert("(3, 'fig')")
    yield table.now()


def versioned(table: Table) -> Iterable[Look]:
    """`v<N>.metadata.json`, as catalogs that are folders write."""
    table.create(COLUMNS)
    table.insert(*ROWS)
    yield table.now()


def located(table: Table) -> Iterable[Look]:
    place = f"{table.lake.folder.as_uri()}/a place/100% it\\'s +%20"
    table.create(COLUMNS, "item", tail=f"LOCATION '{place}'")
    table.insert(*ROWS, "(3, 'with space')")
    table.run("DELETE FROM {t} WHERE id = 1")
    yield table.now()


def columns(table: Table) -> Iterable[Look]:
    table.create(
        '`with space` INT, `dot.ted` INT, `a/b` INT, `100%` INT, `Größe` INT, `it\'s` INT, `"q"` INT, `UPPER` INT, '
        "`1st` INT, `#?&=;` INT, `nested` STRUCT<`x.y`: INT, `X Y`: INT>, ```tick``` INT",
    )
    table.insert("(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, struct(11, 12), 13)")
    yield table.now()


def partition_columns(table: Table) -> Iterable[Look]:
    table.create("`a b.c/d%` STRING, `Größe` INT", "`a b.c/d%`, bucket(2, `Größe`)")
    table.insert("('x', 1)", "(NULL, NULL)")
    yield table.now()


def partition_values(table: Table) -> Iterable[Look]:
    table.create(COLUMNS, "item", {"write.delete.mode": "merge-on-read"})
    rows = [
        (number, value) for number, text in enumerate(VALUES) for number, value in ((number, text), (-number - 1, text))
    ]
    table.insert(
        *(f"({number}, '{value}')".replace("''", "\\'") if value else f"({number}, '')" for number, value in rows)
    )
    table.run("DELETE FROM {t} WHERE id < 0")
    yield table.now()


FEATURES: Final = (
    Feature("`write.metadata.path`", partial(elsewhere, key="write.metadata.path")),
    Feature("`write.data.path`", partial(elsewhere, key="write.data.path")),
    Feature("`write.object-storage.enabled`", hashed),
    Feature("location changed", moved),
    Feature("`v<N>.metadata.json`", versioned, catalog=HADOOP),
    Feature("odd identifier", versioned, catalog=HADOOP, name="we ird.100% it's +%20"),
    Feature("odd location", located),
    Feature("namespace of two levels", versioned, namespace=("matrix", "deep")),
    Feature("odd names of columns", columns),
    Feature("odd names of columns that partitions are made of", partition_columns),
    Feature("odd values in partitions", partition_values),
)
