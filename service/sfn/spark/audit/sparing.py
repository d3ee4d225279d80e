"""What one of Spark's Python processes is spared from task to task: together 0.2 s, as long as 500 tables take."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from functools import cache

from pyspark.sql import Row

from sfn.spark.finders import forget_archive_finders


def warm_up_process() -> None:
    """Have what is only there to be imported not be looked through again before and after every task."""
    forget_archive_finders()
    _leave_imported()


def collect_partition(partition: Iterable[Row]) -> list[Row]:
    """All of a partition, in the process that hands it to the driver."""
    warm_up_process()
    return list(partition)


@cache
def _leave_imported() -> None:
    # Spark collects garbage after every task.
    gc.freeze()
