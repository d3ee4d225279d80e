"""A filter that is given to `read`: all engines show the same rows, and `files` opens no file without any of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import sfn
import sfn.spark
from sfn.demo.environment import RestCatalogServer
from sfn.spark.read_table import ENGINES
from tests.spark.tables import publish

TABLE = "filtered.orders"
FILTERS = {
    "id = 2": [2],
    "id != 2": [1, 3, 4],
    "id > 1 and id <= 3": [2, 3],
    "id < 2 or id >= 4": [1, 4],
    "not (id = 1)": [2, 3, 4],
    "id > 1.5 and id < 2.5": [2],
    "place.town is null": [3, 4],
    "id in (1, 4)": [1, 4],
    "id not in (1, 4)": [2, 3],
    "day = '2026-11-02'": [2],
    "item is null": [4],
    "item is not null": [1, 2, 3],
    "item like 'ap%'": [1, 3],
    "item not like 'ap%'": [2],
    "price is nan": [3],
    "price is not nan": [1, 2],
    "place.town = 'Ulm'": [2],
    '"a b" = 3': [3],
    "true": [1, 2, 3, 4],
    "false": [],
}


@pytest.fixture(autouse=True, scope="module")
def fixture_namespace(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE lake.filtered")


@pytest.fixture(name="directory", scope="module")
def fixture_directory(spark: SparkSession, catalog: RestCatalogServer) -> str:
    """A table with a file for each of four rows."""
    name = f"lake.{TABLE}"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, day DATE, item STRING, price DOUBLE, place STRUCT<town: STRING>, `a b` INT) "
        "USING iceberg"
    )
    for row in (
        "(1, DATE '2026-11-01', 'apple', 1.5D, named_struct('town', 'Bonn'), 1)",
        "(2, DATE '2026-11-02', 'pear', 2D, named_struct('town', 'Ulm'), 2)",
        "(3, DATE '2026-11-03', 'apricot', double('NaN'), NULL, 3)",
        "(4, NULL, NULL, NULL, NULL, NULL)",
    ):
        spark.sql(f"INSERT INTO {name} VALUES {row}")
    with catalog.client() as client:
        return publish(client, TABLE)


@pytest.mark.parametrize("row_filter", FILTERS)
def test_the_rows_are_those_that_it_holds_for(spark: SparkSession, directory: str, row_filter: str) -> None:
    found = {}
    for engine in ENGINES[:2]:
        rows = sfn.spark.read(spark, directory, engine=engine.name, row_filter=row_filter)
        found[engine.name] = sorted(row.id for row in rows.collect())
    assert found == dict.fromkeys(found, FILTERS[row_filter])


def test_what_is_no_number_is_greater_than_any_to_spark(spark: SparkSession, directory: str) -> None:
    """Iceberg's own library rules such a file out by its bounds, which know of none."""
    rows = sfn.spark.read(spark, directory, engine="files", row_filter="price > 1.75")
    assert sorted(row.id for row in rows.collect()) == [2, 3]


def test_the_data_source_takes_it_too(spark: SparkSession, directory: str) -> None:
    rows = sfn.spark.read(spark, directory, engine="sfn", row_filter="id > 1 and item like 'ap%'")
    assert [row.id for row in rows.collect()] == [3]


