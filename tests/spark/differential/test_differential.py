"""Thirty odd tables, in each run the same ones: `make fuzz-readers` makes others, and more."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.differential.comparison import compare_table
from tests.spark.differential.tables import REFERENCES, reference_of

TABLES = 30


@pytest.mark.parametrize("seed", range(TABLES))
def test_every_reader_reads_an_odd_table_as_icebergs_own_library_does(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    report = compare_table(spark, tmp_path, seed, on_spark=1)
    assert not report.bad, "\n".join([*report.trace, *report.bad])


def test_each_wrong_reference_is_drawn() -> None:
    assert {reference_of(seed) for seed in range(TABLES)} == {"", *REFERENCES}
