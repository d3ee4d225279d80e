"""Features of the schema and the files: format versions and file formats, types of columns, changed schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.spark.matrix.table import BEFORE, Feature, State, Table, append

FILE_FORMATS: Final = ("Parquet", "ORC", "Avro")
ITEM_COLUMNS: Final = "id INT, item STRING, day DATE, price DECIMAL(9, 2)"
FIRST_ROWS: Final = ("(1, 'apple', DATE'2026-05-31', 1.50)", "(2, 'pear', DATE'2026-06-01', NULL)")
SECOND_ROWS: Final = ("(3, NULL, DATE'2026-06-01', -3.25)", "(4, 'fig', NULL, 0.00)")


def written_in(table: Table, *, version: int = 2, kind: str = "parquet") -> Iterable[State]:
    table.create(ITEM_COLUMNS, properties={"format-version": str(version), "write.format.default": kind})
    table.insert(*FIRST_ROWS)
    table.insert(*SECOND_ROWS)
    yield table.now()


def mixed_formats(table: Table) -> Iterable[State]:
    table.create(ITEM_COLUMNS, properties={"write.format.default": "orc"})
    table.insert(*FIRST_ROWS)
    table.run("ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default'='parquet')")
    table.insert(*SECOND_ROWS)
    yield table.now()
    yield table.at_snapshot(int(table.java.currentSnapshot().parentId()), "as of the snapshot with ORC alone")


def compressed_data(table: Table) -> Iterable[State]:
    table.create(ITEM_COLUMNS)
    for codec in ("gzip", "snappy", "uncompressed", "lz4"):
        table.run(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.parquet.compression-codec'='{codec}')")
        table.insert(*FIRST_ROWS)
    yield table.now()


def compressed_metadata(table: Table) -> Iterable[State]:
    table.create(ITEM_COLUMNS, properties={"write.metadata.compression-codec": "gzip"})
    table.insert(*FIRST_ROWS)
    yield table.now()


def empty(table: Table) -> Iterable[State]:
    table.create(ITEM_COLUMNS)
    yield table.now()


def emptied(table: Table) -> Iterable[State]:
    table.create(ITEM_COLUMNS)
    table.insert(*FIRST_ROWS)
    table.run("DELETE FROM {t}")
    yield table.now()


FORMATS: Final = (
    *(Feature(f"format v{version}", partial(written_in, version=version)) for version in (1, 2, 3)),
    Feature("ORC", partial(written_in, kind="orc")),
    Feature("Avro", partial(written_in, kind="avro")),
    Feature("Parquet beside ORC of before", mixed_formats),
    Feature("Parquet by several codecs", compressed_data),
    Feature("gzipped metadata", compressed_metadata),
    Feature("no snapshot yet", empty),
    Feature("all rows deleted", emptied),
)


PLAIN_TYPES: Final = {
    "boolean": ("BOOLEAN", "true", "false"),
    "int": ("INT", "2147483647", "-2147483648"),
    "long": ("BIGINT", "9223372036854775807", "-9223372036854775808L"),
    "float": ("FLOAT", "float('NaN')", "-0.0F", "float('-Infinity')", "1.17549435E-38F"),
    "double": ("DOUBLE", "double('NaN')", "-0.0D", "double('Infinity')", "4.9E-324D"),
    "decimal": ("DECIMAL(9, 2)", "9999999.99", "-0.01"),
    "decimal of 18 digits": ("DECIMAL(18, 4)", "99999999999999.9999", "-0.0001"),
    "decimal of 38 digits": ("DECIMAL(38, 10)", "9999999999999999999999999999.9999999999", "-0.0000000001"),
    "date": ("DATE", "DATE'2026-11-25'", "DATE'1582-10-04'", "DATE'0001-01-01'", "DATE'9999-12-31'"),
    "timestamp with zone": (
        "TIMESTAMP",
        "TIMESTAMP'2026-11-25 12:34:56.789012Z'",
        "TIMESTAMP'1900-01-01 00:00:00.000001Z'",
        "TIMESTAMP'0002-01-01 00:00:00Z'",
    ),
    "timestamp": (
        "TIMESTAMP_NTZ",
        "TIMESTAMP_NTZ'2026-03-29 02:30:00'",
        "TIMESTAMP_NTZ'1582-10-10 00:00:00.000001'",
        "TIMESTAMP_NTZ'0001-01-01 00:00:00'",
    ),
    "string": ("STRING", "''", "'Größe 😀'", "'a\\nb\\0c'"),
    "binary": ("BINARY", "X''", "X'00FF7F80'"),
}


def plain_types(table: Table, kind: str) -> Iterable[State]:
    """All plain types, extremes and nulls among their values."""
    names = [name.replace(" ", "_") for name in PLAIN_TYPES]
    table.create(
        ", ".join(f"{name} {values[0]}" for name, values in zip(names, PLAIN_TYPES.values(), strict=True)),
        properties={"write.format.default": kind},
    )
    longest = max(map(len, PLAIN_TYPES.values()))
    rows = [[(*values, *["NULL"] * longest)[at] for values in PLAIN_TYPES.values()] for at in range(1, longest + 1)]
    table.insert(*(f"({', '.join(row)})" for row in rows))
    yield table.now()


def nested_types(table: Table, kind: str) -> Iterable[State]:
    table.create(
        "id INT NOT NULL, s STRUCT<a: INT, t: STRUCT<b: DECIMAL(9, 2), c: DATE>>, l ARRAY<STRING>, m MAP<STRING, INT>, "
        "ll ARRAY<ARRAY<INT>>, ms MAP<INT, STRUCT<a: ARRAY<INT>>>",
        properties={"write.format.default": kind},
    )
    table.insert(
        "(1, struct(1, struct(1.50, DATE'2026-11-25')), array('x', NULL, ''), map('k', 1, 'l', NULL), "
        "array(array(1, NULL), array(), NULL), map(1, struct(array(1, 2)), 2, NULL))",
        "(2, struct(NULL, NULL), array(), map(), array(), map(1, struct(NULL)))",
        "(3, NULL, NULL, NULL, NULL, NULL)",
    )
    yield table.now()


def required_fields(table: Table) -> Iterable[State]:
    """What may be null and what may not, at every depth: SQL has no words for most of it."""
    types, fields = table.lake.iceberg.types.Types, table.lake.iceberg.types.Types.NestedField
    number, text = types.IntegerType.get(), types.StringType.get()
    inner = table.lake.array(fields, fields.required(11, "a", number), fields.optional(12, "b", text))
    table.create_of(
        fields.required(1, "id", number),
        fields.required(2, "s", types.StructType.of(inner)),
        fields.required(3, "l", types.ListType.ofRequired(13, text)),
        fields.optional(4, "m", types.MapType.ofRequired(14, 15, text, number)),
    )
    table.insert("(1, struct(2, NULL), array('x'), map('k', 3))", "(2, struct(3, 'y'), array(), NULL)")
    yield table.now()


def foreign_type(table: Table, kind: ForeignType, version: int = 2, form: str = "parquet") -> Iterable[State]:
    """A column of a type that SQL has no words for."""
    types = table.lake.iceberg.types.Types
    id_, column = types.NestedField.optional(1, "id", types.IntegerType.get()), kind.of(types)
    table.create_of(
        id_,
        types.NestedField.optional(2, "it", column),
        properties={"format-version": str(version), "write.format.default": form},
    )
    values = [kind.value(table.lake.java.java), None]
    append(table, [{"id": at, "it": value} for at, value in enumerate(values)], form)
    yield table.now()


def variant(table: Table) -> Iterable[State]:
    table.create("id INT, v VARIANT", properties={"format-version": "3"})
    table.insert('(1, parse_json(\'{"a": [1, 2.5, null], "b": "x"}\'))', "(2, NULL)")
    yield table.now()


@dataclass(frozen=True, slots=True)
class ForeignType:
    """A type, made of Iceberg's own, and a value of it, made of Java's packages."""

    of: Callable[[Any], Any]
    value: Callable[[Any], object]


UUID: Final = ForeignType(
    lambda types: types.UUIDType.get(), lambda java: java.util.UUID.fromString("9c12d441-03fe-4693-9a96-a0705ddf69c1")
)
FIXED: Final = ForeignType(lambda types: types.FixedType.ofLength(4), lambda _: bytes((0, 255, 127, 128)))
TIME: Final = ForeignType(lambda types: types.TimeType.get(), lambda java: java.time.LocalTime.of(12, 34, 56))
NANOSECONDS: Final = ForeignType(
    lambda types: types.TimestampNanoType.withoutZone(),
    lambda java: java.time.LocalDateTime.of(2026, 11, 25, 12, 34, 56, 789),
)
UNKNOWN: Final = ForeignType(lambda types: types.UnknownType.get(), lambda _: None)

TYPES: Final = (
    *(Feature(f"plain types in {kind}", partial(plain_types, kind=kind.lower())) for kind in FILE_FORMATS),
    *(Feature(f"nested types in {kind}", partial(nested_types, kind=kind.lower())) for kind in FILE_FORMATS),
    Feature("required columns, fields, elements and values", required_fields),
    *(Feature(f"uuid in {form}", partial(foreign_type, kind=UUID, form=form.lower())) for form in FILE_FORMATS),
    Feature("fixed", partial(foreign_type, kind=FIXED)),
    Feature("time", partial(foreign_type, kind=TIME)),
    Feature("timestamp in nanoseconds (v3)", partial(foreign_type, kind=NANOSECONDS, version=3)),
    Feature("unknown (v3)", partial(foreign_type, kind=UNKNOWN, version=3)),
    Feature("variant (v3)", variant),
)


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

    def write(self, table: Table) -> Iterable[State]:
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
        "id INT, s STRUCT<a: INT, b: STRING>", "(1, struct(1, 'x'))", ("RENAME COLUMN s.b TO c",), "(2, struct(2, 'y'))"
    ),
    "fields of a struct reordered": Evolution(
        "id INT, s STRUCT<a: INT, b: STRING>", "(1, struct(1, 'x'))", ("ALTER COLUMN s.b FIRST",), "(2, struct('y', 2))"
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


def default_added(table: Table) -> Iterable[State]:
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


def default_added_in_struct(table: Table) -> Iterable[State]:
    table.create("id INT, s STRUCT<a: INT>", properties={"format-version": "3"})
    table.insert("(1, struct(1))", "(2, NULL)")
    types, literal = table.lake.iceberg.types.Types, table.lake.iceberg.expressions.Expressions.lit
    table.java.updateSchema().addColumn("s", "b", types.IntegerType.get(), literal(7)).commit()
    yield table.now()


def default_changed(table: Table) -> Iterable[State]:
    """The default of later writes is none of earlier rows."""
    table.create("id INT", properties={"format-version": "3"})
    table.insert("(1)")
    types, literal = table.lake.iceberg.types.Types, table.lake.iceberg.expressions.Expressions.lit
    table.java.updateSchema().addColumn("n", types.IntegerType.get(), literal(5)).commit()
    table.java.updateSchema().updateColumnDefault("n", literal(6)).commit()
    yield table.now()


EVOLUTIONS: Final = (
    *(Feature(title, evolution.write) for title, evolution in ALTERED.items()),
    Feature("column added with a default (v3)", default_added),
    Feature("field of a struct added with a default (v3)", default_added_in_struct),
    Feature("default changed (v3)", default_changed),
)
