"""The runs of a report, by what its snapshots say of themselves: what each has written, and whether that is all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sfn.report.columns import RUN_COLUMN
from sfn.report.entries import AuditRun
from sfn.report.slices import matching_slices
from sfn.report.totals import RunTotals

RESUME_WINDOW: Final = timedelta(hours=24)
"""How old a run may be that is gone on with."""

_RUN: Final = "sfn.run"
_BEGAN: Final = "sfn.began-at"
_SLICE: Final = "sfn.slice"
_SLICES: Final = "sfn.slices"
_CATALOGS: Final = "sfn.catalogs"
_DEEP: Final = "sfn.deep"
_ENDED: Final = "sfn.ended"
REMOVAL_SUMMARY: Final = {"sfn.forgetting": "true"}
"""What the snapshot says that removes old runs."""


@dataclass(slots=True)
class RunProgress:
    """What there is of a run.

    Attributes:
        run: which.
        catalogs: those that it audits.
        deep: it looks at all files.
        done: the slices that are in the report.
        is_ended: all of them are.
        totals: of these slices.
    """

    run: AuditRun
    catalogs: tuple[str, ...]
    deep: bool
    done: set[int] = field(default_factory=set)
    is_ended: bool = False
    totals: RunTotals = RunTotals()

    def summary(self, numbers: Iterable[int], totals: RunTotals) -> dict[str, str]:
        """What the snapshot of some more slices says; the last one says the totals of all.

        Args:
            totals: of their rows.
        """
        numbers = sorted(numbers)
        said = {
            _RUN: self.run.name,
            _BEGAN: self.run.began_at.isoformat(),
            _SLICE: " ".join(map(str, numbers)),
            _SLICES: str(self.run.slices),
            _CATALOGS: " ".join(self.catalogs),
            _DEEP: str(self.deep).lower(),
        }
        if len(self.done.union(numbers)) < self.run.slices:
            return said | totals.summary()
        return said | (self.totals + totals).summary() | {_ENDED: "true"}

    def is_open(self, now: datetime) -> bool:
        """Whether somebody may be at it still, or is to go on with it."""
        return not self.is_ended and now - self.run.began_at <= RESUME_WINDOW


def list_runs(table: Table) -> list[RunProgress]:
    """All that its snapshots tell of, oldest first; what has expired is not among them."""
    found: dict[str, RunProgress] = {}
    for snapshot in sorted(table.snapshots(), key=lambda one: one.sequence_number or 0):
        said = _summary_properties(snapshot)
        if _RUN in said:
            one = found.setdefault(said[_RUN], _parse_progress(said))
            one.done.update(map(int, said[_SLICE].split()))
            # The last snapshot says all of the run: those before it may have been removed.
            one.totals = RunTotals.from_summary(said) if _ENDED in said else one.totals + RunTotals.from_summary(said)
            if _ENDED in said:
                one.is_ended, one.done = True, set(range(one.run.slices))
    return list(found.values())


def run_of(snapshot: Snapshot) -> str | None:
    """The run that a snapshot has something of; None for one that other hands made."""
    return _summary_properties(snapshot).get(_RUN)


def is_of_runs(snapshot: Snapshot, names: Collection[str]) -> bool:
    """Whether a snapshot is of one of these runs, or of nothing but the removal of some."""
    return run_of(snapshot) in names or not REMOVAL_SUMMARY.items().isdisjoint(_summary_properties(snapshot).items())


def _summary_properties(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _parse_progress(said: Mapping[str, str]) -> RunProgress:
    run = AuditRun(said[_RUN], datetime.fromisoformat(said[_BEGAN]), int(said[_SLICES]))
    return RunProgress(run, tuple(said[_CATALOGS].split()), said[_DEEP] == "true")


def find_unfinished(
    known: Iterable[RunProgress], catalogs: tuple[str, ...], now: datetime, *, deep: bool
) -> RunProgress | None:
    """The last run, where that was to do the same and did not come to its end."""
    last = next(iter(sorted(known, key=lambda one: one.run.began_at, reverse=True)), None)
    is_same = last is not None and (last.catalogs, last.deep) == (catalogs, deep)
    return last if last is not None and is_same and last.is_open(now) else None


def begin_run(
    now: datetime, slices: int, catalogs: tuple[str, ...], known: Iterable[RunProgress], *, deep: bool
) -> RunProgress:
    """A new run, with a name that no other has."""
    names = {one.run.name for one in known}
    at = now.astimezone(UTC)
    while (name := f"{at:%Y%m%dT%H%M%S}{at.microsecond // 1000:03d}Z") in names:
        at += timedelta(milliseconds=1)
    return RunProgress(AuditRun(name, now, slices), catalogs, deep)


def files_of_previous_runs(table: Table, known: Iterable[RunProgress], now: RunProgress) -> dict[int, tuple[str, ...]]:
    """By slice of a run, the data files of earlier ones that have the same tables.

    Of each catalog those of the last run that it was part of and that came to its end.
    """
    ended = [one for one in known if one.is_ended and one.run.name != now.run.name]
    found: dict[int, tuple[str, ...]] = {}
    latest = {name: one for one in ended for name in one.catalogs if name in now.catalogs}
    for one in {id(one): one for one in latest.values()}.values():
        files: dict[int, list[str]] = {}
        for task in table.scan(row_filter=f"{RUN_COLUMN} = '{one.run.name}'").plan_files():
            files.setdefault(int(task.file.partition[1]), []).append(task.file.file_path)
        for number in range(now.run.slices):
            its = [
                path
                for slice_ in matching_slices(number, now.run.slices, one.run.slices)
                for path in files.get(slice_, ())
            ]
            found[number] = (*found.get(number, ()), *its)
    return found
