"""The report of an audit: a table of its own, with one row for each table and run. What writes it runs on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from zlib import crc32

import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BooleanType, DoubleType, IcebergType, IntegerType, NestedField, StringType, TimestamptzType

from sfn.domain.identifiers import Table, TableIdentifier, decode_identifier
from sfn.worker.compare import CachedAnswer

# ── columns: What the report has of a table

RUN_COLUMN: Final = "run"
SLICE_COLUMN: Final = "slice"


class AuditState(StrEnum):
    """How a table stands where its files do not differ from its catalog, beside the `Kind` of those that do.

    current       the SFN file says what the catalog does
    left-alone    the table gets no files, and has none
    unwritten     it has no metadata file yet
    gone          the catalog has no such table any more, and its SFN file still says that it is there
    withheld      a namespace, or a catalog as a whole, that may not be listed
    unlisted      one that could not be
    unknown       the table could not be looked at
    """

    CURRENT = "current"
    SKIPPED = "left-alone"
    UNWRITTEN = "unwritten"
    GONE = "gone"
    WITHHELD = "withheld"
    UNLISTED = "unlisted"
    UNKNOWN = "unknown"


@dataclass(slots=True, kw_only=True)
class ReportRow:
    """A row.

    Attributes:
        run: which run of the audit.
        began_at: when it began.
        checked_at: when the table was looked at.
        slice: of the tables, which.
        catalog: by its name in the configuration.
        identifier: levels and name, with a dot between and `%2E` for one in a part.
        state: a `Standing`, or a `Kind` of difference.
        detail: what was found, for a person; empty where all is right.
        uuid, location, metadata_location: as the catalog says.
        sfn_file: our file, where there is one or one would go.
        sfn_metadata_location: what it says.
        sfn_written_at: when that was so.
        sfn_age_seconds: how long ago that was.
        commits_behind: how many commits the catalog is ahead of it; None where its metadata log does not reach as far.
        lag_seconds: since when the first of these was there.
        last_updated_at: of the table's last commit.
        previous_versions_max: metadata files before the current one that a commit leaves; None for all.
        lifetime_seconds: from when one is superseded until it is deleted, as commits come now; None where none is.
        unchanged: the catalog said that its answer is the one of the run before.
        notified: the service was to be told.
        deep: what is missing of the files below the current snapshot; empty for nothing, None where nobody looked.
        etag: of the catalog's answer, for the next run.
        skip_reason: why the table gets no files.
        error: why it, or its files, could not be looked at; what the row says of the table is then as it was before.
    """

    run: str
    began_at: datetime
    checked_at: datetime
    slice: int
    catalog: str
    identifier: str
    state: str
    detail: str = ""
    uuid: str | None = None
    location: str | None = None
    metadata_location: str | None = None
    sfn_file: str | None = None
    sfn_metadata_location: str | None = None
    sfn_written_at: datetime | None = None
    sfn_age_seconds: float | None = None
    commits_behind: int | None = None
    lag_seconds: float | None = None
    last_updated_at: datetime | None = None
    previous_versions_max: int | None = None
    lifetime_seconds: float | None = None
    unchanged: bool = False
    notified: bool = False
    deep: str | None = None
    etag: str | None = None
    skip_reason: str | None = None
    error: str | None = None


_TYPES: Final[dict[str, IcebergType]] = {
    "str": StringType(),
    "datetime": TimestamptzType(),
    "int": IntegerType(),
    "float": DoubleType(),
    "bool": BooleanType(),
}


def _schema() -> Schema:
    made = []
    for number, field in enumerate(fields(ReportRow), 1):
        kind, _, optional = str(field.type).partition(" | ")
        # What later versions add can't be required: rows of before lack it.
        made.append(
            NestedField(number, field.name, _TYPES[kind], required=not optional and number <= _REQUIRED_COLUMNS)
        )
    return Schema(*made)


_REQUIRED_COLUMNS: Final = 7
COLUMNS: Final = tuple(field.name for field in fields(ReportRow))
SCHEMA: Final = _schema()
PARTITIONS: Final = PartitionSpec(
    *(
        PartitionField(SCHEMA.find_field(name).field_id, 1_000 + at, IdentityTransform(), name)
        for at, name in enumerate((RUN_COLUMN, SLICE_COLUMN))
    )
)


def column_values(entries: Sequence[ReportRow], name: str) -> list[Any]:
    """The values of one column."""
    return [getattr(entry, name, None) for entry in entries]


# ── totals: How many tables of a slice

FINE_STATES: Final = frozenset({AuditState.CURRENT, AuditState.SKIPPED, AuditState.UNWRITTEN})
"""States that call for nothing."""
UNCHECKED_STATES: Final = frozenset({AuditState.UNKNOWN, AuditState.WITHHELD, AuditState.UNLISTED})

_COUNT_KEYS: Final = {
    name: f"sfn.{name}"
    for name in ("tables", "differing", "unchecked", "unchanged", "with_missing_files", "unnotified")
}
_LAG_KEY: Final = "sfn.worst-lag-seconds"


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Of some rows.

    Attributes:
        tables: all of them.
        differing: that something is the matter with.
        unchecked: that, or the files of which, could not be looked at; namespaces are among them.
        with_missing_files: that lack files of their current snapshot.
        unnotified: of which the service was to be told, and could not be.
        unchanged: of which the catalog said no more than that.
        worst_lag_seconds: None where nothing is late, or nobody can tell how late.
    """

    tables: int = 0
    differing: int = 0
    unchecked: int = 0
    unchanged: int = 0
    with_missing_files: int = 0
    unnotified: int = 0
    worst_lag_seconds: float | None = None

    @classmethod
    def of_rows(cls, entries: Sequence[ReportRow]) -> RunTotals:
        """Those of rows."""
        return cls(
            len(entries),
            sum(entry.state not in FINE_STATES | UNCHECKED_STATES for entry in entries),
            sum(entry.error is not None for entry in entries),
            sum(entry.unchanged for entry in entries),
            sum(bool(entry.deep) for entry in entries),
            0,
            max((entry.lag_seconds for entry in entries if entry.lag_seconds is not None), default=None),
        )

    @classmethod
    def from_summary(cls, summary: Mapping[str, str]) -> RunTotals:
        """Those that a snapshot's summary says."""
        counts = {name: int(summary.get(key, 0)) for name, key in _COUNT_KEYS.items()}
        return cls(**counts, worst_lag_seconds=float(summary[_LAG_KEY]) if _LAG_KEY in summary else None)

    def summary(self) -> dict[str, str]:
        """As a snapshot's summary says them."""
        lag = {} if self.worst_lag_seconds is None else {_LAG_KEY: f"{self.worst_lag_seconds:.3f}"}
        return {key: str(getattr(self, name)) for name, key in _COUNT_KEYS.items()} | lag

    def __add__(self, other: RunTotals) -> RunTotals:
        lags = [lag for lag in (self.worst_lag_seconds, other.worst_lag_seconds) if lag is not None]
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNT_KEYS}
        return RunTotals(**counts, worst_lag_seconds=max(lags, default=None))


