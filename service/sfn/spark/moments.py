"""Which snapshot of a table is meant, by its id or by a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sfn.errors import CommitNotFound
from sfn.reader.metadata import check_log_times
from sfn.sfnfile.document import LAST_ORDINAL, render_ordinal

_MAX_NAMED = 10
_MILLENNIUM = 946_684_800_000
_REMEDY_SNAPSHOT = "ask for one of these; expired snapshots are gone"
_REMEDY_TIME = f"{_REMEDY_SNAPSHOT}; a time in Unix milliseconds is given as a datetime or an Ordinal"


def snapshot_at(log: Iterable[tuple[int, int]], milliseconds: int, where: str) -> int:
    """The snapshot that was the table's own at a time.

    Args:
        log: its history: when each became current, in Unix milliseconds, and which that was.
        where: the metadata file.

    Raises:
        CommitNotFound: the history begins later, or its times can't be times.
    """
    entries = list(log)
    check_log_times(entries, "snapshot-log", where)
    earlier = [number for at, number in entries if at <= milliseconds]
    if not earlier:
        first = min((at for at, _ in entries), default=None)
        raise CommitNotFound(
            where,
            expected=f"a snapshot at or before {render_ordinal(milliseconds)}",
            found="none" if first is None else f"the first of {render_ordinal(first)}",
            remedy="ask for a later time; expired snapshots are gone",
        )
    return earlier[-1]


def check_snapshot_id(number: int, known: Collection[int], where: str) -> None:
    """Refuse the id of a snapshot that a table does not have.

    Args:
        known: those that it has, the oldest first.
        where: the metadata file.

    Raises:
        CommitNotFound: it has none of this id.
    """
    if number not in known:
        raise CommitNotFound(
            where,
            expected=f"a snapshot {number}",
            found=f"the newest: {', '.join(map(str, list(known)[-_MAX_NAMED:])) or 'none'}",
            remedy=_REMEDY_TIME if _MILLENNIUM < number <= LAST_ORDINAL else _REMEDY_SNAPSHOT,
        )
