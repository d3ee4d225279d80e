"""Equality deletes, which no SQL of Spark's writes; Flink and others do."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from tests.spark.matrix import changes, generic
from tests.spark.matrix.feature import Feature
from tests.spark.matrix.table import BEFORE, Look, Table


def deleted(table: Table, version: int = 2, kind: str = "parquet") -> Iterable[Look]:
    """Rows of later, one of them equal to a deleted one, stay."""
    changes.create(table, "merge-on-read", version, kind=kind)
    table.insert(*changes.ROWS)
    old = table.snapshot
    generic.delete_equal(table, {"id": 2}, {"id": 3}, kind=kind)
    table.insert("(2, 'pear again')")
    yield table.now()
    yield table.at_snapshot(old, BEFORE)


def by_null(table: Table) -> Iterable[Look]:
    """Two columns are compared, and null equals null."""
    changes.create(table, "merge-on-read")
    table.insert(*changes.ROWS)
    generic.delete_equal(table, {"id": 3, "item": None}, {"id": 1, "item": "pear"})
    yield table.now()


def partitioned(table: Table) -> Iterable[Look]:
    changes.create(table, "merge-on-read", columns="id INT, item STRING, region STRING", by="region")
    table.insert("(1, 'apple', 'n')", "(2, 'pear', 'n')", "(1, 'fig', 's')")
    generic.delete_equal(table, {"id": 1}, within={"region": "n"})
    yield table.now()


def column_dropped(table: Table) -> Iterable[Look]:
    """What was compared is in no schema of now."""
    changes.create(table, "merge-on-read")
    table.insert(*changes.ROWS)
    generic.delete_equal(table, {"item": "pear"})
    table.run("ALTER TABLE {t} DROP COLUMN item")
    yield table.now()


def renamed_and_widened(table: Table) -> Iterable[Look]:
    changes.create(table, "merge-on-read")
    table.insert(*changes.ROWS)
    generic.delete_equal(table, {"id": 2})
    table.run("ALTER TABLE {t} RENAME COLUMN id TO number", "ALTER TABLE {t} ALTER COLUMN number TYPE BIGINT")
    yield table.now()


def beside_positions(table: Table, version: int) -> Iterable[Look]:
    changes.create(table, "merge-on-read", version)
    table.insert(*changes.ROWS)
    generic.delete_equal(table, {"id": 1})
    table.run("DELETE FROM {t} WHERE id = 2")
    yield table.now()


def compacted(table: Table) -> Iterable[Look]:
    """Whoever reads what it is now meets none; the snapshot before has them."""
    changes.create(table, "merge-on-read")
    table.insert(*changes.ROWS)
    generic.delete_equal(table, {"id": 2})
    old = table.snapshot
    told = "map('rewrite-all', 'true', 'remove-dangling-deletes', 'true', 'use-starting-sequence-number', 'false')"
    table.run(f"CALL {{system}}.rewrite_data_files(table => {{q}}, options => {told})")
    yield table.now()
    yield table.at_snapshot(old, BEFORE)


FEATURES: Final = (
    Feature("equality deletes", deleted),
    Feature("equality deletes (v3)", partial(deleted, version=3)),
    Feature("equality deletes in Avro", partial(deleted, kind="avro")),
    Feature("equality deletes of nulls, by two columns", by_null),
    Feature("equality deletes in a partition", partitioned),
    Feature("equality deletes by a column that was dropped", column_dropped),
    Feature("equality deletes by a column that was renamed and widened", renamed_and_widened),
    Feature("equality deletes beside position deletes", partial(beside_positions, version=2)),
    Feature("equality deletes beside deletion vectors", partial(beside_positions, version=3)),
    Feature("equality deletes, then compaction", compacted),
)
