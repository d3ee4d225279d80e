"""Write a run's rows into the report slice by slice, resume a run, and remove old runs."""

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


def write_data_file(
    report: str, properties: Mapping[str, str], number: int, entries: Sequence[ReportRow]
) -> DataFile | None:
    """Write a data file that is in no snapshot yet; return None for no rows.

    Args:
        report: the report's metadata, JSON.
        properties: PyIceberg's properties to open the report's files.
        number: the slice's number.

    Raises:
        OSError: the file can't be written; on an object store, any error of its driver.
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


RESUME_WINDOW: Final = timedelta(hours=24)
"""The maximum age of a run that is resumed."""

_RUN: Final = "sfn.run"
_BEGAN: Final = "sfn.began-at"
_SLICE: Final = "sfn.slice"
_SLICES: Final = "sfn.slices"
_CATALOGS: Final = "sfn.catalogs"
_DEEP: Final = "sfn.deep"
_ENDED: Final = "sfn.ended"
REMOVAL_SUMMARY: Final = {"sfn.removing": "true"}
"""The summary of a snapshot that removes old runs."""


@dataclass(slots=True)
class RunProgress:
    """A run, and the part of it that is in the report.

    Attributes:
        run: the run.
        catalogs: the catalogs that it audits.
        deep: whether it checks all files.
        done: the slices that are in the report.
        is_ended: whether all slices are.
        totals: the totals of these slices.
    """

    run: AuditRun
    catalogs: tuple[str, ...]
    deep: bool
    done: set[int] = field(default_factory=set)
    is_ended: bool = False
    totals: RunTotals = RunTotals()

    def summary(self, numbers: Iterable[int], totals: RunTotals) -> dict[str, str]:
        """Return the summary of a snapshot with some more slices; the last one has the totals of all slices.

        Args:
            totals: the totals of the added rows.
        """
        numbers = sorted(numbers)
        properties = {
            _RUN: self.run.name,
            _BEGAN: self.run.began_at.isoformat(),
            _SLICE: " ".join(map(str, numbers)),
            _SLICES: str(self.run.slices),
            _CATALOGS: " ".join(self.catalogs),
            _DEEP: str(self.deep).lower(),
        }
        if len(self.done.union(numbers)) < self.run.slices:
            return properties | totals.summary()
        return properties | (self.totals + totals).summary() | {_ENDED: "true"}

    def is_open(self, now: datetime) -> bool:
        """Return whether another process may still write the run, or a later one may resume it."""
        return not self.is_ended and now - self.run.began_at <= RESUME_WINDOW


def list_runs(table: Table) -> list[RunProgress]:
    """Return the runs in the table's snapshots, oldest first; runs with expired snapshots are missing."""
    found: dict[str, RunProgress] = {}
    for snapshot in sorted(table.snapshots(), key=lambda one: one.sequence_number or 0):
        properties = _summary_properties(snapshot)
        if _RUN in properties:
            one = found.setdefault(properties[_RUN], _parse_progress(properties))
            one.done.update(map(int, properties[_SLICE].split()))
            # The last snapshot has the totals of the run, because earlier ones may have been removed.
            totals = RunTotals.from_summary(properties)
            one.totals = totals if _ENDED in properties else one.totals + totals
            if _ENDED in properties:
                one.is_ended, one.done = True, set(range(one.run.slices))
    return list(found.values())


def run_of(snapshot: Snapshot) -> str | None:
    """Return the name of the run that a snapshot belongs to; None if another program made the snapshot."""
    return _summary_properties(snapshot).get(_RUN)


def is_of_runs(snapshot: Snapshot, names: Collection[str]) -> bool:
    """Return whether a snapshot belongs to one of these runs, or only removes runs."""
    return run_of(snapshot) in names or not REMOVAL_SUMMARY.items().isdisjoint(_summary_properties(snapshot).items())


