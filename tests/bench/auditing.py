"""One audit in a process of its own, `python -m tests.bench.auditing CONFIGURATION REPORT FOLDER`: what it took."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import psutil

from sfn.audit.spark_job import AuditRequest, run_audit
from sfn.audit.storage import parse_report_location
from sfn.settings import load
from tests.spark.session import spark_session, spark_settings

SLICES = 32
NO_CATALOG = "http://127.0.0.1:1"


def main(configuration: Path, report: str, folder: Path) -> None:
    """Audit all catalogs on two processors; print seconds, tables, how many were unchanged, and memory in bytes."""
    folder.mkdir(parents=True)
    known = load(configuration, {})
    order = AuditRequest(known, tuple(known.catalogs), parse_report_location(report, known, {}), SLICES, None, 60.0)
    # A JVM as it is outside of tests.
    told = {**spark_settings(folder, NO_CATALOG), "spark.driver.extraJavaOptions": "-Duser.timezone=UTC"}
    with spark_session(folder, told) as spark:
        spark.range(2).collect()
        driver, most = psutil.Process(), 0

        def moved(_done: int, _total: int) -> None:
            nonlocal most
            most = max(most, driver.memory_info().rss)

        began = time.perf_counter()
        found = run_audit(spark, order, None, moved)
        took = time.perf_counter() - began
    said = {"seconds": took, "tables": sum(found.states.values()), "unchanged": found.unchanged, "rss": most}
    print(json.dumps({**said, "states": found.states, "failed": found.failed, "went_on": found.resumed_slices}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
