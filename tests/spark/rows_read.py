"""What Spark's Python processes would get of the data source `sfn`, without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import Filter

from sfn.spark.engine_sfn import PartitionFiles, SfnLoad


def rows_read(directory: str, filters: Sequence[Filter] = (), **options: str) -> list[dict[str, Any]]:
    """The rows.

    Args:
        filters: as Spark offers them where its session has that on.
        options: as of `spark.read.options`.
    """
    rows = SfnLoad({"path": directory, **options})
    reader = rows.reader(rows.schema())
    if filters:
        # They are taken, and left to Spark all the same.
        assert reader.pushFilters(list(filters)) == filters
    found = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [row for batch in found if isinstance(batch, pa.RecordBatch) for row in batch.to_pylist()]


def partitions(directory: str, **options: str) -> list[int]:
    """How many files each of Spark's tasks would read."""
    rows = SfnLoad({"path": directory, **options})
    reader = rows.reader(rows.schema())
    return [len(one.tasks) for one in reader.partitions() if isinstance(one, PartitionFiles)]
