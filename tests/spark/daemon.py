"""The daemon of Spark's Python workers, which fork from it with everything imported that they need.

`python -m tests.spark.daemon WORKER` replaces `python -m pyspark.daemon WORKER`.
"""

from __future__ import annotations

from pyspark.daemon import manager

import sfn.spark.change_log
import sfn.spark.engine_sfn  # noqa: F401 - for the workers

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call] # it has no types
