"""The engine `sfn`: the data source, with its refusals before Spark is asked."""

from __future__ import annotations

from importlib.util import find_spec

from pyspark.sql import DataFrame, SparkSession

from sfn.spark.asked import Asked
from sfn.spark.pinned import pin
from sfn.spark.source.rows import NAME, SETTLED
from sfn.spark.source.scan import planned
from sfn.spark.source.settled import Settled, settled
from sfn.spark.source.types import spark_schema


class SfnEngine:
    """Reads with PyIceberg in Spark's Python workers: no jar, no catalog, every store that fsspec has a driver for."""

    name: str = NAME

    def why_not(self, spark: SparkSession) -> str:
        if find_spec("pyspark.sql.datasource") is None:
            return f"PySpark 4.0 or newer for Python data sources, not {spark.version}"
        return ""

    def read(self, spark: SparkSession, asked: Asked) -> DataFrame:
        return frame(spark, settled(asked, pin(asked)))


def frame(spark: SparkSession, state: Settled) -> DataFrame:
    """The rows of a settled state.

    Raises:
        NotSupported: the table has what PyIceberg or the data source can't read.
        Unreadable: see `sfn.errors` for its other kinds.
    """
    # Spark's own processes do both again; what they raise comes with pages of traces.
    spark_schema(state.schema, state.location)
    planned(state)
    return spark.read.format(NAME).option(SETTLED, state.text()).load(state.directory)
