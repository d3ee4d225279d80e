"""What a report says: one run of it, and how the last ones went."""

from __future__ import annotations

import functools
import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from pyiceberg.table import Table

from sfn.errors import SfnError, nearest
from sfn.publish.comparison import DifferenceKind
from sfn.report.columns import RUN
from sfn.report.runs import Written, runs

FOREIGN: Final = frozenset({DifferenceKind.FOREIGN_CATALOG, DifferenceKind.FOREIGN_FILE})

_NEAR: Final = 0.5
"""The part of a metadata file's time, or of the commits that it outlives, from which a table is near its retention."""
_OF_A_RUN: Final = (
    *("catalog", "identifier", "state", "detail", "lag_seconds", "commits_behind", "versions_kept", "lifetime_seconds"),
    *("sfn_file", "sfn_age_seconds", "deep", "error", "unchanged", "hinted"),
)


class Row(Struct, frozen=True):
    """A table that a report names."""

    catalog: str
    table: str
    state: str
    detail: str
    lag_seconds: float | None
    commits_behind: int | None
    versions_kept: int | None
    lifetime_seconds: float | None


class Past(Struct, frozen=True):
    """How one run went, as a whole."""

    run: str
    began_at: datetime
    is_whole: bool
    tables: int
    differing: int
    unseen: int
    unchanged: int
    worst_lag_seconds: float | None


class Report(Struct, frozen=True):
    """One run. Lists are cut off at as many as were asked for; what each has in all stands beside it."""

    report: str
    run: str
    began_at: datetime
    is_whole: bool
    deep: bool
    states: dict[str, dict[str, int]]
    worst_lag: list[Row]
    foreign: list[Row]
    foreign_total: int
    near_retention: list[Row]
    near_retention_total: int
    missing_files: list[Row]
    missing_files_total: int
    unseen: list[Row]
    unseen_total: int
    oldest_file_seconds: float | None
    trend: list[Past]


def read(table: Table, where: str, run: str | None, most: int, past: int) -> Report:
    """One run of a report, and those before it.

    Args:
        where: what the report is called.
        run: which; None for the newest.
        most: tables that each list names.
        past: runs that are compared.

    Raises:
        SfnError: there is no such run, or none at all.
    """
    known = sorted(runs(table), key=lambda one: one.run.began_at)
    chosen = _chosen(known, where, run)
    rows = _Rows(most)
    there = table.schema().column_names
    columns = tuple(name for name in _OF_A_RUN if name in there)
    for batch in table.scan(f"{RUN} = '{chosen.run.name}'", columns).to_arrow_batch_reader():
        rows.take(batch)
    return Report(
        report=where,
        run=chosen.run.name,
        began_at=chosen.run.began_at,
        is_whole=chosen.is_ended,
        deep=chosen.deep,
        states={catalog: dict(sorted(counts.items())) for catalog, counts in sorted(rows.states.items())},
        worst_lag=[_row(row) for row in rows.late],
        foreign=rows.foreign.first,
        foreign_total=rows.foreign.total,
        near_retention=rows.near.first,
        near_retention_total=rows.near.total,
        missing_files=rows.lacking.first,
        missing_files_total=rows.lacking.total,
        unseen=rows.unseen.first,
        unseen_total=rows.unseen.total,
        oldest_file_seconds=rows.oldest,
        trend=[_past(one) for one in known[: known.index(chosen) + 1][-past:]],
    )


class _Few:
    """The first few of many rows, and how many there are."""

    def __init__(self, most: int, said: str = "detail") -> None:
        self._most, self._said = most, said
        self.first: list[Row] = []
        self.total = 0

    def add(self, row: Mapping[str, Any]) -> None:
        self.total += 1
        if self.total <= self._most:
            self.first.append(_row(row, self._said))


class _Rows:
    """What is said of a run's rows, which may be more than fit into memory."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.states: dict[str, Counter[str]] = {}
        self.late: list[Mapping[str, Any]] = []
        self.foreign, self.near = _Few(most), _Few(most)
        self.lacking, self.unseen = _Few(most, "deep"), _Few(most, "error")
        self.oldest: float | None = None

    def take(self, batch: pa.RecordBatch) -> None:
        """Some more of them."""
        counts = pa.Table.from_batches([batch]).group_by(["catalog", "state"]).aggregate([([], "count_all")])
        for row in counts.to_pylist():
            self.states.setdefault(row["catalog"], Counter())[row["state"]] += row["count_all"]
        ages = [self.oldest, pc.max(batch["sfn_age_seconds"]).as_py()]
        self.oldest = max((age for age in ages if age), default=None)
        odd = batch.filter(_is_odd(batch)).to_pylist()
        late = [row for row in odd if row["lag_seconds"]]
        self.late = heapq.nlargest(self._most, [*self.late, *late], key=lambda row: row["lag_seconds"])
        for row in odd:
            for few, belongs in (
                (self.foreign, row["state"] in FOREIGN),
                (self.near, is_near(row)),
                (self.lacking, bool(row.get("deep"))),
                (self.unseen, row["error"] is not None),
            ):
                if belongs:
                    few.add(row)


def _is_odd(batch: pa.RecordBatch) -> pa.Array:
    """Whether a row may belong to any of the lists: of nearly all nothing but their number matters."""
    states = batch["state"]
    is_foreign = pc.is_in(states, value_set=pa.array([*FOREIGN], states.type))
    found = [
        is_foreign,
        pc.is_valid(batch["error"]),
        pc.greater(batch["lag_seconds"], 0),
        pc.greater(batch["commits_behind"], 0),
    ]
    if "deep" in batch.schema.names:
        found.append(pc.not_equal(batch["deep"], ""))
    return functools.reduce(pc.or_kleene, found)


def is_near(row: Mapping[str, Any]) -> bool:
    """Whether the metadata file that our file names will soon be deleted, or is by now."""
    behind, kept, lag, lives = (row[name] for name in _RETAINED)
    if kept is not None and behind is not None and behind > 0 and behind >= _NEAR * kept:
        return True
    return bool(lives is not None and lag and lag >= _NEAR * lives)


_RETAINED: Final = ("commits_behind", "versions_kept", "lag_seconds", "lifetime_seconds")


def _chosen(known: Sequence[Written], where: str, run: str | None) -> Written:
    if not known:
        remedy = "write one: python -m sfn.spark.audit --report …"
        raise SfnError(where, expected="a report with a run", found="none", remedy=remedy)
    if run is None:
        return known[-1]
    for one in known:
        if one.run.name == run:
            return one
    names = [one.run.name for one in known]
    raise SfnError(where, expected=f"a run ({', '.join(names[-5:])}, …)", found=run, remedy=nearest(run, names))


def _row(row: Mapping[str, Any], said: str = "detail") -> Row:
    return Row(
        row["catalog"],
        row["identifier"],
        row["state"],
        row[said] or "",
        row["lag_seconds"],
        row["commits_behind"],
        row["versions_kept"],
        row["lifetime_seconds"],
    )


def _past(one: Written) -> Past:
    totals = one.totals
    return Past(
        run=one.run.name,
        began_at=one.run.began_at,
        is_whole=one.is_ended,
        tables=totals.tables,
        differing=totals.differing,
        unseen=totals.unseen,
        unchanged=totals.unchanged,
        worst_lag_seconds=totals.worst_lag_seconds,
    )
