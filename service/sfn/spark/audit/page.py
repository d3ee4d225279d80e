"""What a run found, for people."""

from __future__ import annotations

from sfn.cli.render import Grid, Line, Page, Tone, escape, pluralise
from sfn.report.totals import FINE_STATES
from sfn.spark.audit.command import AuditSummary


def render_summary(summary: AuditSummary) -> Page:
    """All of it."""
    page: list[Line | Grid] = []
    checked = f"run {summary.run}: {pluralise(summary.tables, 'row')}"
    before = f", after {pluralise(summary.slices_resumed, 'slice')} of before" if summary.slices_resumed else ""
    page.append(
        Line(f"{checked}{before}; {summary.unchanged:,} unchanged", Tone.GOOD if _is_fine(summary) else Tone.WARNING)
    )
    if summary.states:
        rows = [(f"  {state}", f"{number:,}") for state, number in summary.states.items()]
        page.append(Grid(("  STATE", "TABLES"), rows, frozenset({"TABLES"})))
    if summary.notified or summary.notifications_ignored:
        ignored = (
            f"; it passes over {summary.notifications_ignored:,}: include, exclude or retired"
            if summary.notifications_ignored
            else ""
        )
        page.append(Line(f"the service was told of {pluralise(summary.notified, 'table')}{ignored}"))
    if summary.missing_files:
        page.append(Line(f"{pluralise(summary.missing_files, 'table')} lack files: `sfn report` names them", Tone.BAD))
    if summary.notifications_failed:
        why = summary.notifications_error or "before this run was gone on with"
        page.append(Line(f"it was not told of {summary.notifications_failed:,}: {escape(why)}", Tone.BAD))
    page += [Line(f"  could not look at {escape(one.name)}: {escape(one.why)}", Tone.BAD) for one in summary.failures]
    if (more := summary.failures_total - len(summary.failures)) > 0:
        page.append(Line(f"  and {more:,} more: `sfn report` has all", Tone.BAD))
    for number, why in summary.slices_failed.items():
        page.append(Line(f"  slice {number} has no rows: {escape(why)}; the next run goes on with it", Tone.BAD))
    if summary.slices_unread:
        why = next(iter(summary.slices_unread.values()))
        which = pluralise(len(summary.slices_unread), "slice")
        page.append(Line(f"of {which} the last run could not be read, nor what is gone since: {escape(why)}", Tone.BAD))
    if summary.runs_removed:
        page.append(Line(f"{pluralise(summary.runs_removed, 'old run')} removed from the report", Tone.QUIET))
    page.append(Line(f"the report: sfn report {escape(summary.report)}", Tone.QUIET))
    return page


def _is_fine(summary: AuditSummary) -> bool:
    return (
        summary.is_whole
        and not summary.missing_files
        and not summary.slices_unread
        and summary.states.keys() <= FINE_STATES
    )
