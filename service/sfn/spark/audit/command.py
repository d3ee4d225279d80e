"""From what was typed to a run, and from the run to what is told of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from msgspec import Struct
from pyspark.sql import SparkSession

from sfn import telemetry
from sfn.cli.options import Flags
from sfn.cli.printing import progress
from sfn.cli.sweeping import check_named
from sfn.errors import SfnError
from sfn.report.opening import place
from sfn.report.slices import MOST, is_number
from sfn.settings import Misconfigured, Settings, load
from sfn.settings.java import java_home
from sfn.spark.audit.job import Found, Order, audit
from sfn.spark.audit.jobs import said
from sfn.spark.audit.telling import Teller, voices
from sfn.spark.environment import check_java
from sfn.wiring import sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was typed."""

    report: str
    catalogs: tuple[str, ...]
    deep: bool
    hints: bool
    rate: float | None
    slices: int
    fresh: bool
    keep: int
    patience: float
    report_options: Mapping[str, str]
    storage_options: Mapping[str, str]
    master: str | None
    sender: str | None
    flags: Flags


class Refused(Struct, frozen=True):
    """A table, or a namespace, that could not be looked at."""

    name: str
    why: str


class Told(Struct, frozen=True):
    """What came of a run; of one that was gone on with, all that is missing, refused or not told of is counted."""

    run: str
    report: str
    tables: int
    states: dict[str, int]
    unchanged: int
    slices_before: int
    hints: int
    hints_ignored: int
    hints_failed: int
    hints_error: str
    missing_files: int
    refused: list[Refused]
    refused_total: int
    slices_failed: dict[int, str]
    slices_unread: dict[int, str]
    runs_forgotten: int

    @property
    def is_whole(self) -> bool:
        """Whether everything could be looked at and told of."""
        return not (self.refused_total or self.slices_failed or self.hints_failed)


def run(asked: Asked) -> Told:
    """Do it.

    Raises:
        Misconfigured: something that was typed, or the configuration, is wrong.
        SfnError: the report can't be written.
    """
    if not is_number(asked.slices):
        raise _wrong("--slices", f"a power of two up to {MOST}", f"{asked.slices}")
    settings = load(asked.flags.config)
    sources.check_adapters(settings)
    catalogs = _catalogs(settings, asked.catalogs)
    order = Order(
        settings=settings,
        catalogs=catalogs,
        report=place(asked.report, settings, asked.report_options),
        slices=asked.slices,
        rate=asked.rate,
        patience=asked.patience,
        deep=asked.deep,
        options=asked.storage_options,
        fresh=asked.fresh,
        keep=asked.keep,
    )
    teller = Teller(voices(asked.flags, catalogs, asked.sender)) if asked.hints else None
    # What the adapters log would stand among what the command prints.
    telemetry.configure("error", "console")
    with _session(asked.master) as spark, progress("slices", None) as moved:
        found = audit(spark, order, teller, moved)
    return _told(found, order, teller or Teller({}))


def _catalogs(settings: Settings, named: tuple[str, ...]) -> tuple[str, ...]:
    askable = [name for name in settings.catalogs if name not in settings.told]
    for name in named:
        check_named(name, askable, settings.told)
    chosen = tuple(name for name in askable if not named or name in named)
    if not chosen:
        raise _wrong("catalogs", "a catalog that can be asked", "none")
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
        raise SfnError("Spark", expected="a session", found=said(error), remedy="see Spark's log") from error
    try:
        yield spark
    finally:
        spark.stop()


def _told(found: Found, order: Order, teller: Teller) -> Told:
    refused = [Refused(name, why) for name, why in found.refused]
    return Told(
        run=found.run,
        report=str(order.report),
        tables=sum(found.states.values()),
        states=dict(sorted(found.states.items())),
        unchanged=found.unchanged,
        slices_before=found.went_on,
        hints=teller.told,
        hints_ignored=teller.ignored,
        hints_failed=found.whole.untold,
        hints_error=teller.error,
        missing_files=found.whole.lacking,
        refused=refused,
        refused_total=found.whole.unseen,
        slices_failed=dict(sorted(found.failed.items())),
        slices_unread=dict(sorted(found.unread.items())),
        runs_forgotten=found.forgotten,
    )


def _wrong(where: str, expected: str, found: str) -> Misconfigured:
    return Misconfigured([SfnError(where, expected=expected, found=found)])
