"""What the report has of a table: one row a table and run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    IntegerType,
    NestedField,
    StringType,
    TimestamptzType,
)

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
