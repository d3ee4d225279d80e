"""Columns that were added, dropped, renamed, moved and widened."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.spark.matrix.feature import Feature
from tests.spark.matrix.table import BEFORE, Look, Table


@dataclass(frozen=True, slots=True)
class Evolution:
    """A schema that becomes another.

    Attributes:
        columns: those of before.
        before: rows.
        changes: what follows `ALTER TABLE`.
        after: rows.
    """

    columns: str
    before: str
    changes: tuple[str, ...]
    after: str = ""

    def write(self, table: Table) -> Iterable[Look]:
        table.create(self.columns)
        table.insert(self.before)
        old = table.snapshot
        table.run(*(f"ALTER TABLE {{t}} {change}" for change in self.changes))
        if self.after:
            table.insert(self.after)
        yield table.now()
        yield table.at_snapshot(old, BEFORE)


ALTERED: Final = {
    "column added": Evolution("id INT", "(1)", ("ADD COLUMN item STRING",), "(2, 'pear')"),
    "column dropped": Evolution("id INT, item STRING", "(1, 'apple')", ("DROP COLUMN item",), "(2)"),
    "column dropped, another of the same name added": Evolution(
        "id INT, item STRING", "(1, 'apple')", ("DROP COLUMN item", "ADD COLUMN item STRING"), "(2, 'pear')"
    ),
    "… of another type": Evolution(
        "id INT, item STRING", "(1, 'apple')", ("DROP COLUMN item", "ADD COLUMN item INT"), "(2, 7)"
    ),
    "column renamed": Evolution("id INT, item STRING", "(1, 'apple')", ("RENAME COLUMN item TO fruit",), "(2, 'pear')"),
    "two names exchanged": Evolution(
        "a STRING, b STRING",
        "('a1', 'b1')",
        ("RENAME COLUMN a TO c", "RENAME COLUMN b TO a", "RENAME COLUMN c TO b"),
        "('b2', 'a2')",
    ),
    "columns reordered": Evolution(
        "id INT, item STRING, day DATE",
        "(1, 'apple', DATE'2026-05-31')",
        ("ALTER COLUMN day FIRST", "ALTER COLUMN id AFTER item"),
        "(DATE'2026-06-01', 'pear', 2)",
    ),
    "int widened to long": Evolution("n INT", "(-7)", ("ALTER COLUMN n TYPE BIGINT",), "(9223372036854775807)"),
    "float widened to double": Evolution("n FLOAT", "(0.1)", ("ALTER COLUMN n TYPE DOUBLE",), "(0.1D)"),
    "decimal widened": Evolution(
        "a DECIMAL(9, 2), b DECIMAL(18, 4)",
        "(1234567.89, -0.0001)",
        ("ALTER COLUMN a TYPE DECIMAL(18, 2)", "ALTER COLUMN b TYPE DECIMAL(38, 4)"),
        "(1234567890123456.78, 0.5)",
    ),
    "column no longer required": Evolution(
        "id INT NOT NULL, item STRING NOT NULL", "(1, 'apple')", ("ALTER COLUMN item DROP NOT NULL",), "(2, NULL)"
    ),
    "all columns of before dropped": Evolution("a INT", "(1)", ("ADD COLUMN b INT", "DROP COLUMN a"), "(2)"),
    "field added to a struct": Evolution(
        "id INT, s STRUCT<a: INT>", "(1, struct(1))", ("ADD COLUMN s.b STRING",), "(2, struct(2, 'x'))"
    ),
    "field of a struct dropped and added again": Evolution(
        "id INT, s STRUCT<a: INT, b: STRING>",
        "(1, struct(1, 'x'))",
        ("DROP COLUMN s.b", "ADD COLUMN s.b STRING"),
        "(2, struct(2, 'y'))",
    ),
    "field of a struct renamed": Evolution(
        "id INT, s STRUCT<a: INT, b: STRING>",
        "(1, struct(1, 'x'))",
        ("RENAME COLUMN s.b TO c",),
        "(2, struct(2, 'y'))",
    ),
    "fields of a struct reordered": Evolution(
        "id INT, s STRUCT<a: INT, b: STRING>",
        "(1, struct(1, 'x'))",
        ("ALTER COLUMN s.b FIRST",),
        "(2, struct('y', 2))",
    ),
    "struct with all fields added later": Evolution(
        "s STRUCT<a: INT>, n INT", "(struct(1), 1)", ("ADD COLUMN s.b INT", "DROP COLUMN s.a"), "(struct(2), 2)"
    ),
    "struct added": Evolution("id INT", "(1)", ("ADD COLUMN s STRUCT<a: INT, b: STRING>",), "(2, struct(1, 'x'))"),
    "structs in a list changed": Evolution(
        "l ARRAY<STRUCT<a: INT, b: STRING>>",
        "(array(struct(1, 'x'), NULL))",
        ("ADD COLUMN l.element.c INT", "RENAME COLUMN l.element.b TO d"),
        "(array(struct(2, 'y', 3)))",
    ),
    "structs in a map changed": Evolution(
        "m MAP<STRING, STRUCT<a: INT>>",
        "(map('k', struct(1), 'l', NULL))",
        ("ADD COLUMN m.value.b STRING", "ALTER COLUMN m.value.a TYPE BIGINT"),
        "(map('k', struct(2L, 'y')))",
    ),
    "elements of a list and values of a map widened": Evolution(
        "l ARRAY<INT>, m MAP<INT, FLOAT>",
        "(array(1, NULL), map(1, 0.5F))",
        ("ALTER COLUMN l.element TYPE BIGINT", "ALTER COLUMN m.value TYPE DOUBLE"),
        "(array(9223372036854775807), map(2, 0.25D))",
    ),
}


def defaulted(table: Table) -> Iterable[Look]:
    """SQL can't give a column a default (`setting default values in Spark is currently unsupported`)."""
    table.create("id INT, s STRUCT<a: INT>", properties={"format-version": "3"})
    table.insert("(1, struct(1))")
    old = table.snapshot
    types, literal = table.lake.iceberg.types.Types, table.lake.iceberg.expressions.Expressions.lit
    update = table.java.updateSchema()
    update.addColumn("n", types.IntegerType.get(), literal(5))
    update.addColumn("item", types.StringType.get(), literal("none"))
    update.commit()
    table.insert("(2, struct(2), NULL, 'pear')")
    yield table.now()
    yield table.at_snapshot(old, BEFORE)


def defaulted_inside(table: Table) -> Iterable[Look]:
    table.create("id INT, s STRUCT<a: INT>", properties={"format-version": "3"})
    table.insert("(1, struct(1))", "(2, NULL)")
    types, literal = table.lake.iceberg.types.Types, table.lake.iceberg.expressions.Expressions.lit
    table.java.updateSchema().addColumn("s", "b", types.IntegerType.get(), literal(7)).commit()
    yield table.now()


def defaulted_anew(table: Table) -> Iterable[Look]:
    """The default of later writes is none of earlier rows."""
    table.create("id INT", properties={"format-version": "3"})
    table.insert("(1)")
    types, literal = table.lake.iceberg.types.Types, table.lake.iceberg.expressions.Expressions.lit
    table.java.updateSchema().addColumn("n", types.IntegerType.get(), literal(5)).commit()
    table.java.updateSchema().updateColumnDefault("n", literal(6)).commit()
    yield table.now()


FEATURES: Final = (
    *(Feature(title, evolution.write) for title, evolution in ALTERED.items()),
    Feature("column added with a default (v3)", defaulted),
    Feature("field of a struct added with a default (v3)", defaulted_inside),
    Feature("default changed (v3)", defaulted_anew),
)
