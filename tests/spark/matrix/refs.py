"""Branches, tags, and states of before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sfn.sfnfile.naming import ORDINAL
from tests.spark.matrix.feature import Feature
from tests.spark.matrix.table import Look, Table

COLUMNS: Final = "id INT, item STRING"


def branch(table: Table) -> Iterable[Look]:
    """Its head is read with the table's schema, which changed since."""
    table.create(COLUMNS)
    table.insert("(1, 'apple')")
    table.run("ALTER TABLE {t} CREATE BRANCH audit")
    table.insert("(2, 'pear')", branch="audit")
    table.run("ALTER TABLE {t} ADD COLUMN price INT", "ALTER TABLE {t} RENAME COLUMN item TO fruit")
    table.insert("(3, 'fig', 7)")
    yield table.now()
    yield table.at_ref("audit", "by `ref`")
    yield table.at_ref("audit", "by `as_of`", by="as_of")


def tag(table: Table) -> Iterable[Look]:
    """What it names is read with the schema of its time."""
    table.create(COLUMNS)
    table.insert("(1, 'apple')")
    table.run("ALTER TABLE {t} CREATE TAG v1", "ALTER TABLE {t} ADD COLUMN price INT")
    table.run("ALTER TABLE {t} RENAME COLUMN item TO fruit")
    table.insert("(3, 'fig', 7)")
    yield table.now()
    yield table.at_ref("v1", "by `ref`")
    yield table.at_ref("v1", "by `as_of`", by="as_of")


def odd(table: Table) -> Iterable[Look]:
    table.create(COLUMNS)
    table.insert("(1, 'apple')")
    table.run("ALTER TABLE {t} CREATE BRANCH `feature/Größe 1`", "ALTER TABLE {t} CREATE TAG `2026.11`")
    table.insert("(2, 'pear')")
    yield table.at_ref("feature/Größe 1", "branch `feature/Größe 1`")
    yield table.at_ref("2026.11", "tag `2026.11`")


def earlier(table: Table) -> Iterable[Look]:
    table.create(COLUMNS)
    table.insert("(1, 'apple')")
    first, at, then = table.snapshot, int(table.java.currentSnapshot().timestampMillis()), table.moment()
    table.run("ALTER TABLE {t} DROP COLUMN item")
    without = table.moment()
    table.run("DELETE FROM {t}")
    table.insert("(2)")
    yield table.now()
    yield table.at_snapshot(first)
    yield table.at_time(at)
    yield table.as_it_was(then)
    yield table.as_it_was(without, "as of the Ordinal of a change of schema")


def each_commit(table: Table) -> Iterable[Look]:
    """Each commit has a file of its own."""
    table.create(COLUMNS)
    table.insert("(1, 'apple')")
    table.publish(ORDINAL)
    then = table.moment()
    table.run("ALTER TABLE {t} ADD COLUMN price INT")
    table.publish(ORDINAL)
    without = table.moment()
    table.insert("(2, 'pear', 3)")
    table.publish(ORDINAL)
    yield table.now()
    yield table.as_it_was(then)
    yield table.as_it_was(without, "as of the Ordinal of a change of schema")


FEATURES: Final = (
    Feature("branch", branch),
    Feature("tag", tag),
    Feature("odd names of refs", odd),
    Feature("states of before", earlier),
    Feature("states of before, a file for each commit", each_commit),
)
