"""Files as a DataFrame, read by Spark's own Parquet reader."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

_SETTINGS: Final = {
    "spark.sql.parquet.fieldId.read.enabled": "true",
    # A file without ids is an error, not one of nulls.
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
    # Iceberg counts days and microseconds by the calendar of today, also before it was introduced.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": "false",
    # Rows are never left out in silence.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.streaming.fileStreamSink.metadata.ignored": "false",
}
"""What Spark reads the files of a table with, whatever the caller's session has."""


class Reader:
    """Reads files with settings of its own, which hold for as long as a DataFrame is evaluated.

    Spark looks at the settings when it evaluates, and at those of the session that a file relation was made in. So it
    is made in a new one, which has the caller's settings of now and the ones above; a plan of the caller's own session
    holds it, as it may hold any `BaseRelation`.

    PySpark has no name of its own for that: hence its JVM objects.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._session = spark.newSession()
        conf = self._session.conf
        for name, value in {**spark.conf.getAll, **_SETTINGS}.items():
            if conf.isModifiable(name):
                conf.set(name, value)

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
            # There are no partitions of Spark's to be found in the paths.
            reader = self._session.read.schema(schema).option("recursiveFileLookup", "true")
            read = reader.parquet(Path(folder).as_uri())
            relation = read._jdf.queryExecution().analyzed().relation()  # noqa: SLF001 - see above
        return DataFrame(self._spark._jsparkSession.baseRelationToDataFrame(relation), self._spark)  # noqa: SLF001 - see above


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
