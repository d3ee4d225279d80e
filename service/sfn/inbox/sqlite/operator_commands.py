"""Queries and commands of operators in SQL; every operation is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from sfn.domain.events import Notification, PutResult, UndecodableRequest
from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import DeadLetterReason
from sfn.inbox.codec import encode_key, from_micros, to_micros
from sfn.inbox.intents import intent_stats_by_catalog
from sfn.inbox.maintenance import MAX_AUDIT_ENTRIES, CommandProgress
from sfn.inbox.model import (
    RELEASE_BATCH_SIZE,
    AdminCommand,
    AuditEntry,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterStatus,
    Job,
    LastEvent,
    TableStatus,
    event_seq_of,
    to_table_status,
)
from sfn.inbox.sqlite.catalogs import DropLimitTable
from sfn.inbox.sqlite.dead_letters import SqliteDeadLetters
from sfn.inbox.sqlite.intents import SqliteIntents
from sfn.inbox.sqlite.jobs import DueRows, SqliteJobs
from sfn.inbox.sqlite.table_index import IndexQueries
from sfn.inbox.statistics import DropLimitState, QueueStats, catalogs_over_limit, earliest_by_catalog
from sfn.inbox.transitions import on_release_hold, on_replay


class SqliteAdmin:
    """The queries and commands of operators on one connection.

    Args:
        rows, dead, drop_limit, intents: the stores of `SqliteOperations`.
        transaction, put: its operations.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        rows: SqliteJobs,
        dead: SqliteDeadLetters,
        drop_limit: DropLimitTable,
        intents: SqliteIntents,
        *,
        transaction: Callable[[], AbstractContextManager[None]],
        put: Callable[[Sequence[Notification], datetime], PutResult],
    ) -> None:
        self._db, self._rows, self._dead, self._drop_limit, self._intents = db, rows, dead, drop_limit, intents
        self._transaction, self._put = transaction, put
        self._due, self._table_index = DueRows(rows), IndexQueries(rows)

    def stats(self, now: datetime) -> QueueStats:
        """Return the statistics; the counts are cached, only open intents, which are few, are counted here."""
        catalogs = {catalog for catalog, _ in self._rows.counts}
        oldest = earliest_by_catalog(self._due.oldest(now), self._dead.oldest(catalogs))
        tables = {pair: count for pair, count in self._rows.counts.items() if count}
        letters = {pair: count for pair, count in self._dead.open_ones.items() if count}
        tripped = catalogs_over_limit(tables, self._drop_limit.tripped())
        intents, missing = intent_stats_by_catalog(self._intents.counts()), self._table_index.missing()
        return QueueStats(tables, oldest, letters, tripped, *intents, missing)

    def table_status(self, subject: JobKey) -> TableStatus | None:
        row = self._rows.load(encode_key(subject))
        if row is None:
            return None
        return to_table_status(row, self._last_event(row), self._intents.opened(subject))

    def drop_limit_state(self, catalog: str, now: datetime) -> DropLimitState:
        on = catalog in catalogs_over_limit(self._rows.counts, self._drop_limit.tripped())
        return self._drop_limit.state(catalog, now, tripped=on)

    def audit_log(self, before: int | None, limit: int) -> list[AuditEntry]:
        query = "SELECT id, at, actor, action, about, count FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?"
        found = self._db.execute(query, (2**63 - 1 if before is None else before, limit)).fetchall()
        return [AuditEntry(number, from_micros(at), *rest) for number, at, *rest in found]

    def list_after(self, letter_filter: DeadLetterFilter, after: int, limit: int) -> list[DeadLetter]:
        return self._dead.list_after(letter_filter, after, limit)

    def list_newest(self, letter_filter: DeadLetterFilter, limit: int) -> list[DeadLetter]:
        return self._dead.list_newest(letter_filter, limit)

    def get_many(self, ids: Sequence[int]) -> list[DeadLetter]:
        return self._dead.get_many(ids)

    def request_of(self, letter_id: int) -> UndecodableRequest | None:
        return self._dead.request_of(letter_id)

    def replay(self, ids: Sequence[int], notifications: Sequence[Notification], command: AdminCommand) -> int:
        with self._transaction():
            count = 0
            for letter in self._dead.get_many(ids):
                if self._dead.end(letter.id, DeadLetterStatus.REPLAYED, command.at, command.actor):
                    count += 1
                    self._requeue(letter.subject, command.at)
            if notifications:
                self._put(notifications, command.at)
            self._note("replay", command, count)
        return count

    def discard(self, ids: Sequence[int], command: AdminCommand) -> int:
        with self._transaction():
            count = sum(
                self._dead.end(number, DeadLetterStatus.DISCARDED, command.at, command.actor) for number in set(ids)
            )
            self._note("discard", command, count)
        return count

    def prune(self, before: datetime, most: int) -> int:
        """Delete at most `most` dead letters that were closed before a time; return their number."""
        with self._transaction():
            return self._dead.prune(before, most)

    def release(self, catalog: str, command: AdminCommand, before: CommandProgress | None = None) -> CommandProgress:
        """Release the next batch, see `DropLimit.release`.

        Args:
            before: the result of the last batch; None for the first batch.
        """
        query = "SELECT key FROM subject WHERE catalog = ? AND reason = ? AND key > ? ORDER BY key LIMIT ?"
        with self._transaction():
            if before is None:
                self._drop_limit.reset(catalog)
                self._drop_limit.forget_steps(catalog)
                before = CommandProgress(self._note("release", command, 0))
            found = self._rows.select(
                query, (catalog, DeadLetterReason.HELD_DROP.value, before.last_key, RELEASE_BATCH_SIZE)
            )
            for (key,) in found:
                row = self._rows.load(key)
                if row is not None:
                    self._rows.save(key, on_release_hold(row, command.at))
                    self._dead.close(key, DeadLetterStatus.REPLAYED, command.at, command.actor)
            count = before.count + len(found)
            self._db.execute("UPDATE audit SET count = ? WHERE id = ?", (count, before.audit_id))
        return CommandProgress(
            before.audit_id,
            count,
            found[-1][0] if found else before.last_key,
            has_more=len(found) == RELEASE_BATCH_SIZE,
        )

    def reconcile(self, notifications: Sequence[Notification], command: AdminCommand) -> None:
        self._notify_all("reconcile", notifications, command)

    def adopt(self, notifications: Sequence[Notification], command: AdminCommand) -> None:
        self._notify_all("adopt", notifications, command)

    def retire(self, catalog: str, *, retired: bool, command: AdminCommand) -> None:
        with self._transaction():
            self._drop_limit.retire(catalog, retired=retired)
            self._note("retire" if retired else "unretire", command, 1)

    def owner_id(self, catalog: str) -> str | None:
        return self._drop_limit.owner_id(catalog)

    def record_owner(self, catalog: str, catalog_id: str) -> None:
        with self._transaction():
            self._drop_limit.record_owner(catalog, catalog_id)

    def retired_catalogs(self) -> frozenset[str]:
        return self._drop_limit.retired_catalogs()

    def _notify_all(self, action: str, notifications: Sequence[Notification], order: AdminCommand) -> None:
        with self._transaction():
            self._put(notifications, order.at)
            self._note(action, order, len(notifications))

    def _requeue(self, subject: JobKey | None, now: datetime) -> None:
        if subject is None:
            return
        key = encode_key(subject)
        self._rows.save(key, on_replay(self._rows.load(key) or Job(subject, now), now))

    def _last_event(self, row: Job) -> LastEvent | None:
        query = "SELECT sender, event_id, received_at, body FROM event WHERE seq = ?"
        found = self._db.execute(query, (event_seq_of(row),)).fetchone()
        return LastEvent(found[0], found[1], from_micros(found[2]), found[3]) if found is not None else None

    def _note(self, action: str, order: AdminCommand, count: int) -> int:
        """Add a command to the audit log; return the id of the entry."""
        (number,) = self._db.execute(
            "INSERT INTO audit(at, actor, action, about, count) VALUES(?, ?, ?, ?, ?) RETURNING id",
            (to_micros(order.at), order.actor, action, order.target, count),
        ).fetchone()
        self._db.execute("DELETE FROM audit WHERE id <= ?", (number - MAX_AUDIT_ENTRIES,))
        return int(number)
