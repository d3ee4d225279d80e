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

from sfn.clock import SystemClock
from sfn.errors import SfnError
from sfn.report import keeping, opening, theirs
from sfn.report.keeping import Slice
from sfn.report.listing import Part, parts
from sfn.report.opening import Place
from sfn.report.pace import Pace, Paced
from sfn.report.runs import Written, before, begun, runs, unfinished
from sfn.report.terms import Terms
from sfn.report.totals import Totals
from sfn.report.trials import Trials
from sfn.settings import Settings
from sfn.spark.audit.jobs import outcomes, said
from sfn.spark.audit.outcome import Outcome
from sfn.spark.audit.parts import LISTED, OUTCOME, auditing, listing
from sfn.spark.audit.telling import Teller
from sfn.wiring.looking import open_read_only
from sfn.wiring.terms import table_filter

REFUSED_NAMED: Final = 20
"""Tables that are named of those that could not be looked at."""

EXECUTORS: Final = "see Spark's log; every executor needs what the driver has: pip install '.[spark]'"
_AGAIN: Final = "run it again: what is in the report stays there, and the rest is gone on with"
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
        whole: all of the run, with what was found before it was gone on with.
        states: rows by state.
        unchanged: tables of which their catalogs only said so.
        refused: the first of what could not be looked at, and why.
        failed: slices without rows, and why.
        unread: why what the last run said could not be read, of slices where that was so.
        forgotten: old runs that were removed.
    """

    run: str
    went_on: int = 0
    whole: Totals = Totals()
    states: Counter[str] = field(default_factory=Counter)
    unchanged: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)
    forgotten: int = 0


def audit(spark: SparkSession, order: Order, teller: Teller | None, moved: Moved) -> Found:
    """One run, or the rest of one.

    Args:
        teller: tells the service of what differs; None to leave it at the report.

    Raises:
        SfnError: the report can't be written, Spark does not run what it is given, or a package is missing.
    """
    with theirs.told(str(order.report), _AGAIN):
        table = opening.opened(order.report, order.slices)
    known, now = runs(table), SystemClock().now()
    run = None if order.fresh else unfinished(known, order.catalogs, now, deep=order.deep)
    run = run or begun(now, opening.slices_of(table, str(order.report)), order.catalogs, known, deep=order.deep)
    wide = spark.sparkContext.defaultParallelism
    terms = _terms(order, table, run, known, wide)
    found = Found(run.run.name, len(run.done))
    with closing(outcomes(spark, _shared_out(spark, terms, order), run, wide)) as coming:
        for some in coming:
            _take(found, some)
            untold = 0 if teller is None else teller.tell(hint for one in some for hint in one.hints)
            with theirs.told(str(order.report), _AGAIN):
                good = [Slice(one.number, one.totals, one.file) for one in some if not one.error]
                keeping.commit(table, run, good, untold)
            moved(len(run.done) + len(found.failed), run.run.slices)
    if not found.failed:
        with theirs.told(str(order.report), _AGAIN):
            found.forgotten = keeping.tidy(table, order.keep, now)
    found.whole = run.totals
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
        if one.unread:
            found.unread[one.number] = one.unread
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
    try:
        # The plan is one that adapts: here the tables are listed.
        return listed.mapInArrow(auditing(terms), OUTCOME).rdd
    except Exception as error:
        expected = "a job that lists the tables"
        raise SfnError("Spark", expected=expected, found=said(error), remedy=EXECUTORS) from error


def _is_away(part: Part) -> bool:
    """Whether a catalog as a whole could not be asked, which is another thing than one that may not be listed."""
    return not part.namespace and bool(part.refused) and not part.withheld


async def _parts(order: Order, terms: Terms) -> list[Part]:
    """The namespaces of all catalogs."""
    found: list[Part] = []

    async def of(name: str) -> None:
        try:
            catalog = Paced(all_parts.catalogs[name], Pace(order.rate))
            found.extend(
                await parts(name, catalog, table_filter(order.settings.catalogs[name]), Trials(terms.patience))
            )
        except SfnError as error:
            found.append(Part(name, (), str(error)))

    async with open_read_only(order.settings) as all_parts, anyio.create_task_group() as tasks:
        for name in order.catalogs:
            tasks.start_soon(of, name)
    return found
