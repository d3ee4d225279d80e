"""Sixty odd tables, in each run the same ones: `make fuzz-readers` makes others, and more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.differential.batches import QUICK
from tests.spark.differential.comparison import compared
from tests.spark.telling import told

TABLES = 60


@pytest.fixture(name="quick", scope="module")
def fixture_quick(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, which compiles nothing meanwhile."""
    with told(spark, QUICK):
        yield spark


@pytest.mark.parametrize("seed", range(TABLES))
def test_every_reader_reads_an_odd_table_as_icebergs_own_library_does(
    quick: SparkSession, tmp_path: Path, seed: int
) -> None:
    report = compared(quick, tmp_path, seed, on_spark=1)
    assert not report.bad, "\n".join([*report.trace, *report.bad])
