"""The audit: every table of catalogs of any size, compared with what lies in its directory.

    python -m sfn.audit --config sfn.toml --report /warehouse/ops/audit

Spark shares the work out; each part of it runs the service's own code. Nothing is written but the report; what differs
goes to the service as hints.
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
from sfn.settings.model import Settings
from sfn.spark.start import forget_archive_finders
from sfn.telemetry import logs

# ── outcome: What one slice came to


@dataclass(frozen=True, slots=True)
class AuditNotification:
    """A table that the service is to be told of."""

    catalog: str
    namespace: tuple[str, ...]
    name: str
    metadata_location: str | None


@dataclass(frozen=True, slots=True)
class SliceOutcome:
    """One slice.

    Attributes:
        number: which.
        states: rows by state.
        totals: of the rows.
        file: the rows, in a data file that is in no snapshot yet; None where there are none.
        notifications: of whom the service is to be told.
        failures: the first tables and namespaces that could not be looked at, and why.
        error: why there are no rows; empty where there are.
        unread: why what an earlier run said could not be read, so that nothing is known of tables that are gone since;
            empty where it could.
    """

    number: int
    states: Mapping[str, int] = field(default_factory=dict)
    totals: RunTotals = RunTotals()
    file: DataFile | None = None
    notifications: tuple[AuditNotification, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    error: str = ""
    unread: str = ""


# ── sparing: What one of Spark's Python processes is spared from task to task


def warm_up_process() -> None:
    """Have what is only there to be imported not be looked through again before and after every task."""
    forget_archive_finders()
    _leave_imported()


def collect_partition(partition: Iterable[Row]) -> list[Row]:
    """All of a partition, in the process that hands it to the driver."""
    warm_up_process()
    return list(partition)


@cache
def _leave_imported() -> None:
    # Spark collects garbage after every task.
    gc.freeze()


# ── jobs: The slices of a run as jobs of Spark's

_APART, _FURTHEST = 1.0, 60.0
"""Seconds at least, and at most, from the end of a commit to the next one."""
_PAUSES: Final = 10
"""Times as long as a commit took that the next one waits."""
_SHOWN: Final = 500


def run_slices(spark: SparkSession, shared_out: RDD[Row], run: RunProgress, wide: int) -> Generator[list[SliceOutcome]]:
    """What slices come to, some at a time: so many as come while the last ones are seen to, and for a while after.

    Args:
        shared_out: the outcome of each, to be had by itself.
        run: of which those are left out that are done, also when another process has done them meanwhile.
        wide: how many jobs run at a time.
    """
    context, name = spark.sparkContext, run.run.name

    def one(number: int) -> SliceOutcome | None:
        if number in run.done:
            return None
        context.addJobTag(name)
        context.setJobDescription(f"sfn audit {name}: slice {number}")
        try:
            (row,) = context.runJob(shared_out, collect_partition, [number])
            outcome: SliceOutcome = pickle.loads(row.outcome)  # noqa: S301 - of our own processes
        except Exception as error:  # noqa: BLE001 - whatever Spark raises: the other slices go on
            return SliceOutcome(number, error=spark_error_text(error))
        return outcome

    threads = ThreadPoolExecutor(wide, "sfn-audit")
    left = [number for number in range(run.run.slices) if number not in run.done]
    waiting: set[Future[SliceOutcome | None]] = {threads.submit(one, number) for number in left}
    next_at = 0.0
    try:
        while waiting:
            wait(waiting, return_when=FIRST_COMPLETED)
            # A commit takes as long whether it is of one slice or of many: no more than a tenth of the time goes there.
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
    """What Spark says, without the stacks: of those of Python the last line, which is the error."""
    lines = []
    for line in str(error).splitlines():
        if line.strip().startswith(("at ", "JVM stacktrace")):
            break
        lines += [line.strip().removeprefix(": ")] if line.strip() else []
    return f"{type(error).__name__}: {lines[-1] if lines else 'no reason'}"[:_SHOWN]


# ── parts: What Spark's Python processes do

MAX_FAILURES_NAMED: Final = 20
"""Tables of a slice that are named of those that could not be looked at."""

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
    """From namespaces to their tables, each with its slice."""

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
    said = {"refused": part.refused, "withheld": part.withheld}
    return {"catalog": part.catalog, "namespace": part.namespace, "name": "", "slice": number, **said}


def audit_slice_task(options: AuditOptions) -> Callable[[Batches], Batches]:
    """From the tables of a slice to its outcome. It raises nothing: of a slice that fails the driver is told."""

    def looked(batches: Batches) -> Batches:
        logs.configure_logging("error", "console")
        warm_up_process()
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        try:
            outcome = _audit_slice(options, number, batches)
        except Exception as error:  # noqa: BLE001 - the driver says it
            said = str(error) if isinstance(error, SfnError) else f"{type(error).__name__}: {error}"
            outcome = SliceOutcome(number, error=said)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(outcome)])], schema=_OUTCOME_ARROW)

    return looked


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
    except Exception as error:  # noqa: BLE001 - whatever a driver raises: one run must not fail by another's files
        unread = error_text(error)
    entries = anyio.run(partial(audit_slice, options, names, refused, before), backend_options=_UVLOOP)
    return replace(_to_outcome(options, number, entries), unread=unread)


def _is_of_slice(options: AuditOptions, number: int, catalog: str, identifier: str) -> bool:
    """Whether a row of an earlier run, which may have had other slices, is of a table of this one."""
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


# ── telling: What differs is told to the service

EVENTS_PER_REQUEST: Final = 1_000
"""Events in one request, as many as the service takes."""
MAX_FAILURES_IN_A_ROW: Final = 3
"""Requests in a row that the service does not take until it is asked no more."""


class EventPoster:
    """Posts hints as events, as a configured sender.

    Where the service takes none again and again it is asked no more: what is not told of is in the report all the same,
    and the next audit finds it.

    Args:
        voices: by catalog.

    Attributes:
        accepted: hints that were taken, or that were known already.
        ignored: those that the service passes over: its configuration leaves the tables out, or their catalog retired.
        error: why the first of those were not taken that were not.
    """

    def __init__(self, senders: Mapping[str, EventAccess]) -> None:
        self._senders = senders
        self._failures_in_a_row = 0
        self.accepted = self.ignored = 0
        self.error = ""

    def post(self, notifications: Iterable[AuditNotification]) -> int:
        """Tell of some tables; how many of these the service was not told of. It raises nothing."""
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
    """How the service is told of each catalog's tables.

    Raises:
        Misconfigured: no sender may.
    """
    return {catalog: event_access(flags, catalog, sender) for catalog in catalogs}


def _event(sender: EventAccess, notification: AuditNotification) -> Mapping[str, object]:
    event: dict[str, object] = {"namespace": notification.namespace, "name": notification.name}
    said = {"catalog": sender.sender_catalog, "metadata_location": notification.metadata_location}
    return event | {key: text for key, text in said.items() if text is not None}


# ── job: A run from the driver's side

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
