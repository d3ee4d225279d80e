"""Jobs in SQLite: the rows that one transaction reads and changes, and the due jobs by concurrency group."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import Capacity, ConcurrencyGroup, Priority, PublishCache
from sfn.inbox.codec import (
    JOB_COLUMNS,
    STAT_STATE_SQL,
    decode_key,
    encode_cache,
    encode_changes,
    encode_key,
    from_micros,
    parse_job,
    to_micros,
)
from sfn.inbox.model import Job, group_of, stat_state
from sfn.inbox.scheduling import fair_order, rotate

T = TypeVar("T")

_SIZES: Final = (8, 4, 2, 1)
"""Larger batches are slower in SQLite."""


def batches(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield rows in their order, in batches of a few sizes, so that few statements must be prepared.

    Each statement releases the interpreter's lock and takes it again. Waiting for the lock costs more than the row.
    """
    start = 0
    for size in _SIZES:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


__all__ = ["MAX_CACHED_JOBS", "SqliteJobs", "decode_key", "encode_key"]

MAX_CACHED_JOBS = 4096
"""Rows that are cached from one transaction to the next."""

_ROW = f"{JOB_COLUMNS}, (SELECT memo FROM memo WHERE memo.key = subject.key)"
_COUNTED = (
    f"SELECT catalog, {STAT_STATE_SQL} AS counted, count(*) FROM subject "
    "WHERE lane NOT IN (SELECT id FROM lane WHERE urgency = 'sweep') GROUP BY catalog, counted"
)


class _Stored(NamedTuple):
    """A row as it is in the database, with the number of its concurrency group."""

    row: Job
    lane: int


