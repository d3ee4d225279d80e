"""A table's timeline as rows: the data source `sfn-log`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType
from typing_extensions import override

from sfn.errors import CommitNotFound, suggest_name
from sfn.reader.api import history
from sfn.reader.history import CommitSource, HistoryEntry
from sfn.reader.lookup import MAX_LISTED
from sfn.sfnfile.document import parse_ordinal, render_ordinal
from sfn.spark.request import ReadRequest
from sfn.spark.source_options import SourceOptions
from sfn.spark.start import forget_archive_finders

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
"""`ordinal` is `YYYYMMDDTHHMMSSmmm`, `committed_at` the same time; for the other columns see `HistoryEntry`."""

TimelineRow: TypeAlias = tuple[str | int | datetime | None, ...]

_KNOWN: Final = ("startingOrdinal", "failOnDataLoss")


class TimelineLoad:
    """One `load`.

    Args:
        given: the options from Spark.

    Attributes:
        start: an Ordinal, in Unix milliseconds, or `earliest` or `latest`; None if it was not given.
        is_strict: whether a stream fails if commits that it has not read may have been removed.

    Raises:
        ValueError: an option is unknown or not valid.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        options = SourceOptions(given, _KNOWN, TIMELINE_SOURCE)
        self._request = options.request
        self.start = _start(options.get("startingOrdinal"))
        self.is_strict = options.flag("failOnDataLoss", default=True)

    @property
    def request(self) -> ReadRequest:
        """The request for the table."""
        return self._request

    def newest(self, limit: int = MAX_LISTED) -> list[HistoryEntry]:
        """Return the newest commits, oldest first.

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
    """Return a commit as a row with the named columns."""
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
    """Return the column names of a schema.

    Raises:
        ValueError: the timeline has no such column, or it has another type.
    """
    own = {field.name: field.dataType for field in TIMELINE_SCHEMA}
    for field in schema:
        if field.name not in own:
            raise ValueError(
                f"a column of {TIMELINE_SOURCE}: {field.name!r} is none; {suggest_name(field.name, list(own))}"
            )
        if field.dataType != own[field.name]:
            types = f"{own[field.name].simpleString()}, not {field.dataType.simpleString()}"
            raise ValueError(f"the schema may only choose columns, but {field.name} is of type {types}")
    return tuple(schema.names)


def _start(text: str | None) -> int | str | None:
    if text is None or text.lower() in {EARLIEST, LATEST}:
        return text and text.lower()
    return parse_ordinal(text)


Offset: TypeAlias = dict[str, str | bool]
"""`ordinal`, `metadata_location`, and `is_read`: whether the stream has read this commit itself."""

_TRIED: Final = (32, 1_024, MAX_LISTED)
"""The numbers of newest commits that are searched for the last one read, which is mostly recent."""


@dataclass(frozen=True, slots=True)
class TimelineRows(InputPartition):
    """Some rows. They are few, so they are sent to the reading process, which needs no access to the table."""

    rows: tuple[TimelineRow, ...]


class TimelineReader(DataSourceReader):
    """A batch of all commits that are known when an action begins.

    Args:
        names: the names of the columns.
    """

    def __init__(self, timeline: TimelineLoad, names: tuple[str, ...]) -> None:
        if timeline.start == LATEST:
            raise ValueError("startingOrdinal=latest is for streams: a batch has no later commits")
        self._timeline, self._names = timeline, names

    @override
    def partitions(self) -> Sequence[InputPartition]:
        first = self._timeline.start if isinstance(self._timeline.start, int) else 0
        entries = [entry for entry in self._timeline.newest() if entry.ordinal >= first]
        return [TimelineRows(tuple(to_timeline_row(entry, self._names) for entry in entries))]

    @override
    def read(self, partition: InputPartition) -> Iterator[TimelineRow]:
        return _read(partition)


class TimelineStream(DataSourceStreamReader):
    """A stream of commits, each once; a batch is defined by its two offsets alone."""

    def __init__(self, timeline: TimelineLoad, names: tuple[str, ...]) -> None:
        self._timeline, self._names = timeline, names

    @override
    def initialOffset(self) -> Offset:
        start = self._timeline.start
        if start != LATEST:
            first = start if isinstance(start, int) else 0
            following = next((entry for entry in self._timeline.newest() if entry.ordinal >= first), None)
            if following is not None:
                return _offset(following, is_read=False)
        return self.latestOffset()

    @override
    def latestOffset(self) -> Offset:
        return _offset(self._timeline.newest(1)[-1], is_read=True)

    @override
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        # If at first no commit was as late as the start, the offset lies before the start.
        first = self._timeline.start if isinstance(self._timeline.start, int) else 0
        between = self._between(start, end) if start != end else ()
        entries = [entry for entry in between if entry.ordinal >= first]
        return [TimelineRows(tuple(to_timeline_row(entry, self._names) for entry in entries))] if entries else []

    @override
    def read(self, partition: InputPartition) -> Iterator[TimelineRow]:
        return _read(partition)

    def _between(self, start: Offset, end: Offset) -> Sequence[HistoryEntry]:
        """Return the commits after one offset, up to another.

        Raises:
            CommitNotFound: the commit of an offset was removed, so that unread commits may be gone, too.
        """
        entries: Sequence[HistoryEntry] = ()
        for limit in _TRIED:
            entries = self._timeline.newest(limit)
            if _position(entries, start) is not None or len(entries) < limit:
                break
        return entries[self._place(entries, start) : self._place(entries, end)]

    def _place(self, entries: Sequence[HistoryEntry], offset: Offset) -> int:
        """Return the number of commits that an offset has passed."""
        position = _position(entries, offset)
        if position is not None:
            return position + bool(offset["is_read"])
        ordinal = str(offset["ordinal"])
        if self._timeline.is_strict:
            raise CommitNotFound(
                self._timeline.request.directory,
                expected=f"the commit of {ordinal}, which the stream has reached ({offset['metadata_location']})",
                found=f"that it was removed; the first known one is {render_ordinal(entries[0].ordinal)}",
                remedy="start a new stream, or accept lost commits with failOnDataLoss=false; see `keep` "
                "and `keep_for` of the catalog's settings",
            )
        return sum(entry.ordinal <= parse_ordinal(ordinal) for entry in entries)


def _offset(entry: HistoryEntry, *, is_read: bool) -> Offset:
    ordinal = render_ordinal(entry.ordinal)
    return {"ordinal": ordinal, "metadata_location": entry.metadata_location, "is_read": is_read}


def _position(entries: Sequence[HistoryEntry], offset: Offset) -> int | None:
    """Return the position of an offset's commit; None if it is missing."""
    files = [number for number, entry in enumerate(entries) if entry.metadata_location == offset["metadata_location"]]
    for number in files:
        if render_ordinal(entries[number].ordinal) == offset["ordinal"]:
            return number
    return next((number for number in files if entries[number].source is not CommitSource.COMMIT), None)


def _read(partition: InputPartition) -> Iterator[TimelineRow]:
    forget_archive_finders()
    return iter(partition.rows if isinstance(partition, TimelineRows) else ())
