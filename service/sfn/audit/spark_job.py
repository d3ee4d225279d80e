"""Run an audit on Spark: compare every table of catalogs of any size with its directory.

    sfn audit run --config sfn.toml --report /warehouse/ops/audit

Spark distributes the work. Its Python processes run the listener's own code, and write nothing but the report. The
driver notifies the listener of tables that differ.
"""

from __future__ import annotations

import gc
import pickle
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Final

import anyio
import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark import RDD, TaskContext
from pyspark.sql import Row, SparkSession

from sfn.app.catalogs import open_read_only, table_filter
from sfn.audit import report, storage, writer
from sfn.audit.report import ReportRow, RunTotals, slice_of
from sfn.audit.slices import (
    AuditOptions,
    NamespacePart,
    audit_slice,
    count_states,
    error_text,
    list_namespaces,
    list_tables,
)
from sfn.audit.storage import ReportLocation
from sfn.audit.throttle import CatalogRateLimiter, CatalogRetries, RateLimitedCatalog
from sfn.audit.writer import (
    RunProgress,
    SliceResult,
    begin_run,
    files_of_previous_runs,
    find_unfinished,
    list_runs,
    write_data_file,
)
from sfn.cli.client import EventAccess, ServiceClient, event_access
from sfn.cli.options import ServiceOptions
from sfn.clock import SystemClock
from sfn.domain.identifiers import TableIdentifier, decode_identifier, encode_identifier
from sfn.errors import SfnError
from sfn.settings.root import Settings
from sfn.spark.start import forget_archive_finders
from sfn.telemetry import logs


@dataclass(frozen=True, slots=True)
class AuditNotification:
    """A table that the listener is to be notified of."""

    catalog: str
    namespace: tuple[str, ...]
    name: str
    metadata_location: str | None


