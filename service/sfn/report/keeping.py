"""The report as a run writes it: slice after slice, and no more runs than are to be kept."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from sfn.report.columns import RUN
from sfn.report.runs import Written, run_of, runs
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


def forget(table: Table, keep: int) -> int:
    """Remove all runs but the newest ones, with their files; how many.

    Nothing is removed while a branch or tag beside `main` may need it.

    Args:
        keep: how many stay.
    """
    known = sorted(runs(table), key=lambda one: one.run.began_at)
    old = [one.run.name for one in known[: max(0, len(known) - keep)]]
    if not old or set(table.refs()) - {"main"}:
        return 0
    which = f"{RUN} in ({', '.join(map(repr, old))})"
    paths = [task.file.file_path for task in table.scan(row_filter=which).plan_files()]
    table.delete(which)
    snapshots = [one.snapshot_id for one in table.snapshots() if run_of(one) in {*old, None}]
    current = table.current_snapshot()
    table.maintenance.expire_snapshots().by_ids(
        [one for one in snapshots if current is None or one != current.snapshot_id]
    ).commit()
    for path in paths:
        # What stays behind costs a little room, and the table's cleaner finds it.
        with suppress(OSError):
            table.io.delete(path)
    return len(old)
