"""Files as a DataFrame, read by Spark's own Parquet reader."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

_SETTINGS: Final = {
    "spark.sql.parquet.fieldId.read.enabled": "true",
    # A file without ids is an error, not one of nulls.
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
    # Iceberg counts days and microseconds by the calendar of today, also before it was introduced.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # Times of 96 bits are in UTC, also those that Impala wrote.
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": "false",
    # Rows are never left out in silence.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.streaming.fileStreamSink.metadata.ignored": "false",
}
"""What Spark reads the files of a table with, whatever the caller's session has."""

_TASKS: Final = "spark.sql.files.minPartitionNum"
_OPENING: Final = 4 << 20
"""Bytes that could be read while a file is opened, as Spark has it."""
_LEAST: Final = 16 << 20
"""Bytes of a task, as Iceberg's own library has it."""


class ParquetReader:
    """Reads files with settings of its own, which hold whenever a DataFrame is evaluated.

    Spark looks at the settings when it evaluates, and at those of the session that a file relation was made in. So it
    is made in a copy of the caller's session, which has the settings above; a plan of the caller's own session holds
    it, as it may hold any `BaseRelation`.

    PySpark has no names of its own for these: hence the JVM's objects.

    Args:
        sizes: of the files, in bytes: there are tasks enough for all processors, as Iceberg's own library plans them.
    """

    def __init__(self, spark: SparkSession, sizes: Sequence[int]) -> None:
        self._spark = spark
        self._caller: Any = spark._jsparkSession  # noqa: SLF001 - see above
        self._session = self._caller.cloneSession()
        conf = self._session.conf()
        for name, value in _SETTINGS.items():
            conf.set(name, value)
        if conf.getOption(_TASKS).isEmpty():
            most = max(spark.sparkContext.defaultParallelism, int(conf.get("spark.sql.shuffle.partitions")))
            conf.set(_TASKS, str(max(1, min(most, sum(size + _OPENING for size in sizes) // _LEAST))))

    def rows(self, files: Iterable[tuple[str, int]], schema: StructType) -> DataFrame:
        """The rows of Parquet files.

        Spark is told of the files as of those that a stream has written (`FileStreamSinkLog`): it neither lists nor
        looks for patterns in them, does no request for each, knows them from then on, and takes columns to be nullable
        as the schema says.

        Args:
            files: URI and bytes of each.
            schema: with field ids, see `sfn.spark.files.schema`.
        """
        with TemporaryDirectory(prefix="sfn-") as folder:
            log = Path(folder) / "_spark_metadata" / "0"
            log.parent.mkdir()
            log.write_text("\n".join(["v1", *(_entry(uri, size) for uri, size in files)]))
            reader = self._session.read().schema(self._caller.parseDataType(schema.json()))
            # There are no partitions of Spark's to be found in the paths.
            read = reader.option("recursiveFileLookup", "true").format("parquet").load(f"file:{folder}")
        return DataFrame(self._caller.baseRelationToDataFrame(read.queryExecution().analyzed().relation()), self._spark)


def _entry(uri: str, size: int) -> str:
    return json.dumps(
        {
            "path": uri,
            "size": size,
            "isDir": False,
            "modificationTime": 0,
            "blockReplication": 1,
            "blockSize": max(size, 1),
            "action": "add",
        }
    )
