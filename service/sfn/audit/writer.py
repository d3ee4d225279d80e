"""The report as a run writes it: slice after slice, and no more runs than are to be kept."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import Table, WriteTask
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from sfn.audit.report import RUN_COLUMN, SLICE_COLUMN, ReportRow, RunTotals, column_values, matching_slices
from sfn.audit.slices import AuditRun

# ── writing: Rows as a data file of the report


def write_data_file(
    report: str, properties: Mapping[str, str], number: int, entries: Sequence[ReportRow]
) -> DataFile | None:
    """A data file that is in no snapshot yet; None for no rows.

    Args:
        report: the report's metadata, JSON.
        properties: how PyIceberg opens its files.
        number: the slice.

    Raises:
        OSError: it can't be written; on an object store what its driver raises.
    """
    if not entries:
        return None
    metadata = TableMetadataUtil.parse_raw(report)
    schema = metadata.schema()
    arrow = schema_to_pyarrow(schema)
    columns = [pa.array(column_values(entries, field.name), type=field.type) for field in arrow]
    task = WriteTask(
        write_uuid=uuid4(),
        task_id=number,
        schema=schema,
        record_batches=pa.Table.from_arrays(columns, schema=arrow).to_batches(),
        partition_key=_partition_key(metadata, entries[0].run, number),
    )
    (file,) = write_file(load_file_io(dict(properties), metadata.location), metadata, iter([task]))
    return file


def _partition_key(metadata: TableMetadata, run: str, number: int) -> PartitionKey:
    spec, values = metadata.spec(), {RUN_COLUMN: run, SLICE_COLUMN: number}
    return PartitionKey(
        [PartitionFieldValue(field, values[field.name]) for field in spec.fields], spec, metadata.schema()
    )


# ── runs: The runs of a report

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


# ── keeping: The report as a run writes it

_MAX_COMMIT_TRIES: Final = 20
_COMMIT_BACKOFF: Final = 0.2
"""Seconds that are waited at most before the second try, twice as many before the third."""


@dataclass(frozen=True, slots=True)
class SliceResult:
    """What one found.

    Attributes:
        number: which.
        totals: of its rows.
        file: these, in a data file that is in no snapshot yet; None where there are none.
    """

    number: int
    totals: RunTotals
    file: DataFile | None


def commit_slices(table: Table, run: RunProgress, slices: Sequence[SliceResult], unnotified: int = 0) -> None:
    """Add what some slices found, which are done with it.

    Another process may be at the same run, which it took for one that was killed: a slice that is in the report by now
    is left out. So each try looks anew, and PyIceberg is told to make but one (`opening.PROPERTIES`).

    Args:
        unnotified: of how many of their tables the service was to be told, and could not be.

    Raises:
        CommitFailedException: others committed again and again.
    """
    for tried in range(_MAX_COMMIT_TRIES):
        table.refresh()
        for there in list_runs(table):
            if there.run.name == run.run.name:
                run.done, run.totals, run.is_ended = there.done | run.done, there.totals, there.is_ended
        new = [one for one in slices if one.number not in run.done]
        if not new:
            return
        totals = sum((one.totals for one in new), RunTotals(unnotified=unnotified))
        summary = run.summary([one.number for one in new], totals)
        try:
            with table.transaction() as transaction, transaction.update_snapshot(summary).merge_append() as append:
                for one in new:
                    if one.file is not None:
                        append.append_data_file(one.file)
        except CommitFailedException:
            if tried == _MAX_COMMIT_TRIES - 1:
                raise
            time.sleep(random.uniform(0, _COMMIT_BACKOFF * (tried + 1)))  # noqa: S311 - no secret
            continue
        run.done.update(one.number for one in new)
        run.totals += totals
        return


def remove_old_runs(table: Table, keep: int | None, now: datetime) -> int:
    """Remove all runs but the newest ones, with their files, and of one that has ended all snapshots but its last.

    Each commit writes all snapshots anew: those of every slice of every run would soon be what takes most of its time.
    Nothing is removed while a branch or tag beside `main` may need it, or another run that is under way.

    Args:
        keep: how many runs stay, one at least; None for all.

    Returns:
        How many went.
    """
    table.refresh()
    known = list_runs(table)
    if set(table.refs()) - {"main"} or any(one.is_open(now) for one in known):
        return 0
    # Others may have expired the snapshots that told of a run: what has rows is what the partitions say.
    old = [] if keep is None else sorted(_run_names(table))[:-keep]
    try:
        paths = _remove_runs(table, old) if old else []
        _expire_snapshots(table, {one.run.name for one in known if one.is_ended}, old)
    except CommitFailedException:
        # Somebody else is at it: the next run sees to the rest.
        return 0
    _delete_files(table, paths)
    return len(old)


def _run_names(table: Table) -> set[str]:
    """The runs that there are rows of."""
    partitions = table.inspect.partitions().column("partition").to_pylist()
    return {one[RUN_COLUMN] for one in partitions}


def _remove_runs(table: Table, names: Sequence[str]) -> list[str]:
    """Remove the rows of some runs; the files that they were in."""
    which = f"{RUN_COLUMN} in ({', '.join(map(repr, names))})"
    paths = [task.file.file_path for task in table.scan(row_filter=which).plan_files()]
    table.delete(which, snapshot_properties=REMOVAL_SUMMARY)
    return paths


def _expire_snapshots(table: Table, ended: Collection[str], gone: Collection[str]) -> None:
    """Forget all snapshots of runs that are gone, and all but the last of those that ended."""
    current = table.current_snapshot()
    ours = sorted(table.snapshots(), key=lambda one: one.sequence_number or 0)
    spared = {run: one.snapshot_id for one in ours if (run := run_of(one)) not in gone}
    stays = {*spared.values(), *(() if current is None else (current.snapshot_id,))}
    expired = [one for one in ours if is_of_runs(one, {*ended, *gone}) and one.snapshot_id not in stays]
    if not expired:
        return
    ids = {one.snapshot_id for one in expired}
    needed = _manifest_paths(table, (one for one in ours if one.snapshot_id not in ids))
    manifests = _manifest_paths(table, expired) - needed
    table.maintenance.expire_snapshots().by_ids(list(ids)).commit()
    _delete_files(table, [*manifests, *(one.manifest_list for one in expired)])


def _manifest_paths(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    return {manifest.manifest_path for one in snapshots for manifest in one.manifests(table.io)}


def _delete_files(table: Table, paths: Iterable[str]) -> None:
    for path in paths:
        # What stays behind costs a little room, and the table's cleaner finds it.
        with suppress(OSError):
            table.io.delete(path)
