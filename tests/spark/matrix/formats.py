"""Versions of the format, and the files that rows lie in."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from tests.spark.matrix.feature import Feature
from tests.spark.matrix.table import Look, Table

COLUMNS: Final = "id INT, item STRING, day DATE, price DECIMAL(9, 2)"
FIRST: Final = ("(1, 'apple', DATE'2026-05-31', 1.50)", "(2, 'pear', DATE'2026-06-01', NULL)")
SECOND: Final = ("(3, NULL, DATE'2026-06-01', -3.25)", "(4, 'fig', NULL, 0.00)")


def written(table: Table, *, version: int = 2, kind: str = "parquet") -> Iterable[Look]:
    table.create(COLUMNS, properties={"format-version": str(version), "write.format.default": kind})
    table.insert(*FIRST)
    table.insert(*SECOND)
    yield table.now()


def mixed(table: Table) -> Iterable[Look]:
    table.create(COLUMNS, properties={"write.format.default": "orc"})
    table.insert(*FIRST)
    table.run("ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default'='parquet')")
    table.insert(*SECOND)
    yield table.now()
    yield table.at_snapshot(int(table.java.currentSnapshot().parentId()), "as of the snapshot with ORC alone")


def compressed(table: Table) -> Iterable[Look]:
    table.create(COLUMNS)
    for codec in ("gzip", "snappy", "uncompressed", "lz4"):
        table.run(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.parquet.compression-codec'='{codec}')")
        table.insert(*FIRST)
    yield table.now()


def compressed_metadata(table: Table) -> Iterable[Look]:
    table.create(COLUMNS, properties={"write.metadata.compression-codec": "gzip"})
    table.insert(*FIRST)
    yield table.now()


def empty(table: Table) -> Iterable[Look]:
    table.create(COLUMNS)
    yield table.now()


def emptied(table: Table) -> Iterable[Look]:
    table.create(COLUMNS)
    table.insert(*FIRST)
    table.run("DELETE FROM {t}")
    yield table.now()


FEATURES: Final = (
    *(Feature(f"format v{version}", partial(written, version=version)) for version in (1, 2, 3)),
    Feature("ORC", partial(written, kind="orc")),
    Feature("Avro", partial(written, kind="avro")),
    Feature("Parquet beside ORC of before", mixed),
    Feature("Parquet by several codecs", compressed),
    Feature("gzipped metadata", compressed_metadata),
    Feature("no snapshot yet", empty),
    Feature("all rows deleted", emptied),
)
