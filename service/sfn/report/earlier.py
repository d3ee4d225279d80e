"""What an earlier run said of tables: what a catalog is spared, and what it may have dropped since."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from sfn.domain.identifiers import Table, TableIdentifier, decode_identifier
from sfn.report.columns import AuditState
from sfn.worker.compare import CachedAnswer

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
