"""The operations of the inbox in SQL: synchronous, on one connection, each in one transaction; time is an argument.

The same code runs under the writer thread and, one step at a time, in the simulator.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from msgspec.structs import replace

from sfn.domain.events import InboxMessage, PutResult, TableReport
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import (
    BackwardStep,
    Capacity,
    ConcurrencyGroup,
    DeadLettered,
    Done,
    LeasedJob,
    Outcome,
    Rescheduled,
    SweepCompleted,
    Wakeup,
)
from sfn.inbox import ClaimResult
from sfn.inbox.codec import encode_key
from sfn.inbox.model import (
    DeadLetterStatus,
    InboxConfig,
    Job,
    LastSweep,
    NewDeadLetter,
    closes_dead_letter,
    holds_lease,
    poison_letter,
    to_leased_job,
)
from sfn.inbox.sqlite.apply_puts import EventLog, SqliteWriter
from sfn.inbox.sqlite.catalogs import DropLimitTable
from sfn.inbox.sqlite.dead_letters import SqliteDeadLetters
from sfn.inbox.sqlite.intents import SqliteIntents
from sfn.inbox.sqlite.jobs import DueRows, SqliteJobs
from sfn.inbox.sqlite.operator_commands import SqliteAdmin
from sfn.inbox.sqlite.schema import prepare
from sfn.inbox.sqlite.table_index import IndexQueries
from sfn.inbox.transitions import (
    is_poison,
    on_claim,
    on_lease_expired,
    on_renew,
    on_settle,
    on_wakeup,
)

__all__ = ["InboxConfig", "SqliteOperations"]

_PATIENCE = 2.0
"""Seconds that another program may lock the database; all operations wait meanwhile."""


class SqliteOperations:
    """All operations of the inbox on one SQLite connection.

    An operation that raises has changed nothing. Within `transaction`, the transaction is undone as a whole.
    """

    def __init__(self, path: str, config: InboxConfig) -> None:
        self._db = sqlite3.connect(
            path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, cached_statements=128
        )
        prepare(self._db, path)
        self._config = config
        self._rows = SqliteJobs(self._db, config.stores)
        self._events = EventLog(self._db)
        self._dead = SqliteDeadLetters(self._db)
        self._due = DueRows(self._rows)
        self.table_index = IndexQueries(self._rows)
        self.drop_limit = DropLimitTable(self._db, config, self.table_index)
        intents = SqliteIntents(self._db, lambda key: self._rows.load(key) is not None)
        self._writer = SqliteWriter(self._rows, self._events, self._dead, intents, config, self._next)
        self.admin = SqliteAdmin(
            self._db, self._rows, self._dead, self.drop_limit, intents, transaction=self.transaction, put=self.put
        )
        self._seq = max(self._events.last(), self._rows.last())
        self._poisoned: list[NewDeadLetter] = []
        self._taken_back = 0

    def close(self) -> None:
        """Close the database; SQLite copies its log into the database and removes the log."""
        self._db.close()

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the database. SQLite does so itself at times, but reports no error then."""
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in one transaction; a nested one joins the outer."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN IMMEDIATE")
        undo = self._undo()
        try:
            if self._rows.begin():
                self._dead.recount()
                undo = self._undo()
            yield
            self._rows.flush()
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            undo()
            raise

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Run the block within a transaction; if the block raises, only its changes are undone."""
        self._rows.flush()
        undo = self._undo()
        self._db.execute("SAVEPOINT operation")
        try:
            yield
            self._rows.flush()
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK TO operation")
                self._db.execute("RELEASE operation")
            undo()
            raise
        self._db.execute("RELEASE operation")

    def _undo(self) -> Callable[[], None]:
        """Return a function that restores the present state in memory."""
        poisoned, taken_back = list(self._poisoned), self._taken_back
        counts, letters = self._rows.counts.copy(), self._dead.open_ones.copy()

        def undo() -> None:
            self._rows.forget()
            self._poisoned, self._taken_back = poisoned, taken_back
            self._rows.counts, self._dead.open_ones = counts, letters

        return undo

    def put(self, messages: Sequence[InboxMessage], now: datetime) -> PutResult:
        return self.put_all([(messages, now)])[0][0]

    def put_all(self, puts: Sequence[tuple[Sequence[InboxMessage], datetime]]) -> list[tuple[PutResult, bool]]:
        """Run several `put` at once, each with its time; return for each also whether a job may have become due."""
        with self.transaction():
            return self._writer.put_all(puts)

    def claim(self, capacity: Capacity, now: datetime, running: Sequence[LeasedJob] = ()) -> ClaimResult:
        with self.transaction():
            next_ask = self._writer.ask(now)
            if self._due.run_out(now):
                self.renew(running, now)
            expired = self._expire(now)
            claims = tuple(self._leased(key, lane, now) for lane, key in self._due.due(capacity, now))
            next_due = min((at for at in (self._due.next(capacity), next_ask) if at is not None), default=None)
        letters, self._poisoned = tuple(self._poisoned), []
        expired, self._taken_back = expired + self._taken_back, 0
        return ClaimResult(claims, next_due, letters, expired)

    def renew(self, claims: Sequence[LeasedJob], now: datetime) -> list[LeasedJob]:
        prolonged = []
        with self.transaction():
            for claim, row in [(claim, self._load(claim.subject)) for claim in claims]:
                if row is not None and holds_lease(row, claim):
                    self._rows.save(encode_key(claim.subject), on_renew(row, now, self._config.lease))
                    prolonged.append(claim)
        return prolonged

    def recover(self, now: datetime) -> int:
        """Take back every lease, at the start of the only process; return their number."""
        with self.transaction():
            self._taken_back = self._expire(now, every=True)
        return self._taken_back

    def record_location(
        self, claim: LeasedJob, layout_key: str, uuid: str | None, now: datetime
    ) -> frozenset[TableIdentifier] | None:
        key = encode_key(claim.subject)
        with self.transaction():
            row = self._rows.load(key)
            if row is None or not holds_lease(row, claim):
                return None
            live = self.table_index.live_at(claim.subject.catalog, layout_key)
            others = frozenset(name for name, other in live if other != uuid and name != claim.subject)
            if layout_key not in row.locations:
                self._rows.save(key, replace(row, locations=row.locations | {layout_key}))
                self._ask([Wakeup(name) for name in sorted(others)], now)
        return others

    def allow_step(self, claim: LeasedJob, step: BackwardStep, now: datetime) -> bool:
        with self.transaction():
            row = self._rows.load(encode_key(claim.subject))
            return row is not None and holds_lease(row, claim) and self.drop_limit.allow_step(row, step, now)

    def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        key = encode_key(claim.subject)
        with self.transaction():
            before = self._rows.load(key)
            if before is None or not holds_lease(before, claim):
                return False
            self._rows.save(key, on_settle(before, claim, outcome, now, self._config.retry_cap))
            self._note(claim, key, outcome, before.attempt, now)
        return True

    def reported_tables(self, table: TableIdentifier) -> tuple[TableReport, ...]:
        row = self._load(table)
        return row.table_state.reported if row is not None else ()

    def at_location(self, table: TableIdentifier, location: str) -> frozenset[TableIdentifier]:
        return frozenset(name for name, _ in self.table_index.live_at(table.catalog, location)) - {table}

    def max_missing(self, catalog: str) -> int:
        """Return how many missing tables a sweep may drop before the drops are held."""
        return self._config.allowed_drops(catalog, self.table_index.live_count(catalog))

    def prune(self, before: datetime, most: int = 10_000) -> int:
        """Delete at most `most` of the oldest events from before a time; return their number."""
        with self.transaction():
            return self._events.prune(before, most)

    def _load(self, subject: JobKey) -> Job | None:
        return self._rows.load(encode_key(subject))

    def _next(self) -> int:
        """Return a number greater than all before; a rollback skips the number."""
        self._seq += 1
        return self._seq

    def _expire(self, now: datetime, *, every: bool = False) -> int:
        keys = self._due.run_out(None if every else now)
        for key in keys:
            row = self._rows.load(key)
            if row is None:
                continue
            after = on_lease_expired(row, now, self._config)
            self._rows.save(key, after)
            if is_poison(after, self._config):
                letter = poison_letter(row.subject, after.crashes, row.attempt)
                self._dead.open(letter, now)
                self._poisoned.append(letter)
        return len(keys)

    def _leased(self, key: str, lane: ConcurrencyGroup, now: datetime) -> LeasedJob:
        row = self._rows.load(key)
        if row is None:
            raise KeyError(key)
        after = on_claim(row, self._next(), now, self._config.lease)
        self._rows.save(key, after)
        return to_leased_job(after, lane, self.drop_limit.swept_at(row.subject.catalog))

    def _note(self, claim: LeasedJob, key: str, outcome: Outcome, attempts: int, now: datetime) -> None:
        """Apply an outcome to other jobs, the dead letters and the drop limit."""
        catalog = claim.subject.catalog
        if isinstance(outcome, DeadLettered):
            self._dead.open(NewDeadLetter(claim.subject, outcome.reason, outcome.detail, attempts), now)
        elif closes_dead_letter(outcome):
            self._dead.close(key, DeadLetterStatus.SUPERSEDED, now)
        if isinstance(outcome, SweepCompleted):
            self.drop_limit.note_sweep(catalog, LastSweep.from_completed(outcome))
            if outcome.within_limit:
                self.drop_limit.reset(catalog)
        if isinstance(outcome, Done | Rescheduled | DeadLettered) and outcome.result is not None:
            self._ask(outcome.result.wakeups, now)
            stirred = {
                name for place in outcome.result.wake_locations for name in self.table_index.visitors(catalog, place)
            }
            self._ask([Wakeup(name) for name in sorted(stirred) if name != claim.subject], now)

    def _ask(self, asks: Sequence[Wakeup], now: datetime) -> None:
        for ask in asks:
            key = encode_key(ask.table)
            after = on_wakeup(self._rows.load(key), ask, self._next(), now, self._config.retry_cap)
            if after is not None:
                self._rows.save(key, after)
