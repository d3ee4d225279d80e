"""The port to what reads a table's rows into a DataFrame."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from sfn.spark.asked import ReadRequest


class Engine(Protocol):
    """One way to read. All of them give the same rows, names and types, or refuse.

    The types are those of Iceberg's own library on Spark: `uuid` is a string, `time` a refusal, columns are nullable
    as the table's schema says. Column comments are no part of the promise.
    """

    @property
    def name(self) -> str:
        """What callers choose it by."""
        ...

    def missing_requirement(self, spark: SparkSession) -> str:
        """What the session lacks for it, for people; empty where it can be used."""
        ...

    def read(self, spark: SparkSession, request: ReadRequest) -> DataFrame:
        """The rows; which they are is settled now, and read when the DataFrame is.

        Raises:
            NotSupported: the table has what this engine can't read; the remedy names engines that can.
            Unreadable: see `sfn.errors` for its other kinds.
        """
        ...