def _summary_properties(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _parse_progress(properties: Mapping[str, str]) -> RunProgress:
    run = AuditRun(properties[_RUN], datetime.fromisoformat(properties[_BEGAN]), int(properties[_SLICES]))
    return RunProgress(run, tuple(properties[_CATALOGS].split()), properties[_DEEP] == "true")


def find_unfinished(
    known: Iterable[RunProgress], catalogs: tuple[str, ...], now: datetime, *, deep: bool
) -> RunProgress | None:
    """Return the last run if it is the same audit and is unfinished."""
    last = next(iter(sorted(known, key=lambda one: one.run.began_at, reverse=True)), None)
    is_same = last is not None and (last.catalogs, last.deep) == (catalogs, deep)
    return last if last is not None and is_same and last.is_open(now) else None


def begin_run(
    now: datetime, slices: int, catalogs: tuple[str, ...], known: Iterable[RunProgress], *, deep: bool
) -> RunProgress:
    """Return a new run with a unique name."""
    names = {one.run.name for one in known}
    at = now.astimezone(UTC)
    while (name := f"{at:%Y%m%dT%H%M%S}{at.microsecond // 1000:03d}Z") in names:
        at += timedelta(milliseconds=1)
    return RunProgress(AuditRun(name, now, slices), catalogs, deep)


def files_of_previous_runs(table: Table, known: Iterable[RunProgress], now: RunProgress) -> dict[int, tuple[str, ...]]:
    """Return the data files of earlier runs with the same tables, by slice of a run.

    For each catalog these are the files of the last finished run that included the catalog.
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


_MAX_COMMIT_TRIES: Final = 20
_COMMIT_BACKOFF: Final = 0.2
"""The maximum wait in seconds before the second try; before the third it is twice as long, and so on."""


@dataclass(frozen=True, slots=True)
class SliceResult:
    """The result of one slice.

    Attributes:
        number: the slice's number.
        totals: totals of its rows.
        file: the data file with the rows, which is in no snapshot yet; None if there are none.
    """

    number: int
    totals: RunTotals
    file: DataFile | None


def commit_slices(table: Table, run: RunProgress, slices: Sequence[SliceResult], unnotified: int = 0) -> None:
    """Commit the rows of some finished slices.

    Another process may be writing the same run, because it took this one for dead. So each try reads the report again,
    and leaves out slices that are there already; PyIceberg's own retries are off (`storage.REPORT_PROPERTIES`).

    Args:
        unnotified: the number of failed notifications of these slices.

    Raises:
        CommitFailedException: other processes committed first in every try.
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
    """Remove all runs but the newest, with their files, and all snapshots but the last of each finished run.

    Each commit rewrites the list of all snapshots. Without this, the snapshots of old slices would soon take most of
    its time. Nothing is removed while a branch or tag besides `main`, or another unfinished run, may need it.

    Args:
        keep: how many runs to keep, at least one; None for all.

    Returns:
        The number of removed runs.
    """
    table.refresh()
    known = list_runs(table)
    if set(table.refs()) - {"main"} or any(one.is_open(now) for one in known):
        return 0
    # Another program may have expired a run's snapshots, but its rows are still in the partitions.
    old = [] if keep is None else sorted(_run_names(table))[:-keep]
    try:
        paths = _remove_runs(table, old) if old else []
        _expire_snapshots(table, {one.run.name for one in known if one.is_ended}, old)
    except CommitFailedException:
        # Another process committed first: the next run removes the rest.
        return 0
    _delete_files(table, paths)
    return len(old)


def _run_names(table: Table) -> set[str]:
    """Return the names of the runs that have rows."""
    partitions = table.inspect.partitions().column("partition").to_pylist()
    return {one[RUN_COLUMN] for one in partitions}


def _remove_runs(table: Table, names: Sequence[str]) -> list[str]:
    """Remove the rows of some runs, and return the paths of their files."""
    which = f"{RUN_COLUMN} in ({', '.join(map(repr, names))})"
    paths = [task.file.file_path for task in table.scan(row_filter=which).plan_files()]
    table.delete(which, snapshot_properties=REMOVAL_SUMMARY)
    return paths


def _expire_snapshots(table: Table, ended: Collection[str], gone: Collection[str]) -> None:
    """Expire all snapshots of removed runs, and all but the last of finished runs."""
    current = table.current_snapshot()
    snapshots = sorted(table.snapshots(), key=lambda one: one.sequence_number or 0)
    spared = {run: one.snapshot_id for one in snapshots if (run := run_of(one)) not in gone}
    retained = {*spared.values(), *(() if current is None else (current.snapshot_id,))}
    expired = [one for one in snapshots if is_of_runs(one, {*ended, *gone}) and one.snapshot_id not in retained]
    if not expired:
        return
    ids = {one.snapshot_id for one in expired}
    needed = _manifest_paths(table, (one for one in snapshots if one.snapshot_id not in ids))
    manifests = _manifest_paths(table, expired) - needed
    table.maintenance.expire_snapshots().by_ids(list(ids)).commit()
    _delete_files(table, [*manifests, *(one.manifest_list for one in expired)])


def _manifest_paths(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    return {manifest.manifest_path for one in snapshots for manifest in one.manifests(table.io)}


def _delete_files(table: Table, paths: Iterable[str]) -> None:
    for path in paths:
        # A file that stays costs little, and any orphan cleaner finds it.
        with suppress(OSError):
            table.io.delete(path)
