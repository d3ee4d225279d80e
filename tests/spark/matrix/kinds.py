"""Types of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.spark.matrix import generic
from tests.spark.matrix.feature import Feature
from tests.spark.matrix.table import Look, Table

KINDS: Final = {
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


def plain(table: Table, kind: str) -> Iterable[Look]:
    """All plain types, extremes and nulls among their values."""
    names = [name.replace(" ", "_") for name in KINDS]
    table.create(
        ", ".join(f"{name} {told[0]}" for name, told in zip(names, KINDS.values(), strict=True)),
        properties={"write.format.default": kind},
    )
    longest = max(map(len, KINDS.values()))
    rows = [[(*told, *["NULL"] * longest)[at] for told in KINDS.values()] for at in range(1, longest + 1)]
    table.insert(*(f"({', '.join(row)})" for row in rows))
    yield table.now()


def nested(table: Table, kind: str) -> Iterable[Look]:
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


def required(table: Table) -> Iterable[Look]:
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


def foreign(table: Table, kind: Kind, version: int = 2, form: str = "parquet") -> Iterable[Look]:
    """A column of a type that SQL has no words for."""
    types = table.lake.iceberg.types.Types
    id_, column = types.NestedField.optional(1, "id", types.IntegerType.get()), kind.of(types)
    table.create_of(
        id_,
        types.NestedField.optional(2, "it", column),
        properties={"format-version": str(version), "write.format.default": form},
    )
    values = [kind.value(table.lake.java.java), None]
    generic.append(table, [{"id": at, "it": value} for at, value in enumerate(values)], form)
    yield table.now()


def variant(table: Table) -> Iterable[Look]:
    table.create("id INT, v VARIANT", properties={"format-version": "3"})
    table.insert('(1, parse_json(\'{"a": [1, 2.5, null], "b": "x"}\'))', "(2, NULL)")
    yield table.now()


@dataclass(frozen=True, slots=True)
class Kind:
    """A type, made of Iceberg's own, and a value of it, made of Java's packages."""

    of: Callable[[Any], Any]
    value: Callable[[Any], object]


UUID: Final = Kind(
    lambda types: types.UUIDType.get(), lambda java: java.util.UUID.fromString("9c12d441-03fe-4693-9a96-a0705ddf69c1")
)
FIXED: Final = Kind(lambda types: types.FixedType.ofLength(4), lambda _: bytes((0, 255, 127, 128)))
TIME: Final = Kind(lambda types: types.TimeType.get(), lambda java: java.time.LocalTime.of(12, 34, 56))
NANOSECONDS: Final = Kind(
    lambda types: types.TimestampNanoType.withoutZone(),
    lambda java: java.time.LocalDateTime.of(2026, 11, 25, 12, 34, 56, 789),
)
UNKNOWN: Final = Kind(lambda types: types.UnknownType.get(), lambda _: None)

FEATURES: Final = (
    *(Feature(f"plain types in {kind}", partial(plain, kind=kind.lower())) for kind in ("Parquet", "ORC", "Avro")),
    *(Feature(f"nested types in {kind}", partial(nested, kind=kind.lower())) for kind in ("Parquet", "ORC", "Avro")),
    Feature("required columns, fields, elements and values", required),
    *(
        Feature(f"uuid in {form}", partial(foreign, kind=UUID, form=form.lower()))
        for form in ("Parquet", "ORC", "Avro")
    ),
    Feature("fixed", partial(foreign, kind=FIXED)),
    Feature("time", partial(foreign, kind=TIME)),
    Feature("timestamp in nanoseconds (v3)", partial(foreign, kind=NANOSECONDS, version=3)),
    Feature("unknown (v3)", partial(foreign, kind=UNKNOWN, version=3)),
    Feature("variant (v3)", variant),
)
