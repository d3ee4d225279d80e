"""`python -m tests.bench.spark`: how long Spark takes to read a table by its directory, beside Iceberg's own library.

A part of its own, since it needs PySpark, which not everybody has.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Final

from pyiceberg.table import StaticTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sfn.spark import read
from tests.bench import record
from tests.bench.record import Figure, Goal, Run, Unmeasured
from tests.spark.session import spark_session, spark_settings
from tests.spark.tables import write_sfn_file

ROWS: Final = 10_000_000
FILES: Final = 100
RUNS: Final = 9
WARM_UP: Final = 3
"""Runs before those that count: the JVM compiles."""

_TABLE: Final = "bench.orders"
_NO_CATALOG: Final = "http://127.0.0.1:9"


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    runs: int = RUNS
    rows: int = ROWS


Rows = Callable[[], DataFrame]


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of the table.

    Attributes:
        found: of its rows.
        columns: that it needs; empty for all.
        which: the rows that it needs, as a reader by directory is told.
    """

    found: Callable[[DataFrame], object]
    columns: str = ""
    which: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """A way to read that is measured.

    Attributes:
        figure: its name in the record.
        rows: what it reads of a directory for a query, in a session.
        goal: for its time over that of Iceberg's library.
    """

    figure: str
    rows: Callable[[SparkSession, str, Query], DataFrame]
    goal: Goal


def _by_files(spark: SparkSession, directory: str, query: Query) -> DataFrame:
    return read(spark, directory, engine="files", row_filter=query.which or None)


def _by_data_source(spark: SparkSession, directory: str, query: Query) -> DataFrame:
    reader = spark.read.format("sfn")
    return (reader.option("columns", query.columns) if query.columns else reader).load(directory)


ENGINES: Final = (
    Measured("files_engine_vs_jvm", _by_files, Goal("ratio", "<=", 1.1)),
    Measured("data_source_vs_jvm", _by_data_source, Goal("ratio", "<=", 4)),
)

QUERIES: Final[Mapping[str, Query]] = {
    "count": Query(lambda rows: rows.count(), columns="customer"),
    "sum": Query(lambda rows: rows.agg(f.sum("amount")).collect(), columns="amount"),
    "hash": Query(lambda rows: rows.agg(f.bit_xor(f.xxhash64(*rows.columns))).collect()),
    "filter": Query(
        lambda rows: rows.where("region = 'region-3'").agg(f.count("*"), f.sum("id")).collect(),
        columns="id,region",
        which="region = 'region-3'",
    ),
}


def measure(extent: Extent, folder: Path, tell: Callable[[str], None]) -> list[Figure]:
    """Ask each query of each engine and of Iceberg's library in turn, a number of times.

    Each time the table is opened anew, and what was found is compared.
    """
    with _session(folder) as spark:
        directory = _written(spark, folder, extent.rows)
        return [_figure(spark, directory, one, extent, tell) for one in ENGINES]


def _figure(spark: SparkSession, directory: str, one: Measured, extent: Extent, tell: Callable[[str], None]) -> Figure:
    theirs = partial(spark.table, f"lake.{_TABLE}")
    runs: list[dict[str, Run]] = []
    for number in range(WARM_UP + extent.runs):
        tell(f"{one.figure}: run {number + 1}/{WARM_UP + extent.runs}")
        runs.append(
            {
                name: _compared(partial(one.rows, spark, directory, query), theirs, query, number)
                for name, query in QUERIES.items()
            }
        )
    counted = runs[WARM_UP:]
    each = {name: [run[name] for run in counted] for name in QUERIES}
    return Figure(
        name=one.figure,
        unit="s",
        runs=[
            Run(
                geometric_mean([run.value for run in queries.values()]),
                geometric_mean([run.compared or 0 for run in queries.values()]),
            )
            for queries in counted
        ],
        compared_with="Iceberg's own library, with a catalog in a directory",
        goal=one.goal,
        short=extent.rows < ROWS or extent.runs < RUNS,
        note=f"geometric mean of {len(QUERIES)} queries of {extent.rows} rows; "
        + ", ".join(f"{name} {_ratio(found):.2f}" for name, found in each.items()),
    )


def _ratio(runs: list[Run]) -> float:
    return median(run.ratio or 0 for run in runs)


def _compared(ours: Rows, theirs: Rows, query: Query, number: int) -> Run:
    """Seconds of each; which one is first changes from run to run."""
    if number % 2:
        compared, expected = _timed(theirs, query)
        value, found = _timed(ours, query)
    else:
        value, found = _timed(ours, query)
        compared, expected = _timed(theirs, query)
    if found != expected:
        raise Unmeasured(f"the engines do not agree: {found!r}, and by Iceberg's library {expected!r}")
    return Run(value, compared)


def _timed(rows: Rows, query: Query) -> tuple[float, object]:
    begun = time.perf_counter()
    found = query.found(rows())
    return time.perf_counter() - begun, found


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    """Two processors, and a JVM as it is outside of tests."""
    (folder / "spark").mkdir(parents=True)
    told = {
        **spark_settings(folder / "spark", _NO_CATALOG),
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
    }
    del told["spark.sql.catalog.lake.uri"]
    with spark_session(folder / "spark", told) as spark:
        yield spark


def _written(spark: SparkSession, folder: Path, rows: int) -> str:
    """The directory of the table: each of its files has one region, in turn."""
    spark.sql(
        f"CREATE TABLE lake.{_TABLE} (id BIGINT NOT NULL, customer INT, region STRING, amount DOUBLE, "
        "price DECIMAL(12, 2), at TIMESTAMP, day DATE, note STRING) USING iceberg TBLPROPERTIES "
        "('write.parquet.compression-codec' = 'zstd', 'write.distribution-mode' = 'none')"
    )
    # Sums of quarters are the same in whatever order they are added.
    made = spark.range(0, rows, 1, FILES).selectExpr(
        "id",
        "CAST(id * 7919 % 100003 AS INT) AS customer",
        f"'region-' || CAST(id * {FILES} DIV {rows} % 10 AS STRING) AS region",
        "id * 7919 % 400009 / 4.0D AS amount",
        "CAST(id * 104729 % 9999991 / 100 AS DECIMAL(12, 2)) AS price",
        "timestamp_micros(id * 1000003 + 1700000000000000) AS at",
        "date_add(DATE '2026-01-01', CAST(id % 365 AS INT)) AS day",
        "'note ' || CAST(id * 31 % 99991 AS STRING) AS note",
    )
    made.writeTo(f"lake.{_TABLE}").append()
    metadata = folder / "lake" / Path(*_TABLE.split(".")) / "metadata"
    version = (metadata / "version-hint.text").read_text()
    return write_sfn_file(StaticTable.from_metadata(f"file://{metadata}/v{version}.metadata.json"), _TABLE)


if __name__ == "__main__":
    numbers = {"rows": (ROWS, "of the table"), "runs": (RUNS, "paired runs")}
    sys.exit(
        record.ran("tests.bench.spark", numbers, lambda chosen, *rest: measure(Extent(chosen.runs, chosen.rows), *rest))
    )