@dataclass(frozen=True, slots=True)
class SliceOutcome:
    """The outcome of one slice.

    Attributes:
        number: the slice's number.
        states: numbers of rows by state.
        totals: totals of the rows.
        file: the data file with the rows, which is in no snapshot yet; None if there are none.
        notifications: the tables that the listener is to be notified of.
        failures: the first tables and namespaces that could not be checked, and the reasons.
        error: the reason why there are no rows; empty if there are.
        unread: the reason why rows of an earlier run could not be read, so that tables that are gone since are unknown;
            empty if they were read.
    """

    number: int
    states: Mapping[str, int] = field(default_factory=dict)
    totals: RunTotals = RunTotals()
    file: DataFile | None = None
    notifications: tuple[AuditNotification, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    error: str = ""
    unread: str = ""


def warm_up_process() -> None:
    """Avoid repeated work before and after every task: import caches and garbage collection."""
    forget_archive_finders()
    _leave_imported()


def collect_partition(partition: Iterable[Row]) -> list[Row]:
    """Return all rows of a partition; runs in the process that sends them to the driver."""
    warm_up_process()
    return list(partition)


@cache
def _leave_imported() -> None:
    # Spark collects garbage after every task. Frozen objects, such as imported modules, are left out.
    gc.freeze()


_APART, _FURTHEST = 1.0, 60.0
"""Least and greatest pause in seconds from the end of a commit to the next one."""
_PAUSES: Final = 10
"""Ratio of the pause after a commit to the commit's duration."""
_SHOWN: Final = 500
"""The maximum number of characters of an error of Spark."""


def run_slices(spark: SparkSession, shared_out: RDD[Row], run: RunProgress, wide: int) -> Generator[list[SliceOutcome]]:
    """Yield the outcomes of slices in groups: those that finish during the last commit and the pause after it.

    Args:
        shared_out: the outcomes, one partition for each slice.
        run: the run; slices that are done are left out, also if another process finished them meanwhile.
        wide: the number of jobs that run at a time.
    """
    context, name = spark.sparkContext, run.run.name

    def one(number: int) -> SliceOutcome | None:
        if number in run.done:
            return None
        context.addJobTag(name)
        context.setJobDescription(f"sfn audit {name}: slice {number}")
        try:
            (row,) = context.runJob(shared_out, collect_partition, [number])
            outcome: SliceOutcome = pickle.loads(row.outcome)  # noqa: S301 - written by our own processes
        except Exception as error:  # noqa: BLE001 - Spark raises any type; the other slices continue
            return SliceOutcome(number, error=spark_error_text(error))
        return outcome

    threads = ThreadPoolExecutor(wide, "sfn-audit")
    left = [number for number in range(run.run.slices) if number not in run.done]
    waiting: set[Future[SliceOutcome | None]] = {threads.submit(one, number) for number in left}
    next_at = 0.0
    try:
        while waiting:
            wait(waiting, return_when=FIRST_COMPLETED)
            # A commit of one slice takes as long as one of many: spend at most a tenth of the time on commits.
            done, waiting = wait(waiting, timeout=max(0.0, next_at - time.monotonic()))
            began = time.monotonic()
            yield [outcome for future in done if (outcome := future.result()) is not None]
            ended = time.monotonic()
            next_at = ended + min(max(_APART, _PAUSES * (ended - began)), _FURTHEST)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        if waiting:
            context.cancelJobsWithTag(name)
        threads.shutdown()


def spark_error_text(error: Exception) -> str:
    """Return Spark's message without stack traces: of a Python trace only the last line, which is the error."""
    lines = []
    for line in str(error).splitlines():
        if line.strip().startswith(("at ", "JVM stacktrace")):
            break
        lines += [line.strip().removeprefix(": ")] if line.strip() else []
    return f"{type(error).__name__}: {lines[-1] if lines else 'no reason'}"[:_SHOWN]


MAX_FAILURES_NAMED: Final = 20
"""The maximum number of failures that are named per slice."""

_UVLOOP: Final = {"use_uvloop": True}
LISTED_SCHEMA: Final = (
    "catalog string, namespace array<string>, name string, refused string, withheld boolean, slice int"
)
OUTCOME_SCHEMA: Final = "outcome binary"
_LISTED_ARROW: Final = pa.schema(
    [
        ("catalog", pa.string()),
        ("namespace", pa.list_(pa.string())),
        ("name", pa.string()),
        ("refused", pa.string()),
        ("withheld", pa.bool_()),
        ("slice", pa.int32()),
    ]
)
_OUTCOME_ARROW: Final = pa.schema([("outcome", pa.binary())])

Batches = Iterable[pa.RecordBatch]


def list_tables_task(options: AuditOptions) -> Callable[[Batches], Batches]:
    """Return the task that lists the tables of namespaces, each with its slice."""

    def listed(batches: Batches) -> Batches:
        logs.configure_logging("error", "console")
        warm_up_process()
        for batch in batches:
            rows = batch.to_pylist()
            given = [
                NamespacePart(row["catalog"], tuple(row["namespace"]), row["refused"] or "", bool(row["withheld"]))
                for row in rows
            ]
            yield pa.RecordBatch.from_pylist(
                anyio.run(_list_tables, options, given, backend_options=_UVLOOP), _LISTED_ARROW
            )

    return listed


async def _list_tables(options: AuditOptions, given: Sequence[NamespacePart]) -> list[dict[str, Any]]:
    found = [_refused_row(options, part) for part in given if part.refused]
    async with open_read_only(options.settings) as parts:
        for name in options.catalogs:
            of = [part for part in given if part.catalog == name and not part.refused]
            if not of:
                continue
            catalog = RateLimitedCatalog(parts.catalogs[name], CatalogRateLimiter(options.rate))
            its, refused = await list_tables(
                of, catalog, table_filter(options.settings.catalogs[name]), CatalogRetries(options.patience)
            )
            found += [_listed_row(options, name, table.namespace, table.name) for table in its]
            found += [_refused_row(options, part) for part in refused]
    return found


def _listed_row(options: AuditOptions, catalog: str, namespace: tuple[str, ...], name: str) -> dict[str, Any]:
    number = slice_of(catalog, encode_identifier(namespace, name), options.run.slices)
    return {"catalog": catalog, "namespace": namespace, "name": name, "slice": number}


def _refused_row(options: AuditOptions, part: NamespacePart) -> dict[str, Any]:
    identifier = encode_identifier(part.namespace[:-1], part.namespace[-1]) if part.namespace else ""
    number = slice_of(part.catalog, identifier, options.run.slices)
    refusal = {"refused": part.refused, "withheld": part.withheld}
    return {"catalog": part.catalog, "namespace": part.namespace, "name": "", "slice": number, **refusal}


def audit_slice_task(options: AuditOptions) -> Callable[[Batches], Batches]:
    """Return the task that audits the tables of a slice. It raises nothing: errors are part of the outcome."""

    def audited(batches: Batches) -> Batches:
        logs.configure_logging("error", "console")
        warm_up_process()
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        try:
            outcome = _audit_slice(options, number, batches)
        except Exception as error:  # noqa: BLE001 - the driver reports it
            message = str(error) if isinstance(error, SfnError) else f"{type(error).__name__}: {error}"
            outcome = SliceOutcome(number, error=message)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(outcome)])], schema=_OUTCOME_ARROW)

    return audited


