"""A table's timeline as rows: what stands behind `format("sfn-log")`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeAlias

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from sfn.errors import suggest_name
from sfn.reader.api import history
from sfn.reader.history import HistoryEntry
from sfn.reader.lookup import MAX_LISTED
from sfn.sfnfile.document import parse_ordinal, render_ordinal
from sfn.spark.asked import ReadRequest
from sfn.spark.source.options import SourceOptions

TIMELINE_SOURCE: Final = "sfn-log"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"

TIMELINE_SCHEMA: Final = StructType(
    [
        StructField("ordinal", StringType(), nullable=False),
        StructField("committed_at", TimestampType(), nullable=False),
        StructField("metadata_location", StringType(), nullable=False),
        StructField("snapshot_id", LongType()),
        StructField("gap", LongType(), nullable=False),
        StructField("written_at", TimestampType()),
        StructField("state", StringType(), nullable=False),
        StructField("source", StringType(), nullable=False),
    ]
)
"""`ordinal` is `YYYYMMDDTHHMMSSmmm`, and `committed_at` the same as a time; the others are as of `sfn.Entry`."""

TimelineRow: TypeAlias = tuple[str | int | datetime | None, ...]

_KNOWN: Final = ("startingOrdinal", "failOnDataLoss")


class TimelineLoad:
    """One `load`.

    Args:
        given: options as Spark gives them.

    Attributes:
        start: an Ordinal, in Unix milliseconds, or `earliest` or `latest`; None where nothing was said.
        is_strict: refuse to go on where commits may have been removed that were not read.

    Raises:
        ValueError: an option is not known, or has no such form.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        options = SourceOptions(given, _KNOWN, TIMELINE_SOURCE)
        self._request = options.request
        self.start = _start(options.get("startingOrdinal"))
        self.is_strict = options.flag("failOnDataLoss", default=True)

    @property
    def request(self) -> ReadRequest:
        """Of which table."""
        return self._request

    def newest(self, limit: int = MAX_LISTED) -> list[HistoryEntry]:
        """The newest commits, the oldest of them first.

        Raises:
            Unreadable: see `sfn.errors` for its kinds.
        """
        request = self._request
        return history(
            request.directory,
            request.table,
            request.uuid,
            limit=limit,
            allowed=request.allowed,
            storage_options=request.options,
        )


def to_timeline_row(entry: HistoryEntry, names: tuple[str, ...]) -> TimelineRow:
    """A commit as a row of some columns."""
    row: dict[str, str | int | datetime | None] = {
        "ordinal": render_ordinal(entry.ordinal),
        "committed_at": entry.at,
        "metadata_location": entry.metadata_location,
        "snapshot_id": entry.snapshot_id,
        "gap": entry.gap,
        "written_at": entry.written_at,
        "state": entry.state.value,
        "source": entry.source.value,
    }
    return tuple(row[name] for name in names)


def check_columns(schema: StructType) -> tuple[str, ...]:
    """The columns of a schema.

    Raises:
        ValueError: one is none of the timeline's, or of another type.
    """
    own = {field.name: field.dataType for field in TIMELINE_SCHEMA}
    for field in schema:
        if field.name not in own:
            raise ValueError(
                f"a column of {TIMELINE_SOURCE}: {field.name!r} is none; {suggest_name(field.name, list(own))}"
            )
        if field.dataType != own[field.name]:
            types = f"{own[field.name].simpleString()}, not {field.dataType.simpleString()}"
            raise ValueError(f"a schema that only chooses columns: {field.name} is of type {types}")
    return tuple(schema.names)


def _start(text: str | None) -> int | str | None:
    if text is None or text.lower() in {EARLIEST, LATEST}:
        return text and text.lower()
    return parse_ordinal(text)
