"""What a report says: one run of it, and how the last ones went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct
from pyiceberg.table import Table

from sfn.errors import SfnError, nearest
from sfn.publish.comparison import Kind
from sfn.report.columns import RUN, Standing
from sfn.report.runs import Written, runs

FINE: Final = frozenset({Standing.CURRENT, Standing.LEFT_ALONE, Standing.UNWRITTEN})
"""States that call for nothing."""
FOREIGN: Final = frozenset({Kind.FOREIGN_CATALOG, Kind.FOREIGN_FILE})
UNSEEN: Final = frozenset({Standing.UNKNOWN, Standing.WITHHELD})

_NEAR: Final = 0.5
"""The part of a metadata file's time, or of the commits that it outlives, from which a table is near its retention."""
_OF_A_RUN: Final = (
    *("catalog", "identifier", "state", "detail", "lag_seconds", "commits_behind", "versions_kept", "lifetime_seconds"),
    *("sfn_file", "sfn_age_seconds", "deep", "error", "unchanged", "hinted"),
)
_OF_ALL: Final = (RUN, "state", "lag_seconds", "unchanged")


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
    there = table.schema().column_names
    rows = _rows(table, f"{RUN} = '{chosen.run.name}'", [name for name in _OF_A_RUN if name in there])
    states: dict[str, Counter[str]] = {}
    for row in rows:
        states.setdefault(row["catalog"], Counter())[row["state"]] += 1
    late = sorted((row for row in rows if row["lag_seconds"]), key=lambda row: -row["lag_seconds"])
    foreign, near = [row for row in rows if row["state"] in FOREIGN], [row for row in rows if is_near(row)]
    lacking, unseen = [row for row in rows if row.get("deep")], [row for row in rows if row["state"] in UNSEEN]
    upto = known[: known.index(chosen) + 1]
    return Report(
        report=where,
        run=chosen.run.name,
        began_at=chosen.run.began_at,
        is_whole=chosen.is_ended,
        deep=chosen.deep,
        states={catalog: dict(sorted(counts.items())) for catalog, counts in sorted(states.items())},
        worst_lag=_named(late, most),
        foreign=_named(foreign, most),
        foreign_total=len(foreign),
        near_retention=_named(near, most),
        near_retention_total=len(near),
        missing_files=_named(lacking, most, "deep"),
        missing_files_total=len(lacking),
        unseen=_named(unseen, most, "error"),
        unseen_total=len(unseen),
        oldest_file_seconds=max((row["sfn_age_seconds"] for row in rows if row["sfn_age_seconds"]), default=None),
        trend=list(_trend(table, upto[-past:])),
    )


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


def _rows(table: Table, which: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    found: pa.Table = table.scan(row_filter=which, selected_fields=tuple(columns)).to_arrow()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def _named(rows: Sequence[Mapping[str, Any]], most: int, said: str = "detail") -> list[Row]:
    return [
        Row(
            row["catalog"],
            row["identifier"],
            row["state"],
            row[said] or "",
            row["lag_seconds"],
            row["commits_behind"],
            row["versions_kept"],
            row["lifetime_seconds"],
        )
        for row in rows[:most]
    ]


def _trend(table: Table, known: Sequence[Written]) -> Iterator[Past]:
    names = ", ".join(f"'{one.run.name}'" for one in known)
    rows = _rows(table, f"{RUN} in ({names})", _OF_ALL)
    for one in known:
        its = [row for row in rows if row[RUN] == one.run.name]
        lags = [row["lag_seconds"] for row in its if row["lag_seconds"] is not None]
        yield Past(
            run=one.run.name,
            began_at=one.run.began_at,
            is_whole=one.is_ended,
            tables=len(its),
            differing=sum(row["state"] not in FINE | UNSEEN for row in its),
            unseen=sum(row["state"] in UNSEEN for row in its),
            unchanged=sum(bool(row["unchanged"]) for row in its),
            worst_lag_seconds=max(lags, default=None),
        )
