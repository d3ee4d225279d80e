"""Batches of seeds, each compared in a process that has a Spark of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pyspark.sql import SparkSession

from tests.spark.differential.comparison import Report, compared
from tests.spark.running import running, settings
from tests.spark.telling import told

QUICK: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Small tables are read sooner than code for them is compiled."""
_OWN: Final = {
    # There is one process per processor.
    "spark.master": "local[1]",
    "spark.sql.shuffle.partitions": "1",
    # Spark keeps the plans of the last 1,000 queries, and each query here has the plans of six reads.
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_MOST: Final = 500
"""Tables per session, so that the memory of a session is bounded."""
_LAST_LINES: Final = 15
"""Lines of Spark's log that are printed after the JVM ended."""


@contextmanager
def session() -> Iterator[tuple[SparkSession, Path]]:
    """Start a session that reads small tables fast, and make a folder for the tables."""
    with TemporaryDirectory(prefix="sfn-differential-") as made:
        folder = Path(made)
        chosen = {**settings(folder, "http://127.0.0.1:1"), **_OWN}
        with running(folder, chosen) as spark, told(spark, QUICK):
            yield spark, folder


def in_batches(
    seeds: Sequence[int],
    processes: int,
    add: Callable[[Report], None],
    compare: Callable[[Sequence[int], Connection], None] | None = None,
) -> None:
    """Compare the tables of some seeds.

    Args:
        processes: how many run at the same time.
        add: gets each report, from several threads.
        compare: runs in each process, and sends what `_compare` sends.

    Raises:
        RuntimeError: Spark does not start.
    """
    size = min(_MOST, -(-len(seeds) // processes))
    batches = [seeds[start : start + size] for start in range(0, len(seeds), size)]
    with ThreadPoolExecutor(processes) as pool:
        for done in [pool.submit(_batch, batch, add, compare or _compare) for batch in batches]:
            done.result()


def _batch(
    seeds: Sequence[int], add: Callable[[Report], None], compare: Callable[[Sequence[int], Connection], None]
) -> None:
    """Compare the tables of a batch in one process, and in another one after a seed that ended the process."""
    context = get_context("spawn")
    while seeds:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=compare, args=(seeds, there))
        process.start()
        there.close()
        is_started = False
        with here, suppress(EOFError):
            is_started = here.recv()
            while seeds:
                add(here.recv())
                seeds = seeds[1:]
        process.join()
        if not is_started:
            raise RuntimeError(f"Spark does not start: exit code {process.exitcode}, see above")
        if seeds:
            add(Report(seeds[0], bad=[f"this seed ended the process: exit code {process.exitcode}, see above"]))
            seeds = seeds[1:]


def _compare(seeds: Sequence[int], reports: Connection) -> None:
    """Send True once the session is there, then the report of each seed."""
    with session() as (spark, folder):
        reports.send(True)
        for seed in seeds:
            reports.send(_compared(spark, folder, seed))


def _compared(spark: SparkSession, folder: Path, seed: int) -> Report:
    try:
        return compared(spark, folder, seed)
    except Exception as error:  # noqa: BLE001 - Java's, of what the generator tried
        jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no name of its own for it
        try:
            jvm.java.lang.System.nanoTime()
        except Exception:  # noqa: BLE001 - whatever PySpark raises without a JVM
            last = (folder / "spark.log").read_text(errors="replace").splitlines()[-_LAST_LINES:]
            print(f"the JVM ended at seed {seed}:", *last, sep="\n", flush=True)
            raise error from None
        return Report(seed, bad=[f"could not be compared: {type(error).__name__}: {error}"])
