"""Rows of the inbox to and from SQLite."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from sfn.inbox.transitions import Row, State
from sfn.words import CatalogName, Lane, Memo, Reason, Story, Subject, TableName, Urgency, Wish

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.json.Encoder(order="deterministic").encode
_wish = msgspec.json.Decoder(Wish).decode
_story = msgspec.json.Decoder(Story).decode
_memo = msgspec.json.Decoder(Memo).decode
_key = msgspec.json.Decoder(list[str]).decode
_NO_WISH, _NO_MEMO = _encode(Wish()), _encode(Memo())

COLUMNS = (
    "key, state, due_at, not_before, seq, done_seq, token, lease_until, attempt, crashes, failing_since, reason, "
    "wish, story, memo"
)


def micros(at: datetime) -> int:
    """Unix microseconds."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def moment(at: int) -> datetime:
    """The moment of Unix microseconds."""
    return _EPOCH + timedelta(microseconds=at)


def key_of(subject: Subject) -> str:
    """A subject's key: a JSON array of catalog, levels and name; of the catalog alone for a catalog."""
    if isinstance(subject, CatalogName):
        return _encode([subject.catalog]).decode()
    return _encode([subject.catalog, *subject.namespace, subject.name]).decode()


def subject_of(key: str) -> Subject:
    """The subject of a key."""
    catalog, *rest = _key(key)
    return TableName(catalog, tuple(rest[:-1]), rest[-1]) if rest else CatalogName(catalog)


class Rows:
    """Loads and saves rows on one connection; the caller owns the transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._lanes = {
            Lane(catalog, store, Urgency(urgency)): number
            for number, catalog, store, urgency in db.execute("SELECT id, catalog, store, urgency FROM lane")
        }

    @property
    def lanes(self) -> dict[Lane, int]:
        """Every lane that ever had a row, with its number."""
        return self._lanes

    def load(self, key: str) -> Row | None:
        """The row of a key."""
        found = self._db.execute(f"SELECT {COLUMNS} FROM subject WHERE key = ?", (key,)).fetchone()
        return self.parse(found) if found is not None else None

    def parse(self, columns: tuple[Any, ...]) -> Row:
        """The row of `COLUMNS`."""
        key, state, due, before, seq, done, token, lease, attempt, crashes, since, reason, wish, story, memo = columns
        places = self._db.execute("SELECT location FROM location WHERE key = ?", (key,))
        return Row(
            subject=subject_of(key),
            due_at=moment(due),
            state=State(state),
            not_before=moment(before) if before is not None else None,
            seq=seq,
            done_seq=done,
            token=token,
            lease_until=moment(lease) if lease is not None else None,
            attempt=attempt,
            crashes=crashes,
            failing_since=moment(since) if since is not None else None,
            reason=Reason(reason) if reason is not None else None,
            wish=Wish() if wish == _NO_WISH else _wish(wish),
            locations=frozenset(place for (place,) in places),
            story=_story(story),
            memo=Memo() if memo == _NO_MEMO else _memo(memo),
        )

    def save(self, row: Row, before: Row | None) -> None:
        """Write a row; `before` is what `load` gave for it."""
        key = key_of(row.subject)
        live = row.story.live
        self._db.execute(
            f"INSERT OR REPLACE INTO subject({COLUMNS}, catalog, lane, live_uuid, live_location, live_written_at) "
            "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                key,
                row.state.value,
                micros(row.due_at),
                micros(row.not_before) if row.not_before is not None else None,
                row.seq,
                row.done_seq,
                row.token,
                micros(row.lease_until) if row.lease_until is not None else None,
                row.attempt,
                row.crashes,
                micros(row.failing_since) if row.failing_since is not None else None,
                row.reason.value if row.reason is not None else None,
                _encode(row.wish),
                _encode(row.story),
                _encode(row.memo),
                row.subject.catalog,
                self._lane(row.lane),
                live.uuid if live is not None else None,
                live.location if live is not None else None,
                micros(live.written_at) if live is not None else None,
            ),
        )
        self._save_locations(key, row, before)

    def delete(self, key: str) -> None:
        """Forget a row."""
        self._db.execute("DELETE FROM subject WHERE key = ?", (key,))
        self._db.execute("DELETE FROM location WHERE key = ?", (key,))

    def _save_locations(self, key: str, row: Row, before: Row | None) -> None:
        old = before.locations if before is not None else frozenset()
        for location in row.locations - old:
            self._db.execute("INSERT OR IGNORE INTO location(location, key) VALUES(?, ?)", (location, key))
        for location in old - row.locations:
            self._db.execute("DELETE FROM location WHERE location = ? AND key = ?", (location, key))

    def _lane(self, lane: Lane) -> int:
        number = self._lanes.get(lane)
        if number is None:
            cursor = self._db.execute(
                "INSERT INTO lane(catalog, store, urgency) VALUES(?, ?, ?) RETURNING id",
                (lane.catalog, lane.store, lane.urgency.value),
            )
            (number,) = cursor.fetchone()
            self._lanes[lane] = int(number)
        return int(number)
