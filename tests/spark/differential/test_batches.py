"""A process that ends at a seed ends no run. This module imports nothing of Spark's, as such a process imports it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing.connection import Connection

from tests.spark.differential.batches import Report, compare_in_batches

_FATAL, _EXIT = 1, 7


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
