"""The dead letters in SQLite."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime

from sfn.domain.events import UndecodableRequest
from sfn.domain.jobs import DeadLetterReason
from sfn.inbox.codec import (
    DEAD_LETTER_COLUMNS,
    dead_letter_conditions,
    encode_key,
    from_micros,
    parse_dead_letter,
    to_micros,
)
from sfn.inbox.model import MAX_UNDECODABLE_PER_SENDER, DeadLetter, DeadLetterFilter, DeadLetterStatus, NewDeadLetter


class SqliteDeadLetters:
    """The dead letters of one connection; the caller owns the transaction.

    Attributes:
        open_ones: number of open letters, by catalog ("" for an undecodable request) and reason.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.open_ones: Counter[tuple[str, str]] = Counter()
        self.recount()

    def recount(self) -> None:
        """Count the open letters again, after a rollback or a write by another connection."""
        query = "SELECT catalog, reason, count(*) FROM dead_letter WHERE status = 'open' GROUP BY catalog, reason"
        found = self._db.execute(query).fetchall()
        self.open_ones = Counter({(catalog or "", reason): count for catalog, reason, count in found})

    def open(self, letter: NewDeadLetter, now: datetime) -> None:
        """Open a letter, or update the open letter of the subject."""
        key, catalog = encode_key(letter.subject), letter.subject.catalog
        found = self._db.execute("SELECT id, reason FROM dead_letter WHERE key = ? AND status = 'open'", (key,))
        before = found.fetchone()
        if before is not None:
            self.open_ones[catalog, before[1]] -= 1
            self._db.execute(
                "UPDATE dead_letter SET reason = ?, detail = ?, attempts = ?, changed_at = ? WHERE id = ?",
                (letter.reason.value, letter.detail, letter.attempts, to_micros(now), before[0]),
            )
        else:
            self._db.execute(
                "INSERT INTO dead_letter(key, catalog, reason, detail, attempts, status, opened_at, changed_at) "
                "VALUES(?, ?, ?, ?, ?, 'open', ?, ?)",
                (key, catalog, letter.reason.value, letter.detail, letter.attempts, to_micros(now), to_micros(now)),
            )
        self.open_ones[catalog, letter.reason.value] += 1

    def keep(self, note: UndecodableRequest, now: datetime) -> None:
        """Open a letter for an undecodable request; delete the sender's oldest letter if it has too many."""
        (number,) = self._db.execute(
            "INSERT INTO dead_letter(sender, reason, detail, attempts, status, opened_at, changed_at) "
            "VALUES(?, ?, ?, 0, 'open', ?, ?) RETURNING id",
            (note.sender, DeadLetterReason.UNDECODABLE.value, note.detail, to_micros(now), to_micros(now)),
        ).fetchone()
        self._db.execute(
            "INSERT INTO undecodable(letter, path, content_type, size, body) VALUES(?, ?, ?, ?, ?)",
            (number, note.path, note.content_type, note.size, note.body),
        )
        self.open_ones["", DeadLetterReason.UNDECODABLE.value] += 1
        oldest = "SELECT id FROM dead_letter WHERE sender = ? ORDER BY id DESC LIMIT 1 OFFSET ?"
        gone = self._db.execute(
            f"DELETE FROM dead_letter WHERE sender = ? AND id <= ({oldest}) RETURNING status",
            (note.sender, note.sender, MAX_UNDECODABLE_PER_SENDER),
        ).fetchall()
        self.open_ones["", DeadLetterReason.UNDECODABLE.value] -= sum(
            status == DeadLetterStatus.OPEN.value for (status,) in gone
        )

    def close(self, key: str, status: DeadLetterStatus, now: datetime, actor: str | None = None) -> None:
        """Close the open letter of a job, if there is one."""
        found = self._db.execute("SELECT id FROM dead_letter WHERE key = ? AND status = 'open'", (key,)).fetchone()
        if found is not None:
            self.end(found[0], status, now, actor)

    def end(self, number: int, status: DeadLetterStatus, now: datetime, actor: str | None) -> bool:
        """Close an open letter; return False if there is none with that id."""
        closed = self._db.execute(
            "UPDATE dead_letter SET status = ?, changed_at = ?, actor = ? WHERE id = ? AND status = 'open' "
            "RETURNING catalog, reason",
            (status.value, to_micros(now), actor, number),
        ).fetchone()
        if closed is None:
            return False
        self.open_ones[closed[0] or "", closed[1]] -= 1
        return True

    def oldest(self, catalogs: Collection[str]) -> dict[str, datetime]:
        """Return the opening time of the oldest open letter by catalog, without held drops, which wait on purpose."""
        query = (
            "SELECT opened_at FROM dead_letter WHERE status = 'open' AND catalog = ? AND reason != ? "
            "AND key IS NOT NULL ORDER BY id LIMIT 1"
        )
        held = DeadLetterReason.HELD_DROP.value
        given_up = {catalog for (catalog, reason), count in self.open_ones.items() if count and reason != held}
        found = {one: self._db.execute(query, (one, held)).fetchone() for one in given_up & set(catalogs)}
        return {catalog: from_micros(row[0]) for catalog, row in found.items() if row is not None}

    def list_after(self, letter_filter: DeadLetterFilter, after: int, limit: int) -> list[DeadLetter]:
        """Return at most `limit` matching letters with ids above `after`, by id."""
        config = dead_letter_conditions(letter_filter)
        chosen = " AND ".join(["id > ?", *(f"{term} ?" for term in config)])
        query = f"SELECT {DEAD_LETTER_COLUMNS} FROM dead_letter WHERE {chosen} ORDER BY id LIMIT ?"
        return [parse_dead_letter(row) for row in self._db.execute(query, (after, *config.values(), limit)).fetchall()]

    def list_newest(self, letter_filter: DeadLetterFilter, limit: int) -> list[DeadLetter]:
        """Return at most `limit` matching letters, newest first."""
        config = dead_letter_conditions(letter_filter)
        chosen = " AND ".join(["true", *(f"{term} ?" for term in config)])
        query = f"SELECT {DEAD_LETTER_COLUMNS} FROM dead_letter WHERE {chosen} ORDER BY id DESC LIMIT ?"
        return [parse_dead_letter(row) for row in self._db.execute(query, (*config.values(), limit)).fetchall()]

    def get_many(self, ids: Sequence[int]) -> list[DeadLetter]:
        """Return the letters with these ids, by id."""
        query = f"SELECT {DEAD_LETTER_COLUMNS} FROM dead_letter WHERE id = ?"
        found = [self._db.execute(query, (number,)).fetchone() for number in sorted(set(ids))]
        return [parse_dead_letter(row) for row in found if row is not None]

    def request_of(self, letter_id: int) -> UndecodableRequest | None:
        """Return the undecodable request of a letter; None if there is none."""
        query = (
            "SELECT sender, path, content_type, body, size, detail FROM dead_letter JOIN undecodable ON letter = id "
            "WHERE id = ?"
        )
        found = self._db.execute(query, (letter_id,)).fetchone()
        return UndecodableRequest(*found) if found is not None else None

    def prune(self, before: datetime, most: int) -> int:
        """Delete at most `most` letters that were closed before a time; return their number."""
        chosen = "SELECT id FROM dead_letter WHERE status != 'open' AND changed_at < ? LIMIT ?"
        return self._db.execute(f"DELETE FROM dead_letter WHERE id IN ({chosen})", (to_micros(before), most)).rowcount
