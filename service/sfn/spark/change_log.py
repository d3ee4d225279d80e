"""Rows that were appended to a table between two times."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from pyiceberg.table.snapshots import Operation, Snapshot
from pyspark.sql import DataFrame, SparkSession

from sfn.errors import CommitNotFound, NotSupported
from sfn.reader.api import Time, time_to_ordinal
from sfn.spark.engine_sfn import to_dataframe
from sfn.spark.request import AsOfOrdinal, AsOfRef, ReadRequest, make_read_request
from sfn.spark.time_travel import PinnedTable, pin_appended_scan, pin_table

_APPENDING_OPERATIONS = (Operation.APPEND, Operation.REPLACE)
"""Operations that delete no row; a compaction (`replace`) adds none either."""


def changes(
    spark: SparkSession,
    directory: str | os.PathLike[str],
    from_ordinal: Time,
    to_ordinal: Time | None = None,
    table: str | Sequence[str] | None = None,
    *,
    only_appends: bool = False,
    uuid: str | UUID | None = None,
    allowed: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return the rows that were appended to the table in a directory after one time, up to another.

    The snapshots of both times are fixed now. The rows have the schema of the later snapshot. A compaction is ignored,
    because it changes no row.

    Args:
        from_ordinal: a time as `sfn.resolve` takes it, such as an Ordinal; rows that existed then are left out.
        to_ordinal: the end; default: now.
        only_appends: ignore what other commits did, instead of refusing.
        spark, directory, table, uuid, allowed, storage_options: as for `sfn.spark.read`.

    Raises:
        NotSupported: a commit in between deleted or overwrote rows, or the table was rolled back; it is named.
        CommitNotFound: the state at one of the times is unknown, or a snapshot in between has expired.
        Unreadable: see `sfn.errors` for its other kinds.
        ValueError: an argument is not valid, or the times are in the wrong order.
    """
    begin = time_to_ordinal(from_ordinal)
    end = None if to_ordinal is None else time_to_ordinal(to_ordinal)
    if end is not None and end < begin:
        raise ValueError(f"to_ordinal at or after from_ordinal: {to_ordinal} is before {from_ordinal}")
    now = make_read_request(directory, table, uuid, allowed=allowed, storage_options=storage_options)
    before = pin_table(_request_at(now, begin))
    after = pin_table(_request_at(now, end))
    start = None if before.snapshot is None else before.snapshot.snapshot_id
    since = snapshots_between(start, after, only_appends=only_appends)
    return to_dataframe(spark, pin_appended_scan(now, after, start, since))


def snapshots_between(start: int | None, after: PinnedTable, *, only_appends: bool) -> list[Snapshot]:
    """Return the snapshots after a given one, up to the table's present one, newest first.

    Args:
        start: the given snapshot; None for all snapshots.

    Raises:
        NotSupported, CommitNotFound: as for `changes`.
    """
    since = _ancestry(start, after)
    # Check operations only now: whether these commits come after the start is known once the way there is complete.
    for one in since:
        if not only_appends and (one.summary is None or one.summary.operation not in _APPENDING_OPERATIONS):
            raise _not_appended_error(one, after)
    return since


def _ancestry(start: int | None, after: PinnedTable) -> list[Snapshot]:
    """Return a table's present snapshot and its ancestors, down to the one right after the start."""
    known = {one.snapshot_id: one for one in after.metadata.snapshots}
    since: list[Snapshot] = []
    at = after.snapshot
    while at is not None and at.snapshot_id != start:
        since.append(at)
        parent = at.parent_snapshot_id
        if parent == start:
            # The start itself may have expired.
            return since
        if parent is not None and parent not in known:
            raise _expired_error(parent, at, after)
        at = None if parent is None else known[parent]
    if start is not None and at is None:
        raise NotSupported(
            after.found.metadata_location,
            expected=f"that the later state came of snapshot {start}, which was current at from_ordinal",
            found="that it did not: the table was rolled back",
            remedy="compare the two states with `read(…, as_of=…)`",
        )
    return since


def _expired_error(number: int, child: Snapshot, after: PinnedTable) -> CommitNotFound:
    return CommitNotFound(
        after.found.metadata_location,
        expected=f"snapshot {number}, before {child.snapshot_id}",
        found="that it has expired",
        remedy="begin at a later Ordinal, or keep snapshots longer (`history.expire.max-snapshot-age-ms`)",
    )


def _not_appended_error(at: Snapshot, after: PinnedTable) -> NotSupported:
    operation = "has no operation" if at.summary is None else f"has the operation {at.summary.operation.value}"
    return NotSupported(
        after.found.metadata_location,
        expected="commits that only append",
        found=f"that snapshot {at.snapshot_id} {operation}",
        remedy="compare the two states with `read(…, as_of=…)`, or take what was appended with only_appends=True",
    )


def _request_at(request: ReadRequest, milliseconds: int | None) -> ReadRequest:
    return replace(request, as_of=AsOfRef() if milliseconds is None else AsOfOrdinal(milliseconds))
