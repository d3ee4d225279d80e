"""From what was typed to a run, and from the run to what is told of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from msgspec import Struct
from pyspark.sql import SparkSession

from sfn.app import catalogs as app_catalogs
from sfn.cli.options import ServiceOptions
from sfn.cli.render import progress
from sfn.cli.sweep import check_sweepable
from sfn.errors import SfnError
from sfn.report.opening import parse_report_location
from sfn.report.slices import MAX_SLICES, is_valid_count
from sfn.settings import load
from sfn.settings.model import Settings
from sfn.settings.service import java_home
from sfn.settings.sources import ConfigurationError
from sfn.spark.audit.job import AuditFindings, AuditRequest, run_audit
from sfn.spark.audit.jobs import spark_error_text
from sfn.spark.audit.telling import EventPoster, event_senders
from sfn.spark.environment import check_java
from sfn.telemetry import logs


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditArguments:
    """What was typed."""

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
    storage_options: Mapping[str, str]
    master: str | None
    sender: str | None
    flags: ServiceOptions


class AuditFailure(Struct, frozen=True):
    """A table, or a namespace, that could not be looked at."""

    name: str
    why: str


class AuditSummary(Struct, frozen=True):
    """What came of a run; of one that was gone on with, all that is missing, refused or not told of is counted."""

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
        """Whether everything could be looked at and told of."""
        return not (self.failures_total or self.slices_failed or self.notifications_failed)


def run_from_arguments(arguments: AuditArguments) -> AuditSummary:
    """Do it.

    Raises:
        Misconfigured: something that was typed, or the configuration, is wrong.
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
    # What the adapters log would stand among what the command prints.
    logs.configure_logging("error", "console")
    with _session(arguments.master) as spark, progress("slices", None) as on_progress:
        found = run_audit(spark, request, poster, on_progress)
    return _to_summary(found, request, poster or EventPoster({}))


def _choose_catalogs(settings: Settings, named: tuple[str, ...]) -> tuple[str, ...]:
    askable = [name for name in settings.catalogs if name not in settings.event_only_catalogs]
    for name in named:
        check_sweepable(name, askable, settings.event_only_catalogs)
    chosen = tuple(name for name in askable if not named or name in named)
    if not chosen:
        raise _option_error("catalogs", "a catalog that can be asked", "none")
    return chosen


@contextmanager
def _session(master: str | None) -> Iterator[SparkSession]:
    """The session that there is, as a notebook's, or one for this run, as spark-submit says or on this machine."""
    there = SparkSession.getActiveSession()
    if there is not None:
        yield there
        return
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # noqa: TID251 - where spark-submit has started a Java already
        check_java(java_home())
    # Where nobody says which, Spark's own is this machine: `local[*]`.
    builder = SparkSession.builder.appName("sfn audit")
    try:
        spark = (builder if master is None else builder.master(master)).getOrCreate()
    except Exception as error:
        raise SfnError(
            "Spark", expected="a session", found=spark_error_text(error), remedy="see Spark's log"
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
