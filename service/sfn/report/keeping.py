"""The report as a run writes it: slice after slice, and no more runs than are to be kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sfn.report.columns import RUN
from sfn.report.runs import FORGETTING, Written, is_over, run_of, runs
from sfn.report.totals import Totals


def commit(table: Table, run: Written, numbers: Sequence[int], totals: Totals, files: Sequence[DataFile]) -> None:
    """Add what some slices found, which are done with it. PyIceberg tries again where others commit meanwhile.

    Args:
        numbers: the slices.
        totals: of their rows.
        files: with these.

    Raises:
        CommitFailedException: others committed again and again.
    """
    summary = run.summary(numbers, totals)
    with table.transaction() as transaction, transaction.update_snapshot(summary).merge_append() as append:
        for file in files:
            append.append_data_file(file)


def tidy(table: Table, keep: int | None) -> int:
    """Remove all runs but the newest ones, with their files, and of one that has ended all snapshots but its last.

    Each commit writes all snapshots anew: those of every slice of every run would soon be what takes most of its time.
    Nothing is removed while a branch or tag beside `main` may need it.

    Args:
        keep: how many runs stay; None for all.

    Returns:
        How many went.
    """
    if set(table.refs()) - {"main"}:
        return 0
    known = sorted(runs(table), key=lambda one: one.run.began_at)
    old = [] if keep is None else [one.run.name for one in known[: max(0, len(known) - keep)]]
    paths = _removed(table, old) if old else []
    _expire(table, {one.run.name for one in known if one.is_ended}, old)
    _delete(table, paths)
    return len(old)


def _removed(table: Table, names: Sequence[str]) -> list[str]:
    """Remove the rows of some runs; the files that they were in."""
    which = f"{RUN} in ({', '.join(map(repr, names))})"
    paths = [task.file.file_path for task in table.scan(row_filter=which).plan_files()]
    table.delete(which, snapshot_properties=FORGETTING)
    return paths


def _expire(table: Table, ended: Collection[str], gone: Collection[str]) -> None:
    """Forget all snapshots of runs that are gone, and all but the last of those that ended."""
    current = table.current_snapshot()
    ours = sorted(table.snapshots(), key=lambda one: one.sequence_number or 0)
    spared = {run: one.snapshot_id for one in ours if (run := run_of(one)) not in gone}
    stays = {*spared.values(), *(() if current is None else (current.snapshot_id,))}
    expired = [one for one in ours if is_over(one, {*ended, *gone}) and one.snapshot_id not in stays]
    if not expired:
        return
    ids = {one.snapshot_id for one in expired}
    needed = _manifests(table, (one for one in ours if one.snapshot_id not in ids))
    manifests = _manifests(table, expired) - needed
    table.maintenance.expire_snapshots().by_ids(list(ids)).commit()
    _delete(table, [*manifests, *(one.manifest_list for one in expired)])


def _manifests(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    return {manifest.manifest_path for one in snapshots for manifest in one.manifests(table.io)}


def _delete(table: Table, paths: Iterable[str]) -> None:
    for path in paths:
        # What stays behind costs a little room, and the table's cleaner finds it.
        with suppress(OSError):
            table.io.delete(path)
