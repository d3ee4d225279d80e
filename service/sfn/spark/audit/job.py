"""A run from the driver's side: what is to be done, shared out by slices, and committed as these come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
from pyiceberg.table import Table
from pyspark import RDD
from pyspark.sql import Row, SparkSession

from sfn.app.catalogs import open_read_only, table_filter
from sfn.clock import SystemClock
from sfn.errors import SfnError
from sfn.report import keeping, opening, theirs
from sfn.report.keeping import SliceResult
from sfn.report.listing import NamespacePart, list_namespaces
from sfn.report.opening import ReportLocation
from sfn.report.pace import CatalogRateLimiter, RateLimitedCatalog
from sfn.report.runs import RunProgress, begin_run, files_of_previous_runs, find_unfinished, list_runs
from sfn.report.terms import AuditOptions
from sfn.report.totals import RunTotals
from sfn.report.trials import CatalogRetries
from sfn.settings.model import Settings
from sfn.spark.audit.jobs import run_slices, spark_error_text
from sfn.spark.audit.outcome import SliceOutcome
from sfn.spark.audit.parts import LISTED_SCHEMA, OUTCOME_SCHEMA, audit_slice_task, list_tables_task
from sfn.spark.audit.telling import EventPoster

MAX_FAILURES_NAMED: Final = 20
"""Tables that are named of those that could not be looked at."""

EXECUTORS_REMEDY: Final = "see Spark's log; every executor needs what the driver has: pip install '.[spark]'"
_RERUN_REMEDY: Final = "run it again: what is in the report stays there, and the rest is gone on with"
OnProgress = Callable[[int, int], None]
"""Told how many slices of how many are done."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What is to be done.

    Attributes:
        settings: the catalogs and stores.
        catalogs: which of them are audited.
        report: where it is written.
        slices: of a report that is new.
        rate: requests a second to each catalog, all of Spark's processes together; None for any.
        patience: seconds that are waited for a catalog or store that has answered before.
        deep: look at all files of current snapshots.
        options: what fsspec's driver is given for these.
        fresh: go on with no run that was ended before its time.
        keep: runs that the report keeps; None for all.
    """

    settings: Settings = field(repr=False)
    catalogs: tuple[str, ...]
    report: ReportLocation
    slices: int
    rate: float | None
    patience: float
    deep: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    fresh: bool = False
    keep: int | None = None


@dataclass(slots=True)
class AuditFindings:
    """What a run found; of one that was gone on with, what was found since.

    Attributes:
        run: its name.
        resumed_slices: slices that were done before.
        run_totals: all of the run, with what was found before it was gone on with.
        states: rows by state.
        unchanged: tables of which their catalogs only said so.
        failures: the first of what could not be looked at, and why.
        failed: slices without rows, and why.
        unread: why what the last run said could not be read, of slices where that was so.
        removed_runs: old runs that were removed.
    """

    run: str
    resumed_slices: int = 0
    run_totals: RunTotals = RunTotals()
    states: Counter[str] = field(default_factory=Counter)
    unchanged: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)
    removed_runs: int = 0


def run_audit(
    spark: SparkSession, request: AuditRequest, poster: EventPoster | None, on_progress: OnProgress
) -> AuditFindings:
    """One run, or the rest of one.

    Args:
        poster: tells the service of what differs; None to leave it at the report.

    Raises:
        SfnError: the report can't be written, Spark does not run what it is given, or a package is missing.
    """
    with theirs.map_report_errors(str(request.report), _RERUN_REMEDY):
        table = opening.open_report(request.report, request.slices)
    known, now = list_runs(table), SystemClock().now()
    run = None if request.fresh else find_unfinished(known, request.catalogs, now, deep=request.deep)
    run = run or begin_run(
        now, opening.report_slices(table, str(request.report)), request.catalogs, known, deep=request.deep
    )
    wide = spark.sparkContext.defaultParallelism
    options = _to_options(request, table, run, known, wide)
    found = AuditFindings(run.run.name, len(run.done))
    with closing(run_slices(spark, _outcomes_by_slice(spark, options, request), run, wide)) as coming:
        for some in coming:
            _add_outcomes(found, some)
            unnotified = (
                0 if poster is None else poster.post(notification for one in some for notification in one.notifications)
            )
            with theirs.map_report_errors(str(request.report), _RERUN_REMEDY):
                good = [SliceResult(one.number, one.totals, one.file) for one in some if not one.error]
                keeping.commit_slices(table, run, good, unnotified)
            on_progress(len(run.done) + len(found.failed), run.run.slices)
    if not found.failed:
        with theirs.map_report_errors(str(request.report), _RERUN_REMEDY):
            found.removed_runs = keeping.remove_old_runs(table, request.keep, now)
    found.run_totals = run.totals
    return found


def _to_options(
    request: AuditRequest, table: Table, run: RunProgress, known: Sequence[RunProgress], wide: int
) -> AuditOptions:
    bare = table.metadata.model_copy(
        update={"snapshots": [], "refs": {}, "snapshot_log": [], "metadata_log": [], "current_snapshot_id": None}
    )
    return AuditOptions(
        run=run.run,
        settings=request.settings,
        catalogs=request.catalogs,
        rate=None if request.rate is None else request.rate / wide,
        patience=request.patience,
        deep=request.deep,
        options=request.options,
        files=dict(table.io.properties),
        report=bare.model_dump_json(),
        report_location=table.location(),
        previous_files=files_of_previous_runs(table, known, run),
    )


def _add_outcomes(found: AuditFindings, outcomes: Sequence[SliceOutcome]) -> None:
    for one in outcomes:
        if one.error:
            found.failed[one.number] = one.error
        found.states.update(one.states)
        if one.unread:
            found.unread[one.number] = one.unread
        found.unchanged += one.totals.unchanged
        found.failures += one.failures[: MAX_FAILURES_NAMED - len(found.failures)]


def _outcomes_by_slice(spark: SparkSession, options: AuditOptions, request: AuditRequest) -> RDD[Row]:
    """The outcomes of all slices, of which each is had by itself; the listing is shared by all of them."""
    found = anyio.run(_list_all_namespaces, request, options, backend_options={"use_uvloop": True})
    options = replace(options, unreachable_catalogs={one.catalog: one.refused for one in found if _is_unreachable(one)})
    schema = "catalog string, namespace array<string>, refused string, withheld boolean"
    named = [(one.catalog, list(one.namespace), one.refused, one.withheld) for one in found]
    # As many partitions as there are processors: a list that is given is shared out.
    given = spark.createDataFrame(named, schema)
    listed = given.mapInArrow(list_tables_task(options), LISTED_SCHEMA).repartitionById(options.run.slices, "slice")
    try:
        # The plan is one that adapts: here the tables are listed.
        return listed.mapInArrow(audit_slice_task(options), OUTCOME_SCHEMA).rdd
    except Exception as error:
        expected = "a job that lists the tables"
        raise SfnError("Spark", expected=expected, found=spark_error_text(error), remedy=EXECUTORS_REMEDY) from error


def _is_unreachable(part: NamespacePart) -> bool:
    """Whether a catalog as a whole could not be asked, which is another thing than one that may not be listed."""
    return not part.namespace and bool(part.refused) and not part.withheld


async def _list_all_namespaces(request: AuditRequest, options: AuditOptions) -> list[NamespacePart]:
    """The namespaces of all catalogs."""
    found: list[NamespacePart] = []

    async def of(name: str) -> None:
        try:
            catalog = RateLimitedCatalog(all_parts.catalogs[name], CatalogRateLimiter(request.rate))
            found.extend(
                await list_namespaces(
                    name, catalog, table_filter(request.settings.catalogs[name]), CatalogRetries(options.patience)
                )
            )
        except SfnError as error:
            found.append(NamespacePart(name, (), str(error)))

    async with open_read_only(request.settings) as all_parts, anyio.create_task_group() as tasks:
        for name in request.catalogs:
            tasks.start_soon(of, name)
    return found
