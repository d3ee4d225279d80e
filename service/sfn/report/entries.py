"""What was found of a table, as a row of the report: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sfn.domain.catalog_answer import Loaded, NoSuchTable, NotModified, StagedCreate
from sfn.domain.identifiers import Table, TableIdentifier, encode_identifier
from sfn.errors import SfnError
from sfn.publish.comparison import DifferenceKind
from sfn.report.columns import AuditState, ReportRow
from sfn.report.earlier import PreviousRow
from sfn.report.slices import slice_of
from sfn.sfnfile.document import Document
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.version_hint import metadata_lifetime
from sfn.worker.compare import TableComparison

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_ERROR: Final = 1_000
"""Characters of an error that a row has."""


@dataclass(frozen=True, slots=True)
class AuditRun:
    """One run of the audit.

    Attributes:
        name: unlike any other's, in order of time.
        began_at: when it began.
        slices: how many there are.
    """

    name: str
    began_at: datetime
    slices: int

    def row(self, table: TableIdentifier, state: str, now: datetime) -> ReportRow:
        """A row with nothing but how a table stands; of a namespace where there is no name."""
        parts = (*table.namespace, table.name) if table.name else table.namespace
        identifier = encode_identifier(parts[:-1], parts[-1]) if parts else ""
        number = slice_of(table.catalog, identifier, self.slices)
        return ReportRow(
            run=self.name,
            began_at=self.began_at,
            checked_at=now,
            slice=number,
            catalog=table.catalog,
            identifier=identifier,
            state=state,
        )

    def failed_row(
        self, table: TableIdentifier, error: Exception | str, now: datetime, before: PreviousRow | None = None
    ) -> ReportRow:
        """The row of a table that could not be looked at.

        Args:
            before: its row of an earlier run: what the next one goes by is not lost.
        """
        entry = self.row(table, AuditState.UNKNOWN, now)
        entry.error = error_text(error)
        if before is not None:
            entry.sfn_file, entry.lifetime_seconds = before.sfn_file, before.lifetime_seconds
            entry.last_updated_at = before.last_updated_at
            if (remembered := before.remembered) is not None:
                table_then, entry.etag = remembered.table, remembered.etag
                entry.uuid, entry.location = table_then.uuid, table_then.location
                entry.metadata_location, entry.skip_reason = table_then.metadata_location, table_then.skip_reason
                entry.previous_versions_max = table_then.previous_versions_max
        return entry

    def found_row(
        self, table: TableIdentifier, found: TableComparison, now: datetime, before: PreviousRow | None = None
    ) -> ReportRow | None:
        """The row of a table that was looked at; None for one that is not there any more.

        Args:
            before: its row of an earlier run.
        """
        if isinstance(found.answer, NoSuchTable):
            return None
        entry = self.row(table, _audit_state(found), now)
        entry.unchanged = isinstance(found.answer, NotModified)
        if isinstance(found.answer, Loaded):
            entry.etag = found.answer.etag
        if found.difference is not None:
            entry.detail, entry.notified = found.difference.detail[:_MAX_ERROR], True
        if found.table is not None:
            _fill_from_table(entry, found.table)
        if entry.unchanged and before is not None and before.remembered is not None:
            # What is not said again is as it was.
            entry.etag, entry.lifetime_seconds = before.remembered.etag, before.lifetime_seconds
            entry.last_updated_at = before.last_updated_at
        if found.comparison is not None:
            entry.sfn_file = found.comparison.table_files.key
            if (doc := found.comparison.table_files.main_document) is not None:
                _fill_from_document(entry, doc, found.table, now)
        return entry


def error_text(error: Exception | str) -> str:
    """What a row says of an error."""
    said = str(error) if isinstance(error, SfnError | str) else f"{type(error).__name__}: {error}"
    return said[:_MAX_ERROR]


def _audit_state(found: TableComparison) -> str:
    if isinstance(found.answer, StagedCreate):
        return AuditState.UNWRITTEN
    if found.difference is not None:
        return found.difference.kind
    is_left = found.table is not None and found.table.skip_reason is not None
    return AuditState.SKIPPED if is_left else AuditState.CURRENT


def _fill_from_table(entry: ReportRow, table: Table) -> None:
    entry.uuid, entry.location, entry.metadata_location = table.uuid, table.location, table.metadata_location
    entry.previous_versions_max, entry.skip_reason = table.previous_versions_max, table.skip_reason
    if 0 < table.last_updated_ms < _MAX_TIMESTAMP:
        entry.last_updated_at = _EPOCH + timedelta(milliseconds=table.last_updated_ms)
    lives = metadata_lifetime(table)
    entry.lifetime_seconds = None if lives is None else lives.total_seconds()


_MAX_TIMESTAMP: Final = 253_370_764_800_000
"""Unix milliseconds that a date can be made of."""


def _fill_from_document(entry: ReportRow, doc: Document, table: Table | None, now: datetime) -> None:
    entry.sfn_metadata_location = doc.metadata_file_path
    entry.sfn_written_at = doc.written_at
    entry.sfn_age_seconds = max(0.0, (now - doc.written_at).total_seconds())
    if table is None or not doc.is_live or doc.guid != table.uuid:
        return
    if entry.state in {AuditState.CURRENT, DifferenceKind.HINT_BEHIND}:
        entry.commits_behind, entry.lag_seconds = 0, 0.0
    elif entry.state == DifferenceKind.BEHIND:
        _fill_lag(entry, doc.metadata_file_path, table, now)


def _fill_lag(entry: ReportRow, said: str, table: Table, now: datetime) -> None:
    """How many commits the catalog is ahead, and since when."""
    log = [canonical(file) for file in table.metadata_log]
    at = canonical(said)
    if at not in log:
        return
    place = len(log) - 1 - log[::-1].index(at)
    entry.commits_behind = len(log) - place
    superseded = (*table.log_times[place + 1 :], table.last_updated_ms)[0] if _has_log_times(table) else 0
    if superseded > 0:
        entry.lag_seconds = max(0.0, (now - _EPOCH).total_seconds() - superseded / 1_000)


def _has_log_times(table: Table) -> bool:
    return len(table.log_times) == len(table.metadata_log)


def count_states(entries: Sequence[ReportRow]) -> dict[str, int]:
    """How many rows there are of each state."""
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.state] = counts.get(entry.state, 0) + 1
    return counts
