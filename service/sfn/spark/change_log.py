"""What was appended to a table between two moments of its timeline."""

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
"""What deletes no row; a compaction adds none either."""


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
    """The rows that were appended to the table in a directory after one moment, up to another.

    Which snapshots are current at these is looked up now; rows have the schema of the later one. A compaction is passed
    over, as it changes no row.

    Args:
        from_ordinal: a time as `sfn.resolve` takes it, such as an Ordinal: what was there then is left out.
        to_ordinal: up to what was current then; without, up to now.
        only_appends: leave out what other commits did, instead of refusing.
        spark, directory, table, uuid, allowed, storage_options: as of `sfn.spark.read`.

    Raises:
        NotSupported: a commit in between deleted or overwrote rows, or the table was rolled back; it is named.
        CommitNotFound: nothing tells what was current then, or a snapshot in between has expired.
        Unreadable: see `sfn.errors` for its other kinds.
        ValueError: an argument has no such form, or the moments are in the other order.
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
    """The snapshots after one of a table, up to its present one, that one first.

    Args:
        start: None for all of them.

    Raises:
        NotSupported, CommitNotFound: as of `changes`.
    """
    since = _ancestry(start, after)
    # A commit is to blame only if it came after the start, which nobody knows before the way there is found.
    for one in since:
        if not only_appends and (one.summary is None or one.summary.operation not in _APPENDING_OPERATIONS):
            raise _not_appended_error(one, after)
    return since


def _ancestry(start: int | None, after: PinnedTable) -> list[Snapshot]:
    """A table's present snapshot and what it came of, down to the one right after the start."""
    known = {one.snapshot_id: one for one in after.metadata.snapshots}
    since: list[Snapshot] = []
    at = after.snapshot
    while at is not None and at.snapshot_id != start:
        since.append(at)
        parent = at.parent_snapshot_id
        if parent == start:
            # That one itself may have expired.
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
    operation = "tells no operation" if at.summary is None else f"has the operation {at.summary.operation.value}"
    return NotSupported(
        after.found.metadata_location,
        expected="commits that only append",
        found=f"that snapshot {at.snapshot_id} {operation}",
        remedy="compare the two states with `read(…, as_of=…)`, or take what was appended with only_appends=True",
    )


def _request_at(request: ReadRequest, milliseconds: int | None) -> ReadRequest:
    return replace(request, as_of=AsOfRef() if milliseconds is None else AsOfOrdinal(milliseconds))
