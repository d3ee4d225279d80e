"""A report, for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sfn.cli.pages import Grid, Line, Page, Tone, escape, format_time, pluralise
from sfn.clock import format_duration
from sfn.report.reading import AuditReport, ReportedTable, RunSummary
from sfn.report.totals import FINE_STATES

_NUMBERS = frozenset({"TABLES", "LAG", "BEHIND", "KEPT", "LIVES", "DIFFER", "UNSEEN", "UNCHANGED", "WORST LAG"})


def report_page(report: AuditReport) -> Page:
    """All of it."""
    found: list[Line | Grid] = []
    whole = "" if report.is_whole else ", not at its end: the next audit goes on with it"
    deep = ", with all files" if report.deep else ""
    found.append(Line(f"run {report.run} of {format_time(report.began_at)}{deep}{whole}", _tone(report)))
    states = [
        (f"  {escape(catalog)}", state, f"{number:,}")
        for catalog, counts in report.states.items()
        for state, number in counts.items()
    ]
    found.append(Grid(("  CATALOG", "STATE", "TABLES"), states, _NUMBERS))
    found += _listed("the worst lag", report.worst_lag, len(report.worst_lag))
    found += _listed("files that are not ours", report.foreign, report.foreign_total)
    found += _listed("near their metadata's retention", report.near_retention, report.near_retention_total)
    found += _listed("files of the current snapshot are missing", report.missing_files, report.missing_files_total)
    found += _listed("not looked at", report.unchecked, report.unchecked_total)
    if report.oldest_file_seconds is not None:
        oldest = format_duration(timedelta(seconds=report.oldest_file_seconds))
        found.append(Line(f"the oldest SFN file was written {oldest} before the run looked at it"))
    found.append(Line("the last runs"))
    found.append(Grid(("  RUN", "TABLES", "DIFFER", "UNSEEN", "UNCHANGED", "WORST LAG"), _past(report.trend), _NUMBERS))
    return found


def _tone(report: AuditReport) -> Tone:
    is_fine = all(state in FINE_STATES for counts in report.states.values() for state in counts)
    return Tone.GOOD if is_fine and report.is_whole and not report.missing_files_total else Tone.WARNING


def _listed(title: str, rows: Sequence[ReportedTable], total: int) -> list[Line | Grid]:
    if not rows:
        return []
    more = f" (the first {len(rows)} of {pluralise(total, 'table')}: --limit)" if total > len(rows) else ""
    cells = [
        (
            f"  {escape(f'{row.catalog}:{row.table}')}",
            row.state,
            _time(row.lag_seconds),
            "" if row.commits_behind is None else f"{row.commits_behind:,}",
            "" if row.previous_versions_max is None else f"{row.previous_versions_max:,}",
            _time(row.lifetime_seconds),
            escape(row.detail),
        )
        for row in rows
    ]
    heads = ("  TABLE", "STATE", "LAG", "BEHIND", "KEPT", "LIVES", "DETAIL")
    return [Line(f"{title}{more}"), Grid(heads, cells, _NUMBERS, "DETAIL")]


def _time(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(timedelta(seconds=seconds))


def _past(trend: Sequence[RunSummary]) -> list[tuple[str, ...]]:
    return [
        (
            f"  {one.run}{'' if one.is_whole else ' (in part)'}",
            f"{one.tables:,}",
            f"{one.differing:,}",
            f"{one.unchecked:,}",
            f"{one.unchanged:,}",
            _time(one.worst_lag_seconds),
        )
        for one in trend
    ]
