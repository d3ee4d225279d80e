"""The audit's report: an Iceberg table with one row for each audited table and run."""

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
from sfn.worker.comparison import CachedAnswer

RUN_COLUMN: Final = "run"
SLICE_COLUMN: Final = "slice"


class AuditState(StrEnum):
    """The state of a table without differences; a table that differs has a `DifferenceKind` instead.

    current       the SFN file agrees with the catalog
    skipped       the table gets no files, and has none
    unwritten     the table has no metadata file yet
    gone          the catalog has no such table any more, but the SFN file is still live
    withheld      a namespace, or a whole catalog, without permission to list it
    unlisted      a namespace, or a whole catalog, that could not be listed
    unknown       the table could not be checked
    """

    CURRENT = "current"
    SKIPPED = "skipped"
    UNWRITTEN = "unwritten"
    GONE = "gone"
    WITHHELD = "withheld"
    UNLISTED = "unlisted"
    UNKNOWN = "unknown"


@dataclass(slots=True, kw_only=True)
class ReportRow:
    """A row of the report.

    Attributes:
        run: the name of the run.
        began_at: the run's start.
        checked_at: the time of the check.
        slice: the number of the table's slice.
        catalog: the catalog's name in the configuration.
        identifier: levels and name, joined by dots, with `%2E` for a dot in a part.
        state: an `AuditState` or a `DifferenceKind`.
        detail: the difference as text; empty if there is none.
        uuid, location, metadata_location: the table's values in the catalog.
        sfn_file: the place of the table's SFN file, even if the file does not exist.
        sfn_metadata_location: the metadata file that the SFN file names.
        sfn_written_at: the time at which the SFN file was written.
        sfn_age_seconds: the time since then.
        commits_behind: how many commits the SFN file is behind the catalog; None if the metadata-log is too short.
        lag_seconds: the time since the first of these commits.
        last_updated_at: the time of the table's last commit.
        previous_versions_max: how many metadata files before the current one a commit leaves; None for all.
        lifetime_seconds: the time from the replacement of a metadata file until its deletion, at the present rate of
            commits; None if none is deleted.
        unchanged: whether the catalog answered that the table has not changed since the run before.
        notified: whether the listener was to be notified.
        deep: the missing files of the current snapshot; empty for none, None if they were not checked.
        etag: the etag of the catalog's answer, for the next run.
        skip_reason: the reason why the table gets no files.
        error: the reason why the table or its files could not be checked; other values are those of the run before.
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
        # Columns of later versions can't be required, because existing rows lack them.
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
    return [getattr(entry, name, None) for entry in entries]


FINE_STATES: Final = frozenset({AuditState.CURRENT, AuditState.SKIPPED, AuditState.UNWRITTEN})
"""States that need no action."""
UNCHECKED_STATES: Final = frozenset({AuditState.UNKNOWN, AuditState.WITHHELD, AuditState.UNLISTED})

_COUNT_KEYS: Final = {
    name: f"sfn.{name}"
    for name in ("tables", "differing", "unchecked", "unchanged", "with_missing_files", "unnotified")
}
_LAG_KEY: Final = "sfn.worst-lag-seconds"


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Totals of some rows.

    Attributes:
        tables: all rows.
        differing: tables that differ from the catalog.
        unchecked: tables and namespaces that could not be checked, or only in part.
        with_missing_files: tables that lack files of their current snapshot.
        unnotified: notifications that the listener did not accept.
        unchanged: tables that have not changed since the run before, by the catalog's answer.
        worst_lag_seconds: None if no table is late, or no lag is known.
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
        """Return the totals of rows; `unnotified` is 0."""
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
        """Return the totals in a snapshot's summary."""
        counts = {name: int(summary.get(key, 0)) for name, key in _COUNT_KEYS.items()}
        return cls(**counts, worst_lag_seconds=float(summary[_LAG_KEY]) if _LAG_KEY in summary else None)

    def summary(self) -> dict[str, str]:
        """Return the totals as entries of a snapshot's summary."""
        lag = {} if self.worst_lag_seconds is None else {_LAG_KEY: f"{self.worst_lag_seconds:.3f}"}
        return {key: str(getattr(self, name)) for name, key in _COUNT_KEYS.items()} | lag

    def __add__(self, other: RunTotals) -> RunTotals:
        lags = [lag for lag in (self.worst_lag_seconds, other.worst_lag_seconds) if lag is not None]
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNT_KEYS}
        return RunTotals(**counts, worst_lag_seconds=max(lags, default=None))


_COLUMNS_READ: Final = (
    *("catalog", "identifier", "state", "uuid", "location", "metadata_location", "sfn_file", "etag", "skip_reason"),
    *("previous_versions_max", "lifetime_seconds", "last_updated_at"),
)


_STATES_WITHOUT_TABLE: Final = frozenset({AuditState.WITHHELD, AuditState.UNLISTED})
"""States of rows that describe no table."""


@dataclass(frozen=True, slots=True)
class PreviousRow:
    """A row of an earlier run.

    Attributes:
        name: the table's identifier.
        remembered: the cached answer of the catalog; None if it had no etag, or no table.
        sfn_file: the possible place of the table's SFN file.
        lifetime_seconds, last_updated_at: values of the row, needed if the catalog answers that nothing changed.
    """

    name: TableIdentifier
    remembered: CachedAnswer | None
    sfn_file: str | None
    lifetime_seconds: float | None = None
    last_updated_at: datetime | None = None


def read_previous_rows(
    files: FileIO, paths: Iterable[str], is_wanted: Callable[[str, str], bool]
) -> dict[TableIdentifier, PreviousRow]:
    """Read rows from some data files of the report; columns that an older report lacks are None.

    Args:
        is_wanted: decides by catalog and identifier which tables are returned.

    Raises:
        OSError: a file can't be read.
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
        table_then = Table(
            uuid=row.get("uuid"),
            location=location,
            metadata_location=pointer,
            skip_reason=row.get("skip_reason"),
            previous_versions_max=row.get("previous_versions_max"),
        )
        remembered = CachedAnswer(etag, table_then)
    return PreviousRow(table, remembered, row.get("sfn_file"), row.get("lifetime_seconds"), row.get("last_updated_at"))


MAX_SLICES = 1 << 16
"""The maximum number of slices of a report."""


def slice_of(catalog: str, identifier: str, slices: int) -> int:
    """Return the slice that a table belongs to.

    Args:
        identifier: in the report's spelling.
        slices: the number of slices, a power of two.
    """
    return crc32(f"{catalog}\0{identifier}".encode("utf-8", "surrogatepass")) & (slices - 1)


def is_valid_count(slices: int) -> bool:
    """Return whether a report may have this number of slices."""
    return 0 < slices <= MAX_SLICES and slices & (slices - 1) == 0


def matching_slices(number: int, slices: int, before: int) -> range:
    """Return the slices of an earlier run, which had `before` slices, that hold the tables of one slice of this run."""
    least = min(slices, before)
    return range(number % least, before, least)
