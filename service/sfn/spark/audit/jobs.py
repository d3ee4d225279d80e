"""The slices of a run as jobs of Spark's, and what Spark says of one that fails."""

from __future__ import annotations

import pickle
import time
from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Final

from pyspark import RDD
from pyspark.sql import Row, SparkSession

from sfn.report.runs import RunProgress
from sfn.spark.audit.outcome import SliceOutcome
from sfn.spark.audit.sparing import collect_partition

_APART, _FURTHEST = 1.0, 60.0
"""Seconds at least, and at most, from the end of a commit to the next one."""
_PAUSES: Final = 10
"""Times as long as a commit took that the next one waits."""
_SHOWN: Final = 500


def run_slices(spark: SparkSession, shared_out: RDD[Row], run: RunProgress, wide: int) -> Generator[list[SliceOutcome]]:
    """What slices come to, some at a time: so many as come while the last ones are seen to, and for a while after.

    Args:
        shared_out: the outcome of each, to be had by itself.
        run: of which those are left out that are done, also when another process has done them meanwhile.
        wide: how many jobs run at a time.
    """
    context, name = spark.sparkContext, run.run.name

    def one(number: int) -> SliceOutcome | None:
        if number in run.done:
            return None
        context.addJobTag(name)
        context.setJobDescription(f"sfn audit {name}: slice {number}")
        try:
            (row,) = context.runJob(shared_out, collect_partition, [number])
            outcome: SliceOutcome = pickle.loads(row.outcome)  # noqa: S301 - of our own processes
        except Exception as error:  # noqa: BLE001 - whatever Spark raises: the other slices go on
            return SliceOutcome(number, error=spark_error_text(error))
        return outcome

    threads = ThreadPoolExecutor(wide, "sfn-audit")
    left = [number for number in range(run.run.slices) if number not in run.done]
    waiting: set[Future[SliceOutcome | None]] = {threads.submit(one, number) for number in left}
    next_at = 0.0
    try:
        while waiting:
            wait(waiting, return_when=FIRST_COMPLETED)
            # A commit takes as long whether it is of one slice or of many: no more than a tenth of the time goes there.
            done, waiting = wait(waiting, timeout=max(0.0, next_at - time.monotonic()))
            began = time.monotonic()
            yield [outcome for future in done if (outcome := future.result()) is not None]
            ended = time.monotonic()
            next_at = ended + min(max(_APART, _PAUSES * (ended - began)), _FURTHEST)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        if waiting:
            context.cancelJobsWithTag(name)
        threads.shutdown()


def spark_error_text(error: Exception) -> str:
    """What Spark says, without the stacks: of those of Python the last line, which is the error."""
    lines = []
    for line in str(error).splitlines():
        if line.strip().startswith(("at ", "JVM stacktrace")):
            break
        lines += [line.strip().removeprefix(": ")] if line.strip() else []
    return f"{type(error).__name__}: {lines[-1] if lines else 'no reason'}"[:_SHOWN]
