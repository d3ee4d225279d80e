"""A table's timeline as rows: what stands behind `format("sfn-log")`."""

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

# ── timeline: A table's timeline as rows

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


# ── timeline_readers: Reading a timeline

Offset: TypeAlias = dict[str, str | bool]
"""`ordinal`, `metadata_location`, and `is_read`: whether that commit itself is behind."""

_TRIED: Final = (32, 1_024, MAX_LISTED)
"""How many of the newest commits are looked at for one that was read before, most often a moment ago."""


@dataclass(frozen=True, slots=True)
class TimelineRows(InputPartition):
    """Rows, which are few: what reads them needs no access to the table."""

    rows: tuple[TimelineRow, ...]


class TimelineReader(DataSourceReader):
    """All commits that are known when an action begins.

    Args:
        names: of the columns.
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
    """The commits, each once: which of them a batch has is told by its two offsets alone."""

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
        # Where no commit was that late at first, the offset does not tell where to begin.
        first = self._timeline.start if isinstance(self._timeline.start, int) else 0
        between = self._between(start, end) if start != end else ()
        entries = [entry for entry in between if entry.ordinal >= first]
        return [TimelineRows(tuple(to_timeline_row(entry, self._names) for entry in entries))] if entries else []

    @override
    def read(self, partition: InputPartition) -> Iterator[TimelineRow]:
        return _read(partition)

    def _between(self, start: Offset, end: Offset) -> Sequence[HistoryEntry]:
        """The commits after one offset, up to another.

        Raises:
            CommitNotFound: one of them is not there any more, so that others may be gone that were not read.
        """
        entries: Sequence[HistoryEntry] = ()
        for limit in _TRIED:
            entries = self._timeline.newest(limit)
            if _position(entries, start) is not None or len(entries) < limit:
                break
        return entries[self._place(entries, start) : self._place(entries, end)]

    def _place(self, entries: Sequence[HistoryEntry], offset: Offset) -> int:
        """How many commits are behind an offset."""
        position = _position(entries, offset)
        if position is not None:
            return position + bool(offset["is_read"])
        ordinal = str(offset["ordinal"])
        if self._timeline.is_strict:
            raise CommitNotFound(
                self._timeline.request.directory,
                expected=f"the commit of {ordinal}, which the stream got to ({offset['metadata_location']})",
                found=f"that it was removed; the first that is known is {render_ordinal(entries[0].ordinal)}",
                remedy="begin anew, or go on without what may be lost with failOnDataLoss=false; see `keep` "
                "and `keep_for` of the catalog's settings",
            )
        return sum(entry.ordinal <= parse_ordinal(ordinal) for entry in entries)


def _offset(entry: HistoryEntry, *, is_read: bool) -> Offset:
    ordinal = render_ordinal(entry.ordinal)
    return {"ordinal": ordinal, "metadata_location": entry.metadata_location, "is_read": is_read}


def _position(entries: Sequence[HistoryEntry], offset: Offset) -> int | None:
    """Where the commit of an offset is among others."""
    files = [number for number, entry in enumerate(entries) if entry.metadata_location == offset["metadata_location"]]
    for number in files:
        if render_ordinal(entries[number].ordinal) == offset["ordinal"]:
            return number
    return next((number for number in files if entries[number].source is not CommitSource.COMMIT), None)


def _read(partition: InputPartition) -> Iterator[TimelineRow]:
    forget_archive_finders()
    return iter(partition.rows if isinstance(partition, TimelineRows) else ())
