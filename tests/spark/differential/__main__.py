"""Make N odd tables, read them in every way, and compare.

`python -m tests.spark.differential [N] [--from SEED] [--processes P] [--show SEED] [--steps K]`
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.spark.differential.batches import Report, compare_in_batches
from tests.spark.differential.comparison import compare_seeds, compare_table, spark_for_small_tables


def main() -> int:
    """Compare the tables. Return 1 if there is a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="?", type=int, default=200)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="each has a Spark of its own")
    parser.add_argument("--show", type=int, help="make one seed's table, and print all that happened")
    parser.add_argument("--steps", type=int, help="with --show: make only so many steps, to find the one that matters")
    chosen = parser.parse_args()
    if chosen.show is None:
        return _many(range(chosen.first, chosen.first + chosen.tables), chosen.processes)
    with spark_for_small_tables() as (spark, folder):
        report = compare_table(spark, folder, chosen.show, chosen.steps)
    print(*report.trace, *report.bad, sep="\n")
    return bool(report.bad)


def _many(seeds: Sequence[int], processes: int) -> int:
    began = time.perf_counter()
    reports: list[Report] = []

    def add(report: Report) -> None:
        reports.append(report)
        if report.counts["oracle failed"]:
            failed = next(one for one in report.trace if one.startswith("oracle: "))
            print(f"--show {report.seed}: {failed[:300]}", flush=True)
        for difference in report.bad[:1]:
            print(f"--show {report.seed}: {difference[:2000]}", flush=True)
        if len(reports) % 100 == 0:
            print(f"{len(reports)} of {len(seeds)}, {_bad(reports)}", file=sys.stderr, flush=True)

    compare_in_batches(seeds, processes, add, compare_seeds)
    counts = sum((report.counts for report in reports), Counter[str]())
    print(f"{len(reports)} tables in {time.perf_counter() - began:.0f} s: {_bad(reports)}")
    print(", ".join(f"{what} {count}" for what, count in sorted(counts.items())))
    return any(report.bad for report in reports)


def _bad(reports: Sequence[Report]) -> str:
    return f"{sum(bool(one.bad) for one in reports)} bad"


if __name__ == "__main__":
    sys.exit(main())