# ── earlier: What an earlier run said of tables

_COLUMNS_READ: Final = (
    *("catalog", "identifier", "state", "uuid", "location", "metadata_location", "sfn_file", "etag", "skip_reason"),
    *("previous_versions_max", "lifetime_seconds", "last_updated_at"),
)


_STATES_WITHOUT_TABLE: Final = frozenset({AuditState.WITHHELD, AuditState.UNLISTED})
"""States of rows that are of no table."""


@dataclass(frozen=True, slots=True)
class PreviousRow:
    """A row of an earlier run.

    Attributes:
        name: the table's.
        remembered: what the catalog is spared; None where it gave no entity tag, or no table.
        sfn_file: where a file of ours may lie.
        lifetime_seconds, versions_kept, last_updated_at: as in the row: an answer that is not given again does not say.
    """

    name: TableIdentifier
    remembered: CachedAnswer | None
    sfn_file: str | None
    lifetime_seconds: float | None = None
    last_updated_at: datetime | None = None


def read_previous_rows(
    files: FileIO, paths: Iterable[str], is_wanted: Callable[[str, str], bool]
) -> dict[TableIdentifier, PreviousRow]:
    """The rows of some data files; columns that an older report lacks are empty.

    Args:
        is_wanted: whether the table of a catalog and identifier is.

    Raises:
        OSError: one can't be read.
    """
    found = {}
    for path in paths:
        with files.new_input(path).open() as stream:
            parquet = pq.ParquetFile(stream)
            there = [name for name in _COLUMNS_READ if name in parquet.schema_arrow.names]
            for row in parquet.read(columns=there).to_pylist():
                if is_wanted(row["catalog"], row["identifier"]) and (one := _to_previous_row(row)) is not None:
                    found[one.name] = one
    return found


def _to_previous_row(row: Mapping[str, Any]) -> PreviousRow | None:
    try:
        *namespace, name = decode_identifier(row["identifier"])
    except ValueError:
        return None
    if row["state"] in _STATES_WITHOUT_TABLE:
        return None
    table = TableIdentifier(row["catalog"], tuple(namespace), name)
    etag, location, pointer = row.get("etag"), row.get("location"), row.get("metadata_location")
    remembered = None
    if etag and location and pointer:
        said = Table(
            uuid=row.get("uuid"),
            location=location,
            metadata_location=pointer,
            skip_reason=row.get("skip_reason"),
            previous_versions_max=row.get("previous_versions_max"),
        )
        remembered = CachedAnswer(etag, said)
    return PreviousRow(table, remembered, row.get("sfn_file"), row.get("lifetime_seconds"), row.get("last_updated_at"))


# ── slices: How the tables of a run are shared out

MAX_SLICES = 1 << 16
"""Slices that a report may have."""


def slice_of(catalog: str, identifier: str, slices: int) -> int:
    """Which slice a table belongs to.

    Args:
        identifier: in the report's spelling.
        slices: how many there are, a power of two.
    """
    return crc32(f"{catalog}\0{identifier}".encode("utf-8", "surrogatepass")) & (slices - 1)


def is_valid_count(slices: int) -> bool:
    """Whether there may be so many slices."""
    return 0 < slices <= MAX_SLICES and slices & (slices - 1) == 0


def matching_slices(number: int, slices: int, before: int) -> range:
    """Which slices of an earlier run, which had `before` of them, have the tables of one of this run."""
    least = min(slices, before)
    return range(number % least, before, least)