class SqliteJobs:
    """Jobs that are read once, changed in memory, and written before a query or at the end of the transaction.

    Rows stay cached until a transaction is undone or another connection has written. The caller owns the transaction.
    The caller calls `begin` before the first operation, `flush` before the commit, and `forget` after a rollback.

    Args:
        stores: see `InboxConfig.stores`.

    Attributes:
        counts: number of table jobs, by catalog and `stat_state`; a rollback must restore it.
    """

    def __init__(self, db: sqlite3.Connection, stores: Collection[str] = ()) -> None:
        self._db, self._stores = db, stores
        self._stored: dict[str, _Stored] = {}
        self._changed: dict[str, Job | None] = {}
        self._lanes: dict[ConcurrencyGroup, int] = {}
        self._version = -1
        self.counts: Counter[tuple[str, str]] = Counter()
        self.begin()

    def begin(self) -> bool:
        """Drop cached rows that are out of date or too many: rows stay cached until the end of their transaction.

        Returns:
            True if another connection has written.
        """
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        changed = version != self._version
        if changed:
            self.forget()
            self.counts = Counter({(catalog, state): count for catalog, state, count in self._db.execute(_COUNTED)})
            self._version = version
        # All at once: a dict that is asked for its first key after each deletion walks over all deleted keys.
        for key in list(islice(self._stored, max(0, len(self._stored) - MAX_CACHED_JOBS))):
            del self._stored[key]
        return bool(changed)

    def forget(self) -> None:
        """Drop all cached rows, also changes that were not written yet."""
        self._stored.clear()
        self._changed.clear()
        found = self._db.execute("SELECT id, catalog, store, urgency FROM lane").fetchall()
        self._lanes = {
            ConcurrencyGroup(catalog, store, Priority(urgency)): number for number, catalog, store, urgency in found
        }

    def last(self) -> int:
        """Return the greatest number of a notification or a claim; 0 if there is none."""
        ((seq, token),) = self.select("SELECT coalesce(max(seq), 0), coalesce(max(token), 0) FROM subject")
        return int(max(seq, token))

    def lanes(self) -> dict[ConcurrencyGroup, int]:
        """Return every concurrency group that ever had a job, with its number."""
        self.flush()
        return self._lanes

    def select(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the result of a query over the current rows, changes included."""
        self.flush()
        return self._db.execute(query, values).fetchall()

    def load(self, key: str) -> Job | None:
        """Return the job of a key; None if there is none."""
        if key in self._changed:
            return self._changed[key]
        stored = self._stored.get(key)
        if stored is None:
            found = self._db.execute(f"SELECT lane, {_ROW} FROM subject WHERE key = ?", (key,)).fetchone()
            if found is None:
                return None
            places = self._db.execute("SELECT location FROM location WHERE key = ?", (key,)).fetchall()
            row = parse_job(key, found[1:], frozenset(place for (place,) in places))
            stored = self._stored[key] = _Stored(row, found[0])
        return stored.row

    def save(self, key: str, row: Job | None) -> None:
        """Change a job that was loaded in this transaction; None deletes it."""
        self._changed[key] = row

    def flush(self) -> None:
        """Write all changes."""
        changed, self._changed = self._changed, {}
        updates: dict[tuple[str, ...], list[list[Any]]] = {}
        for key, row in changed.items():
            before = self._stored.pop(key, None)
            self._count(before.row if before is not None else None, row)
            if row is not None:
                lane = self._lane_of(row, before)
                if before is None:
                    self._insert(key, row, lane)
                elif values := self._changes(key, row, lane, before):
                    updates.setdefault(tuple(values), []).append([*values.values(), key])
                self._stored[key] = _Stored(row, lane)
            elif before is not None:
                self._delete(key)
        for names, rows in updates.items():
            for some in batches(rows):
                self._db.execute(_update(names, len(some)), [value for row in some for value in row])

    def _count(self, before: Job | None, after: Job | None) -> None:
        for row, change in ((before, -1), (after, 1)):
            if row is not None and isinstance(row.subject, TableIdentifier):
                self.counts[row.subject.catalog, stat_state(row)] += change

    def _insert(self, key: str, row: Job, lane: int) -> None:
        values = {"key": key, "catalog": row.subject.catalog, "lane": lane, **encode_changes(row, None)}
        places = ", ".join("?" * len(values))
        self._db.execute(f"INSERT INTO subject({', '.join(values)}) VALUES({places})", list(values.values()))
        if row.cache != PublishCache():
            self._write_memo(key, row)
        self._write_locations(key, row.locations, frozenset())

    def _changes(self, key: str, row: Job, lane: int, before: _Stored) -> dict[str, Any]:
        """Return the changed columns; write cache and locations, which rarely change, to their own tables."""
        old = before.row
        if row.cache is not old.cache and row.cache != old.cache:
            self._write_memo(key, row)
        if row.locations is not old.locations:
            self._write_locations(key, row.locations, old.locations)
        values = encode_changes(row, old)
        if lane != before.lane:
            values["lane"] = lane
        return values

    def _delete(self, key: str) -> None:
        for table in ("subject", "memo", "location"):
            self._db.execute(f"DELETE FROM {table} WHERE key = ?", (key,))

    def _write_memo(self, key: str, row: Job) -> None:
        memo = encode_cache(row.cache)
        if memo is None:
            self._db.execute("DELETE FROM memo WHERE key = ?", (key,))
        else:
            self._db.execute("INSERT OR REPLACE INTO memo(key, memo) VALUES(?, ?)", (key, memo))

    def _write_locations(self, key: str, now: frozenset[str], before: frozenset[str]) -> None:
        for location in now - before:
            self._db.execute("INSERT INTO location(location, key) VALUES(?, ?)", (location, key))
        for location in before - now:
            self._db.execute("DELETE FROM location WHERE location = ? AND key = ?", (location, key))

    def _lane_of(self, row: Job, before: _Stored | None) -> int:
        if before is not None:
            was = before.row
            alike = row.table_state is was.table_state and row.locations is was.locations
            if alike and (row.notified_seq > row.processed_seq) == (was.notified_seq > was.processed_seq):
                return before.lane
        lane = group_of(row, self._stores)
        number = self._lanes.get(lane)
        if number is None:
            values = (lane.catalog, lane.store, lane.priority.value)
            made = self._db.execute("INSERT INTO lane(catalog, store, urgency) VALUES(?, ?, ?) RETURNING id", values)
            number = self._lanes[lane] = int(made.fetchone()[0])
        return number


@cache
def _update(names: tuple[str, ...], rows: int) -> str:
    """Return the statement that changes the same columns of several rows; values and key of each row are bound."""
    if rows == 1:
        return f"UPDATE subject SET {', '.join(f'{name} = ?' for name in names)} WHERE key = ?"
    changes = ", ".join(f"{name} = new.column{number}" for number, name in enumerate(names, start=1))
    one = f"({', '.join('?' * (len(names) + 1))})"
    found = f"(VALUES {', '.join([one] * rows)}) AS new"
    return f"UPDATE subject SET {changes} FROM {found} WHERE subject.key = new.column{len(names) + 1}"


class DueRows:
    """Queries for due jobs and expired leases, by concurrency group."""

    def __init__(self, rows: SqliteJobs) -> None:
        self._rows = rows
        self._turn = 0

    def due(self, slots: Capacity, now: datetime) -> list[tuple[ConcurrencyGroup, str]]:
        """Return the keys of due jobs, in turn over the concurrency groups, within the capacity."""
        query = (
            "SELECT key FROM subject WHERE lane = ? AND state = 'queued' AND due_at <= ? ORDER BY due_at, key LIMIT ?"
        )
        lanes = self._rows.lanes()
        self._turn = (self._turn + 1) % max(1, len(lanes))
        waiting = [
            (lane, self._rows.select(query, (lanes[lane], to_micros(now), free)))
            for lane in rotate(lanes, self._turn)
            if (free := slots.available_in(lane))
        ]
        return [(lane, key) for lane, (key,) in fair_order(waiting, slots)]

    def oldest(self, now: datetime) -> dict[str, datetime]:
        queries = (
            "SELECT min(due_at) FROM subject WHERE lane = ? AND state = 'queued'",
            "SELECT min(waits_since) FROM subject WHERE lane = ? AND waits_since IS NOT NULL",
        )
        oldest: dict[str, datetime] = {}
        lanes = [(lane, number) for lane, number in self._rows.lanes().items() if lane.is_event_driven]
        for query in queries:
            for lane, number in lanes:
                ((at,),) = self._rows.select(query, (number,))
                if at is not None and at <= to_micros(now):
                    oldest[lane.catalog] = min(from_micros(at), oldest.get(lane.catalog, now))
        return oldest

    def run_out(self, now: datetime | None) -> list[str]:
        """Return the keys of jobs with an expired lease; of every leased job for None."""
        if now is None:
            found = self._rows.select("SELECT key FROM subject WHERE state = 'leased'")
        else:
            query = "SELECT key FROM subject WHERE state = 'leased' AND lease_until <= ?"
            found = self._rows.select(query, (to_micros(now),))
        return [key for (key,) in found]

    def next(self, slots: Capacity) -> datetime | None:
        """Return when the next job of a group with capacity becomes due, or a lease expires."""
        query = "SELECT min(due_at) FROM subject WHERE lane = ? AND state = 'queued'"
        found = [
            self._rows.select(query, (number,))
            for lane, number in self._rows.lanes().items()
            if slots.available_in(lane)
        ]
        found.append(self._rows.select("SELECT min(lease_until) FROM subject WHERE state = 'leased'"))
        moments = [at for ((at,),) in found if at is not None]
        return from_micros(min(moments)) if moments else None
