"""What one of Spark's Python processes is spared from task to task: together 0.2 s, as long as 500 tables take."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from functools import cache
from zipimport import zipimporter

from pyspark.sql import Row


def spare() -> None:
    """Have what is only there to be imported not be looked through again before and after every task."""
    _leave_imported()
    # Spark invalidates Python's caches of what there is to import, and Python 3.11 reads its archives anew for each
    # package in them. One that is not remembered is opened again when it is needed.
    remembered = sys.path_importer_cache
    for path in [path for path, finder in remembered.items() if isinstance(finder, zipimporter)]:
        del remembered[path]


def rows(partition: Iterable[Row]) -> list[Row]:
    """All of a partition, in the process that hands it to the driver."""
    spare()
    return list(partition)


@cache
def _leave_imported() -> None:
    # Spark collects garbage after every task.
    gc.freeze()
