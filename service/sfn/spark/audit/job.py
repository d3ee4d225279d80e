"""A run from the driver's side: what is to be done, shared out by slices, and committed as these come back."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

import anyio
from pyiceberg.table import Table
from pyspark import RDD
from pyspark.sql import Row, SparkSession

from sfn.clock import SystemClock
from sfn.errors import SfnError
from sfn.report import keeping, opening, theirs
from sfn.report.listing import Part, parts
from sfn.report.opening import Place
from sfn.report.pace import Pace, Paced
from sfn.report.runs import Written, before, begun, runs, unfinished
from sfn.report.terms import Terms
from sfn.report.totals import Totals
from sfn.report.trials import Trials
from sfn.settings import Settings
from sfn.spark.audit.outcome import Outcome
from sfn.spark.audit.parts import LISTED, OUTCOME, auditing, listing
from sfn.spark.audit.sparing import rows
from sfn.spark.audit.telling import Teller
from sfn.wiring.looking import looking
from sfn.wiring.terms import interest

GOES_ON: Final = timedelta(hours=24)
"""How old a run may be that is gone on with."""
REFUSED_NAMED: Final = 20
"""Tables that are named of those that could not be looked at."""

_APART: Final = 1.0
"""Seconds at least between two commits of the report."""
_AGAIN: Final = "run it again: what is in the report stays there, and the rest is gone on with"
_PAUSES: Final = 10
"""Times as long as a commit took that the next one waits."""

Moved = Callable[[int, int], None]
"""Told how many slices of how many are done."""


@dataclass(frozen=True, slots=True)
class Order:
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
    report: Place
    slices: int
    rate: float | None
    patience: float
    deep: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    fresh: bool = False
    keep: int | None = None


@dataclass(slots=True)
class Found:
    """What a run found; of one that was gone on with, what was found since.

    Attributes:
        run: its name.
        went_on: slices that were done before.
        states: rows by state.
        unchanged: tables of which their catalogs only said so.
        refused: the first of what could not be looked at, and why.
        failed: slices without rows, and why.
        forgotten: old runs that were removed.
    """

    run: str
    went_on: int = 0
    states: Counter[str] = field(default_factory=Counter)
    unchanged: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    forgotten: int = 0


def audit(spark: SparkSession, order: Order, teller: Teller | None, moved: Moved) -> Found:
    """One run, or the rest of one.

    Args:
        teller: tells the service of what differs; None to leave it at the report.

    Raises:
        SfnError: the report can't be written, or a package is missing.
    """
    with theirs.told(str(order.report), _AGAIN):
        table = opening.opened(order.report, order.slices)
    known, now = runs(table), SystemClock().now()
    run = None if order.fresh else unfinished(known, order.catalogs, now, GOES_ON, deep=order.deep)
    run = run or begun(now, opening.slices_of(table, str(order.report)), order.catalogs, known, deep=order.deep)
    wide = spark.sparkContext.defaultParallelism
    terms = _terms(order, table, run, known, wide)
    found = Found(run.run.name, len(run.done))
    left = [number for number in range(run.run.slices) if number not in run.done]
    shared_out = _shared_out(spark, terms, order)
    with closing(_outcomes(spark, shared_out, left, wide, run.run.name)) as outcomes:
        for some in outcomes:
            _take(found, some)
            if teller is not None:
                teller.tell(hint for one in some for hint in one.hints)
            good = [one for one in some if not one.error]
            files = [one.file for one in good if one.file is not None]
            if good:
                totals = sum((one.totals for one in good), Totals())
                with theirs.told(str(order.report), _AGAIN):
                    keeping.commit(table, run, [one.number for one in good], totals, files)
            moved(len(run.done) + len(found.failed), run.run.slices)
    if not found.failed:
        with theirs.told(str(order.report), _AGAIN):
            found.forgotten = keeping.tidy(table, order.keep)
    return found


def _terms(order: Order, table: Table, run: Written, known: Sequence[Written], wide: int) -> Terms:
    bare = table.metadata.model_copy(
        update={"snapshots": [], "refs": {}, "snapshot_log": [], "metadata_log": [], "current_snapshot_id": None}
    )
    return Terms(
        run=run.run,
        settings=order.settings,
        catalogs=order.catalogs,
        rate=None if order.rate is None else order.rate / wide,
        patience=order.patience,
        deep=order.deep,
        options=order.options,
        files=dict(table.io.properties),
        report=bare.model_dump_json(),
        report_location=table.location(),
        before=before(table, known, run),
    )


def _take(found: Found, outcomes: Sequence[Outcome]) -> None:
    for one in outcomes:
        if one.error:
            found.failed[one.number] = one.error
        found.states.update(one.states)
        found.unchanged += one.totals.unchanged
        found.refused += one.refused[: REFUSED_NAMED - len(found.refused)]


def _shared_out(spark: SparkSession, terms: Terms, order: Order) -> RDD[Row]:
    """The outcomes of all slices, of which each is had by itself; the listing is shared by all of them."""
    found = anyio.run(_parts, order, terms, backend_options={"use_uvloop": True})
    terms = replace(terms, away={one.catalog: one.refused for one in found if _is_away(one)})
    schema = "catalog string, namespace array<string>, refused string, withheld boolean"
    named = [(one.catalog, list(one.namespace), one.refused, one.withheld) for one in found]
    # As many partitions as there are processors: a list that is given is shared out.
    given = spark.createDataFrame(named, schema)
    listed = given.mapInArrow(listing(terms), LISTED).repartitionById(terms.run.slices, "slice")
    return listed.mapInArrow(auditing(terms), OUTCOME).rdd


def _is_away(part: Part) -> bool:
    """Whether a catalog as a whole could not be asked, which is another thing than one that may not be listed."""
    return not part.namespace and bool(part.refused) and not part.withheld


async def _parts(order: Order, terms: Terms) -> list[Part]:
    """The namespaces of all catalogs."""
    found: list[Part] = []

    async def of(name: str) -> None:
        try:
            catalog = Paced(all_parts.catalogs[name], Pace(order.rate))
            found.extend(await parts(name, catalog, interest(order.settings.catalogs[name]), Trials(terms.patience)))
        except SfnError as error:
            found.append(Part(name, (), str(error)))

    async with looking(order.settings) as all_parts, anyio.create_task_group() as tasks:
        for name in order.catalogs:
            tasks.start_soon(of, name)
    return found


def _outcomes(
    spark: SparkSession, shared_out: RDD[Row], numbers: Sequence[int], wide: int, run: str
) -> Generator[list[Outcome]]:
    """What slices come to, some at a time: so many as come while the last ones are seen to, and for a while after."""
    context = spark.sparkContext

    def one(number: int) -> Outcome:
        context.addJobTag(run)
        context.setJobDescription(f"sfn audit {run}: slice {number}")
        try:
            (row,) = context.runJob(shared_out, rows, [number])
            outcome: Outcome = pickle.loads(row.outcome)  # noqa: S301 - of our own processes
        except Exception as error:  # noqa: BLE001 - whatever Spark raises: the other slices go on
            return Outcome(number, error=_said(error))
        return outcome

    threads = ThreadPoolExecutor(wide, "sfn-audit")
    waiting: set[Future[Outcome]] = {threads.submit(one, number) for number in numbers}
    next_at = 0.0
    try:
        while waiting:
            wait(waiting, return_when=FIRST_COMPLETED)
            # A commit takes as long whether it is of one slice or of many: no more than a tenth of the time goes there.
            done, waiting = wait(waiting, timeout=max(0.0, next_at - time.monotonic()))
            began = time.monotonic()
            yield [future.result() for future in done]
            ended = time.monotonic()
            next_at = ended + max(_APART, _PAUSES * (ended - began))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        if waiting:
            context.cancelJobsWithTag(run)
        threads.shutdown()


def _said(error: Exception) -> str:
    """The first line of what Spark says that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason'}"[:500]
