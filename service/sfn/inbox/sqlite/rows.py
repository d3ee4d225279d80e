"""The rows of the inbox in SQLite, as one unit of work."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sfn.inbox.row import Row, counted_as, lane_of
from sfn.inbox.sqlite.codec import (
    ROW,
    key_of,
    live_columns,
    memo_column,
    parse_row,
    plain_columns,
    said_column,
    state_columns,
    story_column,
    subject_of,
    wish_column,
)
from sfn.words import Lane, Memo, TableName, Urgency

__all__ = ["KEPT", "Rows", "key_of", "subject_of"]

KEPT = 4096
"""Rows that stay known from one transaction to the next."""

_PLAIN = "not_before = ?, seq = ?, done_seq = ?, token = ?, attempt = ?, crashes = ?, failing_since = ?"
_STATE = ", state = ?, due_at = ?, lease_until = ?, reason = ?, lane = ?"
_COUNTED = """
    SELECT catalog, CASE
        WHEN state = 'leased' THEN 'leased' WHEN reason = 'held-drop' THEN 'held' WHEN reason IS NOT NULL THEN 'dead'
        WHEN attempt > 0 THEN 'retrying' WHEN seq > done_seq THEN 'due' ELSE 'scheduled' END AS counted, count(*)
    FROM subject WHERE lane NOT IN (SELECT id FROM lane WHERE urgency = 'sweep') GROUP BY catalog, counted
