"""The engine `sfn`: the data source, with its refusals before Spark is asked."""

from __future__ import annotations

from importlib.util import find_spec

from pyspark.sql import DataFrame, SparkSession

from sfn.spark.asked import ReadRequest
from sfn.spark.pinned import pin_table
from sfn.spark.source.rows import PINNED_OPTION, SFN_SOURCE
from sfn.spark.source.scan import plan_scan
from sfn.spark.source.settled import PinnedScan, pin_scan
from sfn.spark.source.types import spark_schema


class SfnEngine:
    """Reads with PyIceberg in Spark's Python workers: no jar, no catalog, every store that fsspec has a driver for."""

    name: str = SFN_SOURCE

    def missing_requirement(self, spark: SparkSession) -> str:
        if find_spec("pyspark.sql.datasource") is None:
            return f"PySpark 4.0 or newer for Python data sources, not {spark.version}"
        return ""

    def read(self, spark: SparkSession, request: ReadRequest) -> DataFrame:
        return to_dataframe(spark, pin_scan(request, pin_table(request)))


def to_dataframe(spark: SparkSession, scan: PinnedScan) -> DataFrame:
    """The rows of a settled state.

    Raises:
        NotSupported: the table has what PyIceberg or the data source can't read.
        Unreadable: see `sfn.errors` for its other kinds.
    """
    # Spark's own processes do both again; what they raise comes with pages of traces.
    spark_schema(scan.schema, scan.location)
    plan_scan(scan)
    return spark.read.format(SFN_SOURCE).option(PINNED_OPTION, scan.text()).load(scan.directory)
