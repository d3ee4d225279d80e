"""Partitions, hidden or not, and orders of rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from tests.spark.matrix.feature import Feature
from tests.spark.matrix.table import BEFORE, Look, Table

COLUMNS: Final = "id INT, item STRING, day DATE, at TIMESTAMP"
ROWS: Final = (
    "(1, 'apple', DATE'2026-05-31', TIMESTAMP'2026-05-31 23:59:59.999999')",
    "(2, 'apricot', DATE'1969-12-31', TIMESTAMP'1969-12-31 12:00:00')",
    "(3, NULL, NULL, NULL)",
)
MORE: Final = ("(4, 'fig', DATE'2026-06-01', TIMESTAMP'2026-06-01 00:00:00')",)
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


def partitioned(table: Table, by: str) -> Iterable[Look]:
    table.create(COLUMNS, by)
    table.insert(*ROWS)
    yield table.now()


def void(table: Table) -> Iterable[Look]:
    """A field that is dropped stays as `void`, with version 1."""
    table.create(COLUMNS, "item", {"format-version": "1"})
    table.insert(*ROWS)
    table.run("ALTER TABLE {t} DROP PARTITION FIELD item")
    table.insert(*MORE)
    yield table.now()


def source_dropped(table: Table) -> Iterable[Look]:
    table.create(COLUMNS, "item")
    table.insert(*ROWS)
    table.run("ALTER TABLE {t} DROP PARTITION FIELD item", "ALTER TABLE {t} DROP COLUMN item")
    table.insert("(4, DATE'2026-06-01', NULL)")
    yield table.now()


def evolved(table: Table) -> Iterable[Look]:
    table.create(COLUMNS)
    table.insert(*ROWS)
    old = table.snapshot
    table.run("ALTER TABLE {t} ADD PARTITION FIELD days(at)")
    table.insert(*MORE)
    table.run("ALTER TABLE {t} REPLACE PARTITION FIELD days(at) WITH months(at)")
    table.insert(*MORE)
    yield table.now()
    yield table.at_snapshot(old, BEFORE)


def source_renamed(table: Table) -> Iterable[Look]:
    table.create(COLUMNS, "item")
    table.insert(*ROWS)
    table.run("ALTER TABLE {t} RENAME COLUMN item TO fruit")
    table.insert(*MORE)
    yield table.now()


def source_widened(table: Table) -> Iterable[Look]:
    table.create("id INT, n INT", "n")
    table.insert("(1, 1)", "(2, NULL)")
    table.run("ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT")
    table.insert("(3, 9223372036854775807)")
    yield table.now()


def ordered(table: Table) -> Iterable[Look]:
    table.create(COLUMNS)
    table.run("ALTER TABLE {t} WRITE ORDERED BY item")
    table.insert(*ROWS)
    table.run("ALTER TABLE {t} WRITE ORDERED BY bucket(2, id), at DESC NULLS LAST")
    table.insert(*MORE)
    yield table.now()


FEATURES: Final = (
    *(Feature(f"partitions: {name}", partial(partitioned, by=by)) for name, by in TRANSFORMS.items()),
    Feature("partitions: void", void),
    Feature("partitions: column dropped that they were made of", source_dropped),
    Feature("partitions: column renamed that they are made of", source_renamed),
    Feature("partitions: column widened that they are made of", source_widened),
    Feature("partition evolution", evolved),
    Feature("sort order changed", ordered),
)
