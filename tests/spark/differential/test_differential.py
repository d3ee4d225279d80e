"""Sixty odd tables, in each run the same ones: `make fuzz-readers` makes others, and more."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.differential.comparison import INTERPRETED, Report, compare_in_batches, compare_table
from tests.spark.differential.tables import REFERENCES, reference_of
from tests.spark.session import changed_settings

TABLES = 60
_FATAL, _EXIT = 1, 7


@pytest.fixture(name="interpreted", scope="module")
def fixture_interpreted(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, which compiles nothing meanwhile."""
    with changed_settings(spark, INTERPRETED):
        yield spark


@pytest.mark.parametrize("seed", range(TABLES))
def test_every_reader_reads_an_odd_table_as_icebergs_own_library_does(
    interpreted: SparkSession, tmp_path: Path, seed: int
) -> None:
    report = compare_table(interpreted, tmp_path, seed, on_spark=1)
    assert not report.bad, "\n".join([*report.trace, *report.bad])


def test_each_wrong_reference_is_drawn() -> None:
    assert {reference_of(seed) for seed in range(TABLES)} == {"", *REFERENCES}


def test_a_seed_that_ends_its_process_is_reported_and_the_run_continues() -> None:
    reports: list[Report] = []
    compare_in_batches(range(_FATAL + 2), 1, reports.append, _fatal)
    assert [report.seed for report in reports] == [*range(_FATAL + 2)]
    (bad,) = [report for report in reports if report.bad]
    assert bad.seed == _FATAL
    assert f"exit code {_EXIT}" in bad.bad[0]


def _fatal(seeds: Sequence[int], reports: Connection) -> None:
    """Compare nothing, and end at one of the seeds."""
    reports.send(True)
    for seed in seeds:
        if seed == _FATAL:
            os._exit(_EXIT)
        reports.send(Report(seed))