def _audit_slice(options: AuditOptions, number: int, batches: Batches) -> SliceOutcome:
    names: list[TableIdentifier] = []
    refused: list[NamespacePart] = []
    for batch in batches:
        for row in batch.to_pylist():
            if row["name"]:
                names.append(TableIdentifier(row["catalog"], tuple(row["namespace"]), row["name"]))
            else:
                refused.append(
                    NamespacePart(row["catalog"], tuple(row["namespace"]), row["refused"], bool(row["withheld"]))
                )
    files = load_file_io(dict(options.files), options.report_location)
    before, unread = {}, ""
    try:
        before = report.read_previous_rows(
            files, options.previous_files.get(number, ()), partial(_is_of_slice, options, number)
        )
    except Exception as error:  # noqa: BLE001 - drivers raise any type; files of another run must not fail this one
        unread = error_text(error)
    entries = anyio.run(partial(audit_slice, options, names, refused, before), backend_options=_UVLOOP)
    return replace(_to_outcome(options, number, entries), unread=unread)


def _is_of_slice(options: AuditOptions, number: int, catalog: str, identifier: str) -> bool:
    """Return whether a row of an earlier run, which may have had other slices, describes a table of this slice."""
    return catalog in options.catalogs and slice_of(catalog, identifier, options.run.slices) == number


def _to_outcome(options: AuditOptions, number: int, entries: list[ReportRow]) -> SliceOutcome:
    failed = [entry for entry in entries if entry.error is not None]
    return SliceOutcome(
        number,
        count_states(entries),
        RunTotals.of_rows(entries),
        write_data_file(options.report, options.files, number, entries),
        tuple(map(_to_notification, (entry for entry in entries if entry.notified))),
        tuple((f"{one.catalog}:{one.identifier}", one.error or "") for one in failed[:MAX_FAILURES_NAMED]),
    )


def _to_notification(entry: ReportRow) -> AuditNotification:
    *namespace, name = decode_identifier(entry.identifier)
    return AuditNotification(entry.catalog, tuple(namespace), name, entry.metadata_location)


EVENTS_PER_REQUEST: Final = 1_000
"""The maximum number of events that the listener accepts in one request."""
MAX_FAILURES_IN_A_ROW: Final = 3
"""The number of failed requests in a row after which no more are sent."""


class EventPoster:
    """A client that posts notifications as events, as a configured sender.

    After several failures in a row nothing more is sent. The report still has these tables, and the next audit finds
    them again.

    Args:
        senders: the access to the listener, by catalog.

    Attributes:
        accepted: the number of notifications that were accepted, including duplicates.
        ignored: the number of notifications that the listener ignored: its configuration excludes the tables, or their
            catalog is retired.
        error: the first error.
    """

    def __init__(self, senders: Mapping[str, EventAccess]) -> None:
        self._senders = senders
        self._failures_in_a_row = 0
        self.accepted = self.ignored = 0
        self.error = ""

    def post(self, notifications: Iterable[AuditNotification]) -> int:
        """Post notifications, and return the number of failed ones. Raises nothing."""
        by_catalog = defaultdict[str, list[AuditNotification]](list)
        for notification in notifications:
            by_catalog[notification.catalog].append(notification)
        return sum(
            self._post_batch(self._senders[catalog], its[start : start + EVENTS_PER_REQUEST])
            for catalog, its in by_catalog.items()
            for start in range(0, len(its), EVENTS_PER_REQUEST)
        )

    def _post_batch(self, sender: EventAccess, notifications: Sequence[AuditNotification]) -> int:
        if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            return len(notifications)
        events = [_event(sender, notification) for notification in notifications]
        try:
            with ServiceClient(sender.access) as service:
                taken = service.post_events(events)
        except SfnError as error:
            self._failures_in_a_row += 1
            self.error = self.error or str(error)
            return len(notifications)
        self._failures_in_a_row = 0
        self.accepted += taken.accepted + taken.duplicates
        self.ignored += taken.ignored
        return 0


