"""From what was typed to a run, and from the run to what is told of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from msgspec import Struct
from pyspark import SparkConf
from pyspark.sql import SparkSession

from sfn import telemetry
from sfn.cli.options import Flags
from sfn.cli.printing import progress
from sfn.cli.sweeping import check_named
from sfn.errors import SfnError
from sfn.report.columns import Standing
from sfn.report.opening import place
from sfn.report.slices import MOST, is_number
from sfn.settings import Misconfigured, Settings, load
from sfn.spark.audit.job import Found, Order, audit
from sfn.spark.audit.telling import Teller, voices
from sfn.wiring import sources

_EVERYWHERE: Final = "local[*]"


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
    """What came of a run."""

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
    refused: list[Refused]
    refused_total: int
    slices_failed: dict[int, str]
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
    sources.check(settings)
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
    builder = SparkSession.builder.appName("sfn audit")
    if master is not None:
        builder = builder.master(master)
    elif SparkConf().get("spark.master") is None:
        builder = builder.master(_EVERYWHERE)
    spark = builder.getOrCreate()
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
        hints_failed=teller.failed,
        hints_error=teller.error,
        refused=refused,
        refused_total=found.states[Standing.UNKNOWN] + found.states[Standing.WITHHELD],
        slices_failed=dict(sorted(found.failed.items())),
        runs_forgotten=found.forgotten,
    )


def _wrong(where: str, expected: str, found: str) -> Misconfigured:
    return Misconfigured([SfnError(where, expected=expected, found=found)])
