"""The inbox as SQL: synchronous, one connection, `now` an argument; every verb is one transaction.

The same code runs under the writer thread and, one step at a time, in the simulator.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from msgspec.structs import replace

from sfn.inbox import Claimed
from sfn.inbox.codec import key_of
from sfn.inbox.letters import Letter, Status, poisoned, supersedes
from sfn.inbox.row import LastSweep, Row, claim_of, is_held_by
from sfn.inbox.sqlite.brake import BrakeTable
from sfn.inbox.sqlite.dead import DeadLetters
from sfn.inbox.sqlite.desk import Desk
from sfn.inbox.sqlite.due import DueRows
from sfn.inbox.sqlite.events import EventLog
from sfn.inbox.sqlite.intake import Intake
from sfn.inbox.sqlite.intents import IntentTable
from sfn.inbox.sqlite.roster import RosterQueries
from sfn.inbox.sqlite.rows import Rows
from sfn.inbox.sqlite.schema import prepare
from sfn.inbox.tellings import told_of
from sfn.inbox.terms import Terms
from sfn.inbox.transitions import asked, claimed, expired, is_poison, renewed, settled
from sfn.words import (
    Accepted,
    Ask,
    Claim,
    Dead,
    Done,
    Lane,
    Later,
    Note,
    Outcome,
    Slots,
    Step,
    Subject,
    Swept,
    TableName,
    Told,
)

__all__ = ["Ledger", "Terms"]

_PATIENCE = 2.0
"""Seconds that another program may keep the database locked: everybody waits for it."""


class Ledger:
    """All verbs of the inbox on one SQLite connection.

    A verb that raises has changed nothing, unless it is called within `transaction`: then that is undone as a whole.
    """

    def __init__(self, path: str, terms: Terms) -> None:
        self._db = sqlite3.connect(
            path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, cached_statements=128
        )
        prepare(self._db, path)
        self._terms = terms
        self._rows = Rows(self._db, terms.stores)
        self._events = EventLog(self._db)
        self._dead = DeadLetters(self._db)
        self._due = DueRows(self._rows)
        self.roster = RosterQueries(self._rows)
        self.brake = BrakeTable(self._db, terms, self.roster)
        intents = IntentTable(self._db, lambda key: self._rows.load(key) is not None)
        self._intake = Intake(self._rows, self._events, self._dead, intents, terms, self._next)
        self.desk = Desk(
            self._db, self._rows, self._dead, self.brake, intents, transaction=self.transaction, put=self.put
        )
        self._seq = max(self._events.last(), self._rows.last())
        self._poisoned: list[Letter] = []
        self._taken_back = 0

    def close(self) -> None:
        """Close the database; SQLite brings what was written into it, and removes its log."""
        self._db.close()

    def checkpoint(self) -> None:
        """Bring what was written into the database: by and by SQLite does so itself, but keeps its errors to itself."""
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything within is one commit, or nothing; nested ones join the outer."""
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
        """Within a transaction: what raises within is undone alone."""
        self._rows.flush()
        undo = self._undo()
        self._db.execute("SAVEPOINT verb")
        try:
            yield
            self._rows.flush()
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK TO verb")
                self._db.execute("RELEASE verb")
            undo()
            raise
        self._db.execute("RELEASE verb")

    def _undo(self) -> Callable[[], None]:
        """Brings what is remembered back to how it is now."""
        poisoned, taken_back = list(self._poisoned), self._taken_back
        counts, letters = self._rows.counts.copy(), self._dead.open_ones.copy()

        def undo() -> None:
            self._rows.forget()
            self._poisoned, self._taken_back = poisoned, taken_back
            self._rows.counts, self._dead.open_ones = counts, letters

        return undo

    def put(self, notes: Sequence[Note], now: datetime) -> Accepted:
        """See `Intake.put`."""
        return self.put_all([(notes, now)])[0][0]

    def put_all(self, puts: Sequence[tuple[Sequence[Note], datetime]]) -> list[tuple[Accepted, bool]]:
        """Several `put` at once, each with its moment; and whether something may have fallen due by each."""
        with self.transaction():
            return self._intake.put_all(puts)

    def claim(self, slots: Slots, now: datetime, held: Sequence[Claim] = ()) -> Claimed:
        """See `Worklist.claim`."""
        with self.transaction():
            next_ask = self._intake.ask(now)
            if self._due.run_out(now):
                self.renew(held, now)
            expired = self._expire(now)
            claims = tuple(self._leased(key, lane, now) for lane, key in self._due.due(slots, now))
            next_due = min((at for at in (self._due.next(slots), next_ask) if at is not None), default=None)
        letters, self._poisoned = tuple(self._poisoned), []
        expired, self._taken_back = expired + self._taken_back, 0
        return Claimed(claims, next_due, letters, expired)

    def renew(self, claims: Sequence[Claim], now: datetime) -> list[Claim]:
        """See `Worklist.renew`."""
        kept = []
        with self.transaction():
            for claim, row in [(claim, self._load(claim.subject)) for claim in claims]:
                if row is not None and is_held_by(row, claim):
                    self._rows.save(key_of(claim.subject), renewed(row, now, self._terms.lease))
                    kept.append(claim)
        return kept

    def recover(self, now: datetime) -> int:
        """Take back every lease, at the start of the only process; how many."""
        with self.transaction():
            self._taken_back = self._expire(now, every=True)
        return self._taken_back

    def remember(self, claim: Claim, site: str, uuid: str | None, now: datetime) -> frozenset[TableName] | None:
        """See `Worklist.remember`."""
        key = key_of(claim.subject)
        with self.transaction():
            row = self._rows.load(key)
            if row is None or not is_held_by(row, claim):
                return None
            live = self.roster.live_at(claim.subject.catalog, site)
            others = frozenset(name for name, other in live if other != uuid and name != claim.subject)
            if site not in row.locations:
                self._rows.save(key, replace(row, locations=row.locations | {site}))
                self._ask([Ask(name) for name in sorted(others)], now)
        return others

    def permit(self, claim: Claim, step: Step, now: datetime) -> bool:
        """See `Worklist.permit`."""
        with self.transaction():
            row = self._rows.load(key_of(claim.subject))
            return row is not None and is_held_by(row, claim) and self.brake.permit(row, step, now)

    def settle(self, claim: Claim, outcome: Outcome, now: datetime) -> bool:
        """See `Worklist.settle`."""
        key = key_of(claim.subject)
        with self.transaction():
            before = self._rows.load(key)
            if before is None or not is_held_by(before, claim):
                return False
            self._rows.save(key, settled(before, claim, outcome, now, self._terms.cap))
            self._note(claim, key, outcome, before.attempt, now)
        return True

    def told(self, table: TableName) -> Told | None:
        """See `Roster.told`."""
        row = self._load(table)
        return told_of(row) if row is not None else None

    def neighbours(self, table: TableName, location: str) -> frozenset[TableName]:
        """See `Roster.neighbours`."""
        return frozenset(name for name, _ in self.roster.live_at(table.catalog, location)) - {table}

    def limit(self, catalog: str) -> int:
        """How many absences one sweep may find before they are held."""
        return self._terms.allowance(catalog, self.roster.live_count(catalog))

    def prune(self, before: datetime, most: int = 10_000) -> int:
        """Delete the oldest events received before a moment, so many at most; how many."""
        with self.transaction():
            return self._events.prune(before, most)

    def _load(self, subject: Subject) -> Row | None:
        return self._rows.load(key_of(subject))

    def _next(self) -> int:
        """A number greater than all before; one whose transaction is undone is skipped."""
        self._seq += 1
        return self._seq

    def _expire(self, now: datetime, *, every: bool = False) -> int:
        keys = self._due.run_out(None if every else now)
        for key in keys:
            row = self._rows.load(key)
            if row is None:
                continue
            after = expired(row, now, self._terms)
            self._rows.save(key, after)
            if is_poison(after, self._terms):
                letter = poisoned(row.subject, after.crashes, row.attempt)
                self._dead.open(letter, now)
                self._poisoned.append(letter)
        return len(keys)

    def _leased(self, key: str, lane: Lane, now: datetime) -> Claim:
        row = self._rows.load(key)
        if row is None:
            raise KeyError(key)
        after = claimed(row, self._next(), now, self._terms.lease)
        self._rows.save(key, after)
        return claim_of(after, lane, self.brake.swept_at(row.subject.catalog))

    def _note(self, claim: Claim, key: str, outcome: Outcome, attempts: int, now: datetime) -> None:
        """What an outcome means for other rows, the dead letters and the brake."""
        catalog = claim.subject.catalog
        if isinstance(outcome, Dead):
            self._dead.open(Letter(claim.subject, outcome.reason, outcome.detail, attempts), now)
        elif supersedes(outcome):
            self._dead.close(key, Status.SUPERSEDED, now)
        if isinstance(outcome, Swept):
            self.brake.note_sweep(catalog, LastSweep.ended(outcome))
            if outcome.calm:
                self.brake.reset(catalog)
        if isinstance(outcome, Done | Later | Dead) and outcome.findings is not None:
            self._ask(outcome.findings.asks, now)
            stirred = {name for place in outcome.findings.stirs for name in self.roster.visitors(catalog, place)}
            self._ask([Ask(name) for name in sorted(stirred) if name != claim.subject], now)

    def _ask(self, asks: Sequence[Ask], now: datetime) -> None:
        for ask in asks:
            key = key_of(ask.table)
            after = asked(self._rows.load(key), ask, self._next(), now, self._terms.cap)
            if after is not None:
                self._rows.save(key, after)
