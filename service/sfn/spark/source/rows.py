"""The rows of a table by its directory: what stands behind `spark.read.format("sfn")`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from sfn.spark.finders import forget_archive_finders
from sfn.spark.pinned import pin_table
from sfn.spark.source.options import SourceOptions
from sfn.spark.source.settled import PinnedScan, pin_scan
from sfn.spark.source.types import select_columns, spark_schema

SFN_SOURCE: Final = "sfn"
PINNED_OPTION: Final = "settledtoken"
"""The option by which this package's own engine names a state that it settled itself; nobody else has one. It may hold
credentials of a store: Spark shows no option that is called a token."""

_KNOWN: Final = ("ref", "asOf", "columns", "filterPushdown")


class SfnLoad:
    """One `load`. The state is settled as it is made; what goes to other processes says which it is.

    Args:
        given: options as Spark gives them.

    Raises:
        Unreadable: see `sfn.errors` for its kinds.
        ValueError: an option is not known, or has no such form.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        options = SourceOptions(
            {name: value for name, value in given.items() if name != PINNED_OPTION}, _KNOWN, SFN_SOURCE
        )
        self._is_pushed = options.flag("filterPushdown", default=True)
        if (text := given.get(PINNED_OPTION)) is None:
            request = options.request
            text = pin_scan(request, pin_table(request)).text()
        # What Spark pickles between its processes: PyIceberg's own objects are larger.
        self._text = text
        self._names = options.names("columns") if options.get("columns") is not None else None

    def schema(self) -> StructType:
        """The columns.

        Raises:
            NotSupported: one has a type that is not read.
            ValueError: `columns` names one that there is not.
        """
        forget_archive_finders()
        scan = PinnedScan.of(self._text)
        return spark_schema(select_columns(scan.schema, self._names), scan.location)

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads the columns of a schema."""
        # It needs a second more of imports than a schema.
        from sfn.spark.source.reader import SfnDataSourceReader

        forget_archive_finders()
        return SfnDataSourceReader(PinnedScan.of(self._text), schema, is_pushed=self._is_pushed)
