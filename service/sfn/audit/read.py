"""Read an audit's report: one run, and the trend over the last runs."""

from __future__ import annotations

import functools
import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from sfn.audit.report import RUN_COLUMN
from sfn.audit.writer import RunProgress, list_runs
from sfn.errors import SfnError, suggest_name
from sfn.publish.dry_run import DifferenceKind

FOREIGN_KINDS: Final = frozenset({DifferenceKind.FOREIGN_CATALOG, DifferenceKind.FOREIGN_FILE})

_NEAR_FRACTION: Final = 0.5
"""A table is near its retention from this part of a metadata file's lifetime, or of the commits that it outlives."""
_COLUMNS_OF_A_RUN: Final = (
    *("catalog", "identifier", "state", "detail", "lag_seconds", "commits_behind", "previous_versions_max"),
    *("lifetime_seconds", "sfn_file", "sfn_age_seconds", "deep", "error", "unchanged", "notified"),
)


@dataclass(frozen=True, slots=True)
class ReportedTable:
    """A table in a list of the report."""

    catalog: str
    table: str
    state: str
    detail: str
    lag_seconds: float | None
    commits_behind: int | None
    previous_versions_max: int | None
    lifetime_seconds: float | None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The totals of one run."""

    run: str
    began_at: datetime
    is_whole: bool
    tables: int
    differing: int
    unchecked: int
    unchanged: int
    worst_lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class AuditReport:
    """One run. Each list is cut off at the requested length; its full length is in the attribute `…_total`."""

    report: str
    run: str
    began_at: datetime
    is_whole: bool
    deep: bool
    states: dict[str, dict[str, int]]
    worst_lag: list[ReportedTable]
    foreign: list[ReportedTable]
    foreign_total: int
    near_retention: list[ReportedTable]
    near_retention_total: int
    missing_files: list[ReportedTable]
    missing_files_total: int
    unchecked: list[ReportedTable]
    unchecked_total: int
    oldest_file_seconds: float | None
    trend: list[RunSummary]


def read_report(table: Table, where: str, run: str | None, most: int, past: int) -> AuditReport:
    """Read one run of a report, and the totals of the runs before it.

    Args:
        where: the report's place, for messages.
        run: the run's name; None for the newest.
        most: the maximum length of each list.
        past: the number of runs in the trend.

    Raises:
        SfnError: there is no such run, or none at all.
    """
    known = sorted(list_runs(table), key=lambda one: one.run.began_at)
    chosen = _choose_run(known, where, run)
    rows = _RunStatistics(most)
    there = table.schema().column_names
    columns = tuple(name for name in _COLUMNS_OF_A_RUN if name in there)
    for batch in table.scan(f"{RUN_COLUMN} = '{chosen.run.name}'", columns).to_arrow_batch_reader():
        rows.add_batch(batch)
    return AuditReport(
        report=where,
        run=chosen.run.name,
        began_at=chosen.run.began_at,
        is_whole=chosen.is_ended,
        deep=chosen.deep,
        states={catalog: dict(sorted(counts.items())) for catalog, counts in sorted(rows.states.items())},
        worst_lag=[_to_reported_table(row) for row in rows.late],
        foreign=rows.foreign.first,
        foreign_total=rows.foreign.total,
        near_retention=rows.near.first,
        near_retention_total=rows.near.total,
        missing_files=rows.with_missing_files.first,
        missing_files_total=rows.with_missing_files.total,
        unchecked=rows.unchecked.first,
        unchecked_total=rows.unchecked.total,
        oldest_file_seconds=rows.oldest,
        trend=[_to_run_summary(one) for one in known[: known.index(chosen) + 1][-past:]],
    )


class _FirstRows:
    """The first few of many rows, and their total number."""

    def __init__(self, most: int, text_column: str = "detail") -> None:
        self._most, self._text_column = most, text_column
        self.first: list[ReportedTable] = []
        self.total = 0

    def add(self, row: Mapping[str, Any]) -> None:
        self.total += 1
        if self.total <= self._most:
            self.first.append(_to_reported_table(row, self._text_column))


class _RunStatistics:
    """Statistics of a run's rows, which may not fit into memory together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.states: dict[str, Counter[str]] = {}
        self.late: list[Mapping[str, Any]] = []
        self.foreign, self.near = _FirstRows(most), _FirstRows(most)
        self.with_missing_files, self.unchecked = _FirstRows(most, "deep"), _FirstRows(most, "error")
        self.oldest: float | None = None

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add some rows."""
        counts = pa.Table.from_batches([batch]).group_by(["catalog", "state"]).aggregate([([], "count_all")])
        for row in counts.to_pylist():
            self.states.setdefault(row["catalog"], Counter())[row["state"]] += row["count_all"]
        ages = [self.oldest, pc.max(batch["sfn_age_seconds"]).as_py()]
        self.oldest = max((age for age in ages if age), default=None)
        odd = batch.filter(_may_be_listed(batch)).to_pylist()
        late = [row for row in odd if row["lag_seconds"]]
        self.late = heapq.nlargest(self._most, [*self.late, *late], key=lambda row: row["lag_seconds"])
        for row in odd:
            for few, belongs in (
                (self.foreign, row["state"] in FOREIGN_KINDS),
                (self.near, is_near_retention(row)),
                (self.with_missing_files, bool(row.get("deep"))),
                (self.unchecked, row["error"] is not None),
            ):
                if belongs:
                    few.add(row)


def _may_be_listed(batch: pa.RecordBatch) -> pa.Array:
    """Return which rows may belong to any of the lists: nearly all rows do not, and are only counted."""
    states = batch["state"]
    is_foreign = pc.is_in(states, value_set=pa.array([*FOREIGN_KINDS], states.type))
    found = [
        is_foreign,
        pc.is_valid(batch["error"]),
        pc.greater(batch["lag_seconds"], 0),
        pc.greater(batch["commits_behind"], 0),
    ]
    if "deep" in batch.schema.names:
        found.append(pc.not_equal(batch["deep"], ""))
    return functools.reduce(pc.or_kleene, found)


def is_near_retention(row: Mapping[str, Any]) -> bool:
    """Return whether the metadata file that the SFN file names will soon be deleted, or may be already."""
    behind, retained, lag, lives = (row[name] for name in _RETENTION_COLUMNS)
    if retained is not None and behind is not None and behind > 0 and behind >= _NEAR_FRACTION * retained:
        return True
    return bool(lives is not None and lag and lag >= _NEAR_FRACTION * lives)


_RETENTION_COLUMNS: Final = ("commits_behind", "previous_versions_max", "lag_seconds", "lifetime_seconds")


def _choose_run(known: Sequence[RunProgress], where: str, run: str | None) -> RunProgress:
    if not known:
        remedy = "write one: sfn audit run --report …"
        raise SfnError(where, expected="a report with a run", found="none", remedy=remedy)
    if run is None:
        return known[-1]
    for one in known:
        if one.run.name == run:
            return one
    names = [one.run.name for one in known]
    raise SfnError(where, expected=f"a run ({', '.join(names[-5:])}, …)", found=run, remedy=suggest_name(run, names))


def _to_reported_table(row: Mapping[str, Any], text_column: str = "detail") -> ReportedTable:
    return ReportedTable(
        row["catalog"],
        row["identifier"],
        row["state"],
        row[text_column] or "",
        row["lag_seconds"],
        row["commits_behind"],
        row["previous_versions_max"],
        row["lifetime_seconds"],
    )


def _to_run_summary(one: RunProgress) -> RunSummary:
    totals = one.totals
    return RunSummary(
        run=one.run.name,
        began_at=one.run.began_at,
        is_whole=one.is_ended,
        tables=totals.tables,
        differing=totals.differing,
        unchecked=totals.unchecked,
        unchanged=totals.unchanged,
        worst_lag_seconds=totals.worst_lag_seconds,
    )