"""
"""`counted_as`, of all rows at once."""
_LIVE = ", live_uuid = ?, live_location = ?"


@dataclass(frozen=True, slots=True)
class _Stored:
    """A row as the database has it, with the number of its lane."""

    row: Row
    lane: int


class Rows:
    """Rows are read once, changed in memory, and written when somebody queries them or the transaction ends.

    What was read stays known until a transaction is undone or another connection has written. The caller owns the
    transaction: it calls `begin` before the first verb, `flush` before it commits, and `forget` after a rollback.

    Args:
        stores: see `Terms.stores`.

    Attributes:
        counts: how many rows of tables there are, by catalog and `counted_as`; whoever undoes a transaction puts back
            what it was before.
    """

    def __init__(self, db: sqlite3.Connection, stores: Collection[str] = ()) -> None:
        self._db, self._stores = db, stores
        self._stored: dict[str, _Stored] = {}
        self._changed: dict[str, Row | None] = {}
        self._lanes: dict[Lane, int] = {}
        self._version = -1
        self.counts: Counter[tuple[str, str]] = Counter()
        self.begin()

    def begin(self) -> bool:
        """Make sure that what is known is so, and make room: what a verb loads stays until its transaction ends.

        Returns:
            Whether another connection has written.
        """
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        changed = version != self._version
        if changed:
            self.forget()
            self.counts = Counter({(catalog, state): count for catalog, state, count in self._db.execute(_COUNTED)})
            self._version = version
        while len(self._stored) > KEPT:
            del self._stored[next(iter(self._stored))]
        return bool(changed)

    def forget(self) -> None:
        """Drop everything that is remembered, also what was not written yet."""
        self._stored.clear()
        self._changed.clear()
        found = self._db.execute("SELECT id, catalog, store, urgency FROM lane").fetchall()
        self._lanes = {Lane(catalog, store, Urgency(urgency)): number for number, catalog, store, urgency in found}

    def last(self) -> int:
        """The greatest number of a hint or a claim, 0 for none."""
        ((seq, token),) = self.select("SELECT coalesce(max(seq), 0), coalesce(max(token), 0) FROM subject")
        return int(max(seq, token))

    def lanes(self) -> dict[Lane, int]:
        """Every lane that ever had a row, with its number."""
        self.flush()
        return self._lanes

    def select(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """The answer to a query over the rows as they are now: the one way to ask for more than a row."""
        self.flush()
        return self._db.execute(query, values).fetchall()

    def load(self, key: str) -> Row | None:
        """The row of a key."""
        if key in self._changed:
            return self._changed[key]
        stored = self._stored.get(key)
        if stored is None:
            found = self._db.execute(f"SELECT lane, {ROW} FROM subject WHERE key = ?", (key,)).fetchone()
            if found is None:
                return None
            places = self._db.execute("SELECT location FROM location WHERE key = ?", (key,)).fetchall()
            row = parse_row(key, found[1:], frozenset(place for (place,) in places))
            stored = self._stored[key] = _Stored(row, found[0])
        return stored.row

    def save(self, key: str, row: Row | None) -> None:
        """Change the row of a key that was loaded in this transaction; None: it goes."""
        self._changed[key] = row

    def flush(self) -> None:
        """Write what was changed."""
        changed, self._changed = self._changed, {}
        for key, row in changed.items():
            before = self._stored.pop(key, None)
            self._count(before.row if before is not None else None, row)
            if row is not None:
                lane = self._lane(lane_of(row, self._stores))
                if before is None:
                    self._insert(key, row, lane)
                else:
                    self._update(key, row, lane, before)
                self._stored[key] = _Stored(row, lane)
            elif before is not None:
                self._delete(key)

    def _count(self, before: Row | None, after: Row | None) -> None:
        for row, change in ((before, -1), (after, 1)):
            if row is not None and isinstance(row.subject, TableName):
                self.counts[row.subject.catalog, counted_as(row)] += change

    def _insert(self, key: str, row: Row, lane: int) -> None:
        self._db.execute(
            "INSERT INTO subject(key, catalog, not_before, seq, done_seq, token, attempt, crashes, failing_since, "
            "state, due_at, lease_until, reason, lane, said, wish, story, live_uuid, live_location) "
            "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                key,
                row.subject.catalog,
                *plain_columns(row),
                *state_columns(row),
                lane,
                said_column(row.said),
                wish_column(row.wish),
                story_column(row.story),
                *live_columns(row.story.live),
            ),
        )
        if row.memo != Memo():
            self._write_memo(key, row)
        self._write_locations(key, row.locations, frozenset())

    def _update(self, key: str, row: Row, lane: int, before: _Stored) -> None:
        """Write what differs: most changes touch no index, and few the memo."""
        old = before.row
        changes, values = _PLAIN, plain_columns(row)
        if (row.state, row.due_at, row.lease_until, row.reason, lane) != (
            old.state,
            old.due_at,
            old.lease_until,
            old.reason,
            before.lane,
        ):
            changes += _STATE
            values += (*state_columns(row), lane)
        if row.wish is not old.wish:
            changes += ", wish = ?"
            values.append(wish_column(row.wish))
        if row.said is not old.said:
            changes += ", said = ?"
            values.append(said_column(row.said))
        if row.story is not old.story:
            changes += ", story = ?"
            values.append(story_column(row.story))
        if row.story.live != old.story.live:
            changes += _LIVE
            values += live_columns(row.story.live)
        self._db.execute(f"UPDATE subject SET {changes} WHERE key = ?", (*values, key))
        if row.memo is not old.memo and row.memo != old.memo:
            self._write_memo(key, row)
        if row.locations is not old.locations:
            self._write_locations(key, row.locations, old.locations)

    def _delete(self, key: str) -> None:
        for table in ("subject", "memo", "location"):
            self._db.execute(f"DELETE FROM {table} WHERE key = ?", (key,))

    def _write_memo(self, key: str, row: Row) -> None:
        memo = memo_column(row.memo)
        if memo is None:
            self._db.execute("DELETE FROM memo WHERE key = ?", (key,))
        else:
            self._db.execute("INSERT OR REPLACE INTO memo(key, memo) VALUES(?, ?)", (key, memo))

    def _write_locations(self, key: str, now: frozenset[str], before: frozenset[str]) -> None:
        for location in now - before:
            self._db.execute("INSERT INTO location(location, key) VALUES(?, ?)", (location, key))
        for location in before - now:
            self._db.execute("DELETE FROM location WHERE location = ? AND key = ?", (location, key))

    def _lane(self, lane: Lane) -> int:
        number = self._lanes.get(lane)
        if number is None:
            values = (lane.catalog, lane.store, lane.urgency.value)
            made = self._db.execute("INSERT INTO lane(catalog, store, urgency) VALUES(?, ?, ?) RETURNING id", values)
            number = self._lanes[lane] = int(made.fetchone()[0])
        return number
