"""The data source `sfn-log` for PySpark; `pyspark_sfn` explains why it imports so little."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType
from typing_extensions import override

if TYPE_CHECKING:
    from sfn.spark.source_timeline import TimelineLoad


class DefaultSource(DataSource):
    """`spark.read.format("sfn-log")` and `spark.readStream.format("sfn-log")`: see `sfn.spark.source_timeline`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._timeline = _timeline(options)

    @classmethod
    @override
    def name(cls) -> str:
        return "sfn-log"

    @override
    def schema(self) -> StructType:
        from sfn.spark.source_timeline import TIMELINE_SCHEMA
        from sfn.spark.start import forget_archive_finders

        forget_archive_finders()
        return TIMELINE_SCHEMA

    @override
    def reader(self, schema: StructType) -> DataSourceReader:
        from sfn.spark.source_timeline import TimelineReader, check_columns
        from sfn.spark.start import forget_archive_finders

        forget_archive_finders()
        return TimelineReader(self._timeline, check_columns(schema))

    @override
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from sfn.spark.source_timeline import TimelineStream, check_columns

        return TimelineStream(self._timeline, check_columns(schema))


def _timeline(options: dict[str, str]) -> TimelineLoad:
    try:
        from sfn.errors import SfnError
        from sfn.spark.source_timeline import TimelineLoad
    except ImportError as error:
        remedy = "install the extra `spark` there, or set PYSPARK_PYTHON to the Python that has it"
        raise ImportError(f'format("sfn-log") lacks a package in {sys.executable}: {error}; {remedy}') from error
    try:
        return TimelineLoad(options)
    except (SfnError, ValueError) as error:
        # Otherwise Spark prints the whole traceback before the message.
        raise error.with_traceback(None) from None
