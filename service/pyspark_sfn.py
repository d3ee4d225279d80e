"""The data source `sfn` for PySpark.

PySpark imports every top-level module called `pyspark_…` for its `DefaultSource`, for any Python data source. So this
module imports only PySpark itself at first: a missing package must not disturb users of other data sources.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType
from typing_extensions import override

if TYPE_CHECKING:
    from sfn.spark.engine_sfn import SfnLoad


class DefaultSource(DataSource):
    """`spark.read.format("sfn").load(directory)`: see `sfn.spark.engine_sfn`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._rows = _rows(options)

    @classmethod
    @override
    def name(cls) -> str:
        return "sfn"

    @override
    def schema(self) -> StructType:
        return self._rows.schema()

    @override
    def reader(self, schema: StructType) -> DataSourceReader:
        return self._rows.reader(schema)


def _rows(options: dict[str, str]) -> SfnLoad:
    try:
        from sfn.errors import SfnError
        from sfn.spark.engine_sfn import SfnLoad
    except ImportError as error:
        remedy = "install the extra `spark` there, or set PYSPARK_PYTHON to the Python that has it"
        raise ImportError(f'format("sfn") lacks a package in {sys.executable}: {error}; {remedy}') from error
    try:
        return SfnLoad(options)
    except (SfnError, ValueError) as error:
        # Otherwise Spark prints the whole traceback before the message.
        raise error.with_traceback(None) from None
