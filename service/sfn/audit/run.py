"""The run of `sfn audit run`: its arguments, its Spark session and its summary."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from sfn.app import catalogs as app_catalogs
from sfn.audit.report import FINE_STATES, MAX_SLICES, is_valid_count
from sfn.audit.spark_job import AuditFindings, AuditRequest, EventPoster, event_senders, run_audit, spark_error_text
from sfn.audit.storage import parse_report_location
from sfn.cli.options import ServiceOptions
from sfn.cli.render import Grid, Line, Page, Tone, escape, progress
from sfn.cli.sweep import check_sweepable
from sfn.errors import SfnError, pluralise
from sfn.settings import load
from sfn.settings.root import Settings
from sfn.settings.sections import java_home
from sfn.settings.sources import ConfigurationError
from sfn.spark.start import check_java
from sfn.telemetry import logs


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditArguments:
    """The command's arguments."""

    report: str
    catalogs: tuple[str, ...]
    deep: bool
    notify: bool
    rate: float | None
    slices: int
    fresh: bool
    keep: int
    patience: float
    report_options: Mapping[str, str]
    storage_options: Mapping[str, Any]
    master: str | None
    sender: str | None
    flags: ServiceOptions


@dataclass(frozen=True, slots=True)
class AuditFailure:
    """A table or namespace that could not be checked."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """The result of a run; for a resumed run, missing files, failures and failed notifications count from its start."""

    run: str
    report: str
    tables: int
    states: dict[str, int]
    unchanged: int
    slices_resumed: int
    notified: int
    notifications_ignored: int
    notifications_failed: int
    notifications_error: str
    missing_files: int
    failures: list[AuditFailure]
    failures_total: int
    slices_failed: dict[int, str]
    slices_unread: dict[int, str]
    runs_removed: int

    @property
    def is_whole(self) -> bool:
        """True if every table was checked, and every notification accepted."""
        return not (self.failures_total or self.slices_failed or self.notifications_failed)


def run_from_arguments(arguments: AuditArguments) -> AuditSummary:
    """Run an audit.

    Raises:
        ConfigurationError: an argument or the configuration is wrong.
        SfnError: the report can't be written.
    """
    if not is_valid_count(arguments.slices):
        raise _option_error("--slices", f"a power of two up to {MAX_SLICES}", f"{arguments.slices}")
    settings = load(arguments.flags.config)
    app_catalogs.check_adapters(settings)
    catalogs = _choose_catalogs(settings, arguments.catalogs)
    request = AuditRequest(
        settings=settings,
        catalogs=catalogs,
        report=parse_report_location(arguments.report, settings, arguments.report_options),
        slices=arguments.slices,
        rate=arguments.rate,
        patience=arguments.patience,
        deep=arguments.deep,
        options=arguments.storage_options,
        fresh=arguments.fresh,
        keep=arguments.keep,
    )
    poster = EventPoster(event_senders(arguments.flags, catalogs, arguments.sender)) if arguments.notify else None
    # Log records of the adapters would disturb the command's output.
    logs.configure_logging("error", "console")
    with _session(arguments.master) as spark, progress("slices", None) as on_progress:
        found = run_audit(spark, request, poster, on_progress)
    return _to_summary(found, request, poster or EventPoster({}))


def _choose_catalogs(settings: Settings, named: tuple[str, ...]) -> tuple[str, ...]:
    queryable = [name for name in settings.catalogs if name not in settings.event_only_catalogs]
    for name in named:
        check_sweepable(name, queryable, settings.event_only_catalogs)
    chosen = tuple(name for name in queryable if not named or name in named)
    if not chosen:
        raise _option_error("catalogs", "a catalog that can be queried", "none")
    return chosen


@contextmanager
def _session(master: str | None) -> Iterator[SparkSession]:
    """Return the active session, such as a notebook's, or one for this run: spark-submit's, or a local one."""
    there = SparkSession.getActiveSession()
    if there is not None:
        yield there
        return
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # noqa: TID251 - where spark-submit has started a Java already
        check_java(java_home())
    # By default Spark's master is this machine: `local[*]`.
    builder = SparkSession.builder.appName("sfn audit")
    try:
        spark = (builder if master is None else builder.master(master)).getOrCreate()
    except Exception as error:
        raise SfnError(
            "Spark", expected="a session", found=spark_error_text(error), remedy="check Spark's log"
        ) from error
    try:
        yield spark
    finally:
        spark.stop()


def _to_summary(found: AuditFindings, request: AuditRequest, poster: EventPoster) -> AuditSummary:
    failures = [AuditFailure(name, why) for name, why in found.failures]
    return AuditSummary(
        run=found.run,
        report=str(request.report),
        tables=sum(found.states.values()),
        states=dict(sorted(found.states.items())),
        unchanged=found.unchanged,
        slices_resumed=found.resumed_slices,
        notified=poster.accepted,
        notifications_ignored=poster.ignored,
        notifications_failed=found.run_totals.unnotified,
        notifications_error=poster.error,
        missing_files=found.run_totals.with_missing_files,
        failures=failures,
        failures_total=found.run_totals.unchecked,
        slices_failed=dict(sorted(found.failed.items())),
        slices_unread=dict(sorted(found.unread.items())),
        runs_removed=found.removed_runs,
    )


def _option_error(where: str, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError([SfnError(where, expected=expected, found=found)])


def render_summary(summary: AuditSummary) -> Page:
    """Return the page with a run's result."""
    page: list[Line | Grid] = []
    checked = f"run {summary.run}: {pluralise(summary.tables, 'row')}"
    before = f", after {pluralise(summary.slices_resumed, 'finished slice')}" if summary.slices_resumed else ""
    page.append(
        Line(f"{checked}{before}; {summary.unchanged:,} unchanged", Tone.GOOD if _is_fine(summary) else Tone.WARNING)
    )
    if summary.states:
        rows = [(f"  {state}", f"{number:,}") for state, number in summary.states.items()]
        page.append(Grid(("  STATE", "TABLES"), rows, frozenset({"TABLES"})))
    if summary.notified or summary.notifications_ignored:
        ignored = (
            f"; it ignored {summary.notifications_ignored:,}: include, exclude or retired"
            if summary.notifications_ignored
            else ""
        )
        page.append(Line(f"the listener was notified of {pluralise(summary.notified, 'table')}{ignored}"))
    if summary.missing_files:
        page.append(Line(f"{pluralise(summary.missing_files, 'table')} lack files: see `sfn audit report`", Tone.BAD))
    if summary.notifications_failed:
        why = summary.notifications_error or "before this run was resumed"
        page.append(Line(f"{summary.notifications_failed:,} notifications failed: {escape(why)}", Tone.BAD))
    page += [Line(f"  could not check {escape(one.name)}: {escape(one.why)}", Tone.BAD) for one in summary.failures]
    if (more := summary.failures_total - len(summary.failures)) > 0:
        page.append(Line(f"  and {more:,} more: `sfn audit report` lists all", Tone.BAD))
    for number, why in summary.slices_failed.items():
        page.append(Line(f"  slice {number} failed: {escape(why)}; the next run repeats it", Tone.BAD))
    if summary.slices_unread:
        why = next(iter(summary.slices_unread.values()))
        which = pluralise(len(summary.slices_unread), "slice")
        unread = f"rows of the last run could not be read for {which}, so dropped tables are unknown"
        page.append(Line(f"{unread}: {escape(why)}", Tone.BAD))
    if summary.runs_removed:
        page.append(Line(f"{pluralise(summary.runs_removed, 'old run')} removed from the report", Tone.QUIET))
    page.append(Line(f"the report: sfn audit report {escape(summary.report)}", Tone.QUIET))
    return page


def _is_fine(summary: AuditSummary) -> bool:
    return (
        summary.is_whole
        and not summary.missing_files
        and not summary.slices_unread
        and summary.states.keys() <= FINE_STATES
    )
