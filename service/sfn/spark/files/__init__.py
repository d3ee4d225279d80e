"""The engine `files`: PyIceberg plans, and Spark's own Parquet reader reads. It needs no jar."""

from __future__ import annotations

from sfn.spark.files.engine import Files

__all__ = ["Files"]