def event_senders(flags: ServiceOptions, catalogs: Iterable[str], sender: str | None) -> dict[str, EventAccess]:
    """Return the access to the listener by catalog.

    Raises:
        ConfigurationError: no sender may report a catalog.
    """
    return {catalog: event_access(flags, catalog, sender) for catalog in catalogs}


def _event(sender: EventAccess, notification: AuditNotification) -> Mapping[str, object]:
    event: dict[str, object] = {"namespace": notification.namespace, "name": notification.name}
    optional = {"catalog": sender.sender_catalog, "metadata_location": notification.metadata_location}
    return event | {key: text for key, text in optional.items() if text is not None}


EXECUTORS_REMEDY: Final = "check Spark's log; every executor needs the packages of the extra `spark`"
_RERUN_REMEDY: Final = "run it again: finished slices stay in the report, and the run is resumed"
OnProgress = Callable[[int, int], None]
"""Called with the number of slices done, and their total."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The parameters of an audit.

    Attributes:
        settings: the catalogs and stores.
        catalogs: the names of the catalogs to audit.
        report: the report's place.
        slices: the number of slices of a new report.
        rate: requests a second to each catalog, for all of Spark's processes together; None for no limit.
        patience: how many seconds to wait for a catalog or store that has answered before.
        deep: check all files of current snapshots.
        options: options for fsspec's driver to open these files.
        fresh: start a new run, even if the last one was interrupted.
        keep: how many runs the report keeps; None for all.
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
    """The findings of a run; for a resumed run, those since it was resumed.

    Attributes:
        run: the run's name.
        resumed_slices: the number of slices that were done before.
        run_totals: the totals of the whole run.
        states: numbers of rows by state.
        unchanged: the number of tables that have not changed, by their catalogs' answers.
        failures: the first tables and namespaces that could not be checked, and the reasons.
        failed: slices without rows, and the reasons.
        unread: slices for which the rows of the last run could not be read, and the reasons.
        removed_runs: the number of old runs that were removed.
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
    """Run an audit, or resume one.

    Args:
        poster: notifies the listener of tables that differ; None to write the report only.

    Raises:
        SfnError: the report can't be written, Spark fails, or a package is missing.
    """
    with storage.map_report_errors(str(request.report), _RERUN_REMEDY):
        table = storage.open_report(request.report, request.slices)
    known, now = list_runs(table), SystemClock().now()
    run = None if request.fresh else find_unfinished(known, request.catalogs, now, deep=request.deep)
    run = run or begin_run(
        now, storage.report_slices(table, str(request.report)), request.catalogs, known, deep=request.deep
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
            with storage.map_report_errors(str(request.report), _RERUN_REMEDY):
                good = [SliceResult(one.number, one.totals, one.file) for one in some if not one.error]
                writer.commit_slices(table, run, good, unnotified)
            on_progress(len(run.done) + len(found.failed), run.run.slices)
    if not found.failed:
        with storage.map_report_errors(str(request.report), _RERUN_REMEDY):
            found.removed_runs = writer.remove_old_runs(table, request.keep, now)
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
    """Return the outcomes of all slices, one partition each; the listing of tables is shared by all."""
    found = anyio.run(_list_all_namespaces, request, options, backend_options={"use_uvloop": True})
    options = replace(options, unreachable_catalogs={one.catalog: one.refused for one in found if _is_unreachable(one)})
    schema = "catalog string, namespace array<string>, refused string, withheld boolean"
    named = [(one.catalog, list(one.namespace), one.refused, one.withheld) for one in found]
    # Spark splits a given list into one partition for each processor.
    given = spark.createDataFrame(named, schema)
    listed = given.mapInArrow(list_tables_task(options), LISTED_SCHEMA).repartitionById(options.run.slices, "slice")
    try:
        # The plan is adaptive, so `rdd` already runs the listing of tables.
        return listed.mapInArrow(audit_slice_task(options), OUTCOME_SCHEMA).rdd
    except Exception as error:
        expected = "a job that lists the tables"
        raise SfnError("Spark", expected=expected, found=spark_error_text(error), remedy=EXECUTORS_REMEDY) from error


def _is_unreachable(part: NamespacePart) -> bool:
    """Return whether a catalog as a whole could not be queried, which is not the same as a missing permission."""
    return not part.namespace and bool(part.refused) and not part.withheld


async def _list_all_namespaces(request: AuditRequest, options: AuditOptions) -> list[NamespacePart]:
    """Return the namespaces of all catalogs."""
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
