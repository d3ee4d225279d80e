"""`python -m tests.spark.differential [N] [--from SEED] [--show SEED] [--steps K]`: N odd tables, read and compared."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from tests.spark.differential.comparison import Report, compared
from tests.spark.running import running, settings
from tests.spark.telling import told

QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Small tables are read sooner than code for them is compiled."""


def main() -> int:
    """Compare them; 1 when anything was different."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="?", type=int, default=200)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--show", type=int, help="make one seed's table, and print all that happened")
    parser.add_argument("--steps", type=int, help="with --show: make only so many steps, to find the one that matters")
    chosen = parser.parse_args()
    with TemporaryDirectory(prefix="sfn-differential-") as folder:
        place = Path(folder)
        with running(place, settings(place, "http://127.0.0.1:1")) as spark, told(spark, QUICK):
            if chosen.show is not None:
                report = compared(spark, place, chosen.show, chosen.steps)
                print(*report.trace, *report.bad, sep="\n")
                return bool(report.bad)
            return _many(spark, place, range(chosen.first, chosen.first + chosen.tables))


def _many(spark: SparkSession, folder: Path, seeds: range) -> int:
    began = time.perf_counter()
    reports: list[Report] = []
    for seed in seeds:
        report = compared(spark, folder, seed)
        reports.append(report)
        if report.counts["oracle failed"]:
            print(f"--show {seed}: {report.trace[-1][:300]}", flush=True)
        for difference in report.bad[:1]:
            print(f"--show {seed}: {difference[:400]}", flush=True)
        if len(reports) % 100 == 0:
            bad = sum(bool(one.bad) for one in reports)
            print(f"{len(reports)} of {len(seeds)}, {bad} bad", file=sys.stderr, flush=True)
    counts: Counter[str] = Counter()
    for report in reports:
        counts += report.counts
    bad = sum(bool(one.bad) for one in reports)
    print(f"{len(reports)} tables in {time.perf_counter() - began:.0f} s: {bad} bad")
    print(", ".join(f"{what} {count}" for what, count in sorted(counts.items())))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