def test_files_without_such_rows_are_not_opened(spark: SparkSession, catalog: RestCatalogServer) -> None:
    spark.sql("CREATE TABLE lake.filtered.gone (id BIGINT) USING iceberg")
    for number in (1, 2):
        spark.sql(f"INSERT INTO lake.filtered.gone VALUES ({number})")
    with catalog.client() as client:
        directory = publish(client, "filtered.gone")
    first = min(Path(directory).rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    first.unlink()
    rows = sfn.spark.read(spark, directory, engine="files", row_filter="id = 2")
    assert [row.id for row in rows.collect()] == [2]


@pytest.mark.parametrize("row_filter", ["id = 'a'", "id in (1, true)", "amount < true"])
def test_a_number_is_compared_with_numbers(spark: SparkSession, numbers: str, row_filter: str) -> None:
    with pytest.raises(ValueError, match="row_filter"):
        sfn.spark.read(spark, numbers, engine="files", row_filter=row_filter)


@pytest.fixture(name="numbers", scope="module")
def fixture_numbers(spark: SparkSession, catalog: RestCatalogServer) -> str:
    """A table of numbers that have more digits than a double."""
    spark.sql(
        "CREATE TABLE lake.filtered.numbers (id BIGINT, amount DECIMAL(38, 2), share DECIMAL(20, 19)) USING iceberg"
    )
    for row in (
        "(1, 12345678901234567890.12BD, 0.1234567890123456789BD)",
        "(2, 12345678901234567890.11BD, 0.1234567890123456788BD)",
        "(9007199254740993, 999999999999999999999999999999999999.99BD, -9BD)",
        "(9007199254740994, -0.01BD, NULL)",
    ):
        spark.sql(f"INSERT INTO lake.filtered.numbers VALUES {row}")
    with catalog.client() as client:
        return publish(client, "filtered.numbers")


LARGE = 9007199254740993
NUMBERS = {
    "amount = 12345678901234567890.12": [1],
    "amount = '12345678901234567890.12'": [1],
    "amount > 12345678901234567890.11": [1, LARGE],
    "amount <= 12345678901234567890.11": [2, LARGE + 1],
    "amount > 12345678901234567890.115": [1, LARGE],
    "amount in (12345678901234567890.12, 1, 1.555)": [1],
    "amount not in (12345678901234567890.12, -1e-2)": [2, LARGE],
    "amount between 12345678901234567890.105 and 12345678901234567890.12": [1, 2],
    # Spark alone would cast both to a type that has no room for the third.
    "amount > 0.000000000000000000000000000001": [1, 2, LARGE],
    "amount < 1.000001": [LARGE + 1],
    "amount > 1e36 or amount = 0.001": [],
    "not (amount >= 1e99)": [1, 2, LARGE, LARGE + 1],
    "share = 0.1234567890123456789": [1],
    "share < 0.12345678901234567885": [2, LARGE],
    "share < 12345678901234567890.12": [1, 2, LARGE],
    f"id > {LARGE}.5": [LARGE + 1],
    f"id = {LARGE}.0": [LARGE],
    "id = 1.0000000000000000000000000000000000000000001": [],
    "id < 9.007199254740993E15": [1, 2],
}


@pytest.mark.parametrize("row_filter", NUMBERS)
def test_numbers_are_compared_by_all_of_their_digits(spark: SparkSession, numbers: str, row_filter: str) -> None:
    found = {}
    for engine in ENGINES:
        rows = sfn.spark.read(spark, numbers, engine=engine.name, row_filter=row_filter)
        found[engine.name] = sorted(row.id for row in rows.collect())
    assert found == dict.fromkeys(found, NUMBERS[row_filter])
    assert sorted(sfn.read(numbers, row_filter=row_filter)["id"].to_pylist()) == NUMBERS[row_filter]


@pytest.mark.parametrize("row_filter", ["id >", "nope = 1", "place.nope = 1"])
def test_one_that_does_not_fit_is_quoted(spark: SparkSession, directory: str, row_filter: str) -> None:
    with pytest.raises(ValueError, match="row_filter"):
        sfn.spark.read(spark, directory, engine="files", row_filter=row_filter)


def test_like_in_an_or_reads_rows_of_a_partition_that_is_null(spark: SparkSession, catalog: RestCatalogServer) -> None:
    """Version 1.11 of Iceberg's own library fails: docs/spark/reading.md says so."""
    name = "filtered.by_item"
    spark.sql(f"CREATE TABLE lake.{name} (id BIGINT, item STRING) USING iceberg PARTITIONED BY (item)")
    spark.sql(f"INSERT INTO lake.{name} VALUES (1, 'apple'), (2, 'pear'), (3, NULL), (4, NULL)")
    with catalog.client() as client:
        directory = publish(client, name)
    row_filter = "item like 'ap%' or id = 3"
    for engine in ("files", "sfn"):
        rows = sfn.spark.read(spark, directory, engine=engine, row_filter=row_filter)
        assert sorted(row.id for row in rows.collect()) == [1, 3], engine
    with pytest.raises(Py4JJavaError, match=r"ResidualVisitor\.startsWith"):
        sfn.spark.read(spark, directory, engine="iceberg", row_filter=row_filter).collect()
