"""What was found of a table, as a row of the report: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sfn.errors import SfnError
from sfn.pointer.document import Document
from sfn.pointer.location import canonical
from sfn.pointer.retention import metadata_lifetime
from sfn.publish.comparison import DifferenceKind
from sfn.report.columns import Entry, Standing
from sfn.report.earlier import Earlier
from sfn.report.slices import slice_of
from sfn.words import Loaded, Missing, NotModified, Table, TableName, Unwritten
from sfn.words.table import spelled
from sfn.work.examination import Examined

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN: Final = 1_000
"""Characters of an error that a row has."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the audit.

    Attributes:
        name: unlike any other's, in order of time.
        began_at: when it began.
        slices: how many there are.
    """

    name: str
    began_at: datetime
    slices: int

    def entry(self, table: TableName, state: str, now: datetime) -> Entry:
        """A row with nothing but how a table stands; of a namespace where there is no name."""
        parts = (*table.namespace, table.name) if table.name else table.namespace
        identifier = spelled(parts[:-1], parts[-1]) if parts else ""
        number = slice_of(table.catalog, identifier, self.slices)
        return Entry(
            run=self.name,
            began_at=self.began_at,
            looked_at=now,
            slice=number,
            catalog=table.catalog,
            identifier=identifier,
            state=state,
        )

    def failed(self, table: TableName, error: Exception | str, now: datetime, before: Earlier | None = None) -> Entry:
        """The row of a table that could not be looked at.

        Args:
            before: its row of an earlier run: what the next one goes by is not lost.
        """
        entry = self.entry(table, Standing.UNKNOWN, now)
        entry.error = shown(error)
        if before is not None:
            entry.sfn_file, entry.lifetime_seconds = before.sfn_file, before.lifetime_seconds
            entry.last_updated_at = before.last_updated_at
            if (remembered := before.remembered) is not None:
                table_then, entry.etag = remembered.table, remembered.etag
                entry.uuid, entry.location = table_then.uuid, table_then.location
                entry.metadata_location, entry.left_alone = table_then.metadata_location, table_then.left_alone
                entry.versions_kept = table_then.versions_kept
        return entry

    def found(self, table: TableName, found: Examined, now: datetime, before: Earlier | None = None) -> Entry | None:
        """The row of a table that was looked at; None for one that is not there any more.

        Args:
            before: its row of an earlier run.
        """
        if isinstance(found.answer, Missing):
            return None
        entry = self.entry(table, _state(found), now)
        entry.unchanged = isinstance(found.answer, NotModified)
        if isinstance(found.answer, Loaded):
            entry.etag = found.answer.etag
        if found.difference is not None:
            entry.detail, entry.hinted = found.difference.detail[:_SHOWN], True
        if found.table is not None:
            _say_table(entry, found.table)
        if entry.unchanged and before is not None and before.remembered is not None:
            # What is not said again is as it was.
            entry.etag, entry.lifetime_seconds = before.remembered.etag, before.lifetime_seconds
            entry.last_updated_at = before.last_updated_at
        if found.compared is not None:
            entry.sfn_file = found.compared.table_files.key
            if (doc := found.compared.table_files.main_document) is not None:
                _say_document(entry, doc, found.table, now)
        return entry


def shown(error: Exception | str) -> str:
    """What a row says of an error."""
    said = str(error) if isinstance(error, SfnError | str) else f"{type(error).__name__}: {error}"
    return said[:_SHOWN]


def _state(found: Examined) -> str:
    if isinstance(found.answer, Unwritten):
        return Standing.UNWRITTEN
    if found.difference is not None:
        return found.difference.kind
    is_left = found.table is not None and found.table.left_alone is not None
    return Standing.LEFT_ALONE if is_left else Standing.CURRENT


def _say_table(entry: Entry, table: Table) -> None:
    entry.uuid, entry.location, entry.metadata_location = table.uuid, table.location, table.metadata_location
    entry.versions_kept, entry.left_alone = table.versions_kept, table.left_alone
    if 0 < table.last_updated_ms < _LATEST:
        entry.last_updated_at = _EPOCH + timedelta(milliseconds=table.last_updated_ms)
    lives = metadata_lifetime(table)
    entry.lifetime_seconds = None if lives is None else lives.total_seconds()


_LATEST: Final = 253_370_764_800_000
"""Unix milliseconds that a date can be made of."""


def _say_document(entry: Entry, doc: Document, table: Table | None, now: datetime) -> None:
    entry.sfn_metadata_location = doc.metadata_file_path
    entry.sfn_written_at = doc.written_at
    entry.sfn_age_seconds = max(0.0, (now - doc.written_at).total_seconds())
    if table is None or not doc.is_live or doc.guid != table.uuid:
        return
    if entry.state in {Standing.CURRENT, DifferenceKind.HINT_BEHIND}:
        entry.commits_behind, entry.lag_seconds = 0, 0.0
    elif entry.state == DifferenceKind.BEHIND:
        _say_lag(entry, doc.metadata_file_path, table, now)


def _say_lag(entry: Entry, said: str, table: Table, now: datetime) -> None:
    """How many commits the catalog is ahead, and since when."""
    log = [canonical(file) for file in table.metadata_log]
    at = canonical(said)
    if at not in log:
        return
    place = len(log) - 1 - log[::-1].index(at)
    entry.commits_behind = len(log) - place
    superseded = (*table.log_times[place + 1 :], table.last_updated_ms)[0] if _is_timed(table) else 0
    if superseded > 0:
        entry.lag_seconds = max(0.0, (now - _EPOCH).total_seconds() - superseded / 1_000)


def _is_timed(table: Table) -> bool:
    return len(table.log_times) == len(table.metadata_log)


def states(entries: Sequence[Entry]) -> dict[str, int]:
    """How many rows there are of each state."""
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.state] = counts.get(entry.state, 0) + 1
    return counts
