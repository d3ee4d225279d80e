"""What a run found, for people."""

from __future__ import annotations

from sfn.cli.pages import Grid, Line, Page, Tone, counted, safe
from sfn.report.totals import FINE
from sfn.spark.audit.command import Told


def outcome(told: Told) -> Page:
    """All of it."""
    page: list[Line | Grid] = []
    looked = f"run {told.run}: {counted(told.tables, 'row')}"
    before = f", after {counted(told.slices_before, 'slice')} of before" if told.slices_before else ""
    page.append(Line(f"{looked}{before}; {told.unchanged:,} unchanged", Tone.GOOD if _is_fine(told) else Tone.WARNING))
    if told.states:
        rows = [(f"  {state}", f"{number:,}") for state, number in told.states.items()]
        page.append(Grid(("  STATE", "TABLES"), rows, frozenset({"TABLES"})))
    if told.hints or told.hints_ignored:
        ignored = f"; it passes over {told.hints_ignored:,}: include, exclude or retired" if told.hints_ignored else ""
        page.append(Line(f"the service was told of {counted(told.hints, 'table')}{ignored}"))
    if told.missing_files:
        page.append(Line(f"{counted(told.missing_files, 'table')} lack files: `sfn report` names them", Tone.BAD))
    if told.hints_failed:
        why = told.hints_error or "before this run was gone on with"
        page.append(Line(f"it was not told of {told.hints_failed:,}: {safe(why)}", Tone.BAD))
    page += [Line(f"  could not look at {safe(one.name)}: {safe(one.why)}", Tone.BAD) for one in told.refused]
    if (more := told.refused_total - len(told.refused)) > 0:
        page.append(Line(f"  and {more:,} more: `sfn report` has all", Tone.BAD))
    for number, why in told.slices_failed.items():
        page.append(Line(f"  slice {number} has no rows: {safe(why)}; the next run goes on with it", Tone.BAD))
    if told.slices_unread:
        why = next(iter(told.slices_unread.values()))
        which = counted(len(told.slices_unread), "slice")
        page.append(Line(f"of {which} the last run could not be read, nor what is gone since: {safe(why)}", Tone.BAD))
    if told.runs_forgotten:
        page.append(Line(f"{counted(told.runs_forgotten, 'old run')} removed from the report", Tone.QUIET))
    page.append(Line(f"the report: sfn report {safe(told.report)}", Tone.QUIET))
    return page


def _is_fine(told: Told) -> bool:
    return told.is_whole and not told.missing_files and not told.slices_unread and told.states.keys() <= FINE
