"""The report as a run writes it: slice after slice, and no more runs than are to be kept."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sfn.report.columns import RUN_COLUMN
from sfn.report.runs import REMOVAL_SUMMARY, RunProgress, is_of_runs, list_runs, run_of
from sfn.report.totals import RunTotals

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
