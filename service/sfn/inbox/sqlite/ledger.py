"""The inbox as SQL: synchronous, one connection, `now` an argument; every verb is one transaction.

The same code runs under the writer thread and, one step at a time, in the simulator.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sfn.inbox import Claimed
from sfn.inbox.sqlite.brake import BrakeTable
from sfn.inbox.sqlite.dead import DeadLetters
from sfn.inbox.sqlite.roster import RosterQueries
from sfn.inbox.sqlite.rows import COLUMNS, Rows, key_of, micros, moment
from sfn.inbox.sqlite.schema import prepare
from sfn.inbox.transitions import Row, asked, claim_of, claimed, expired, hinted, is_held_by, released, settled
from sfn.words import (
    Accepted,
    Ask,
    Claim,
    Dead,
    Done,
    Hint,
    Lane,
    Later,
    Outcome,
    Reason,
    Slots,
    Step,
    Swept,
    TableName,
    Urgency,
)

_FOREVER = 2**62


@dataclass(frozen=True, slots=True)
class Terms:
    """The inbox's settings.

    Attributes:
        lease: how long a claim lasts unless renewed.
        cap: the longest pause of a retry.
        crashes: leases that may run out in a row before a row counts as poison.
        max_drops: steps back an hour that the brake allows, by catalog; None or missing for the greater of 10 and 1 %.
    """

    lease: timedelta = timedelta(seconds=30)
    cap: timedelta = timedelta(minutes=5)
    crashes: int = 5
    max_drops: Mapping[str, int] = field(default_factory=dict)


class Ledger:
    """All verbs of the inbox on one SQLite connection."""

    def __init__(self, path: str, terms: Terms) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=128)
        prepare(self._db, path)
        self._terms = terms
        self._rows = Rows(self._db)
        self._dead = DeadLetters(self._db)
        self.roster = RosterQueries(self._db, self._rows)
        self.brake = BrakeTable(self._db, terms.max_drops)
        (self._seq,) = self._db.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone()
        (asked_seq,) = self._db.execute("SELECT coalesce(max(max(seq, token)), 0) FROM subject").fetchone()
        self._seq = max(self._seq, asked_seq)
        self._turn = 0

    def close(self) -> None:
        """Checkpoint and close."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything within is one commit, or nothing; nested ones join the outer."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN IMMEDIATE")
        seq = self._seq
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._seq = seq
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def put(self, notes: Sequence[Hint], now: datetime) -> Accepted:
        """See `Intake.put`."""
        accepted = 0
        with self.transaction():
            for note in notes:
                key = key_of(note.subject)
                if not self._logged(note, key, now):
                    continue
                accepted += 1
                before = self._rows.load(key)
                self._rows.save(hinted(before, note, self._seq, now, self._terms.cap), before)
        return Accepted(accepted, len(notes) - accepted)

    def claim(self, slots: Slots, now: datetime) -> Claimed:
        """See `Worklist.claim`."""
        with self.transaction():
            self._expire(now)
            claims = tuple(self._leased(row, lane, now) for lane, row in self._due(slots, now))
        return Claimed(claims, self._next_due(slots))

    def renew(self, claims: Sequence[Claim], now: datetime) -> list[Claim]:
        """See `Worklist.renew`."""
        kept = []
        with self.transaction():
            for claim in claims:
                cursor = self._db.execute(
                    "UPDATE subject SET lease_until = ? WHERE key = ? AND state = 'leased' AND token = ?",
                    (micros(now + self._terms.lease), key_of(claim.subject), claim.token),
                )
                if cursor.rowcount:
                    kept.append(claim)
        return kept

    def recover(self, now: datetime) -> int:
        """Take back every lease, at the start of the only process; how many."""
        with self.transaction():
            return self._expire(now, every=True)

    def remember(self, claim: Claim, location: str, uuid: str | None, now: datetime) -> frozenset[TableName] | None:
        """See `Worklist.remember`."""
        key = key_of(claim.subject)
        with self.transaction():
            row = self._rows.load(key)
            if row is None or not is_held_by(row, claim):
                return None
            live = self.roster.live_at(claim.subject.catalog, location)
            others = frozenset(name for name, other in live if other != uuid and name != claim.subject)
            if location not in row.locations:
                self._rows.save(replace(row, locations=row.locations | {location}), row)
                self._ask([Ask(name) for name in sorted(others)], now)
        return others

    def permit(self, claim: Claim, step: Step, now: datetime) -> bool:
        """See `Worklist.permit`."""
        with self.transaction():
            if not is_held_by(self._rows.load(key_of(claim.subject)), claim):
                return False
            return self.brake.permit(claim.subject, step, self.roster.live_count(claim.subject.catalog), now)

    def settle(self, claim: Claim, outcome: Outcome, now: datetime) -> bool:
        """See `Worklist.settle`."""
        key = key_of(claim.subject)
        with self.transaction():
            before = self._rows.load(key)
            if before is None or not is_held_by(before, claim):
                return False
            after = settled(before, claim, outcome, now, self._terms.cap)
            if after is None:
                self._rows.delete(key)
            else:
                self._rows.save(after, before)
            self._note(claim, key, outcome, before.attempt, now)
        return True

    def neighbours(self, table: TableName, location: str) -> frozenset[TableName]:
        """See `Roster.neighbours`."""
        return frozenset(name for name, _ in self.roster.live_at(table.catalog, location)) - {table}

    def limit(self, catalog: str) -> int:
        """How many absences one sweep may find before they are held."""
        return self.brake.limit(catalog, self.roster.live_count(catalog))

    def release(self, catalog: str, now: datetime) -> int:
        """See `Brake.release`."""
        query = f"SELECT {COLUMNS} FROM subject WHERE catalog = ? AND state = 'dead' AND reason = ?"
        with self.transaction():
            self.brake.reset(catalog)
            self.brake.forget_steps(catalog)
            found = self._db.execute(query, (catalog, Reason.HELD_DROP.value)).fetchall()
            for columns in found:
                row = self._rows.parse(columns)
                self._rows.save(released(row, now), row)
                self._dead.close(columns[0], "replayed", now)
        return len(found)

    def prune(self, before: datetime) -> int:
        """Delete events received before a moment, at most 10,000; how many."""
        with self.transaction():
            return self._db.execute(
                "DELETE FROM event WHERE seq IN (SELECT seq FROM event WHERE received_at < ? LIMIT 10000)",
                (micros(before),),
            ).rowcount

    def _logged(self, note: Hint, key: str, now: datetime) -> bool:
        """Write a hint to the log of events; False: its sender sent it before."""
        self._seq += 1
        cursor = self._db.execute(
            "INSERT INTO event(seq, sender, event_id, key, received_at, body) VALUES(?, ?, ?, ?, ?, ?) "
            "ON CONFLICT(sender, event_id) DO NOTHING",
            (self._seq, note.sender, note.event_id, key, micros(now), note.body),
        )
        return cursor.rowcount == 1

    def _expire(self, now: datetime, *, every: bool = False) -> int:
        query = f"SELECT {COLUMNS} FROM subject WHERE state = 'leased' AND lease_until <= ?"
        found = self._db.execute(query, (_FOREVER if every else micros(now),)).fetchall()
        for columns in found:
            row = self._rows.parse(columns)
            after = expired(row, now, self._terms.crashes)
            self._rows.save(after, row)
            if after.reason is not None:
                detail = f"{row.subject}: {after.crashes} attempts in a row ended the process or lost their lease"
                self._dead.open(columns[0], row.subject.catalog, after.reason.value, detail, row.attempt, now)
        return len(found)

    def _due(self, slots: Slots, now: datetime) -> list[tuple[Lane, Row]]:
        """Due rows, in turn over the lanes, within the slots."""
        query = f"SELECT {COLUMNS} FROM subject WHERE lane = ? AND state = 'queued' AND due_at <= ? ORDER BY due_at LIMIT ?"
        lanes = sorted(self._rows.lanes)
        self._turn = (self._turn + 1) % max(1, len(lanes))
        by_lane = []
        for lane in lanes[self._turn :] + lanes[: self._turn]:
            if free := slots.of(lane):
                found = self._db.execute(query, (self._rows.lanes[lane], micros(now), free)).fetchall()
                by_lane.append([(lane, self._rows.parse(columns)) for columns in found])
        taken: list[tuple[Lane, Row]] = []
        left = {Urgency.LIVE: slots.live, Urgency.CHORE: slots.total, Urgency.SWEEP: slots.sweeps}
        tables = slots.total
        for lane, row in (item for items in itertools.zip_longest(*by_lane) for item in items if item is not None):
            is_table = lane.urgency is not Urgency.SWEEP
            if left[lane.urgency] > 0 and (tables > 0 or not is_table):
                taken.append((lane, row))
                left[lane.urgency] -= 1
                tables -= is_table
        return taken

    def _leased(self, row: Row, lane: Lane, now: datetime) -> Claim:
        self._seq += 1
        after = claimed(row, self._seq, now, self._terms.lease)
        self._rows.save(after, row)
        return claim_of(after, lane, self.brake.swept_at(row.subject.catalog))

    def _next_due(self, slots: Slots) -> datetime | None:
        """When the next row falls due in a lane that has slots, or a lease runs out."""
        query = "SELECT min(due_at) FROM subject WHERE lane = ? AND state = 'queued'"
        open_lanes = [number for lane, number in self._rows.lanes.items() if slots.of(lane) > 0]
        found = [self._db.execute(query, (number,)).fetchone()[0] for number in open_lanes]
        found.append(self._db.execute("SELECT min(lease_until) FROM subject WHERE state = 'leased'").fetchone()[0])
        due = [at for at in found if at is not None]
        return moment(min(due)) if due else None

    def _note(self, claim: Claim, key: str, outcome: Outcome, attempts: int, now: datetime) -> None:
        """What an outcome means for other rows, the dead letters and the brake."""
        catalog = claim.subject.catalog
        if isinstance(outcome, Dead):
            self._dead.open(key, catalog, outcome.reason.value, outcome.detail, attempts, now)
        elif isinstance(outcome, Done | Swept):
            self._dead.close(key, "superseded", now)
        if isinstance(outcome, Swept):
            self.brake.note_sweep(catalog, outcome.began)
            if outcome.calm:
                self.brake.reset(catalog)
        if isinstance(outcome, Done | Later | Dead) and outcome.findings is not None:
            self._ask(outcome.findings.asks, now)
            stirred = {name for place in outcome.findings.stirs for name in self.roster.visitors(catalog, place)}
            self._ask([Ask(name) for name in sorted(stirred) if name != claim.subject], now)

    def _ask(self, asks: Sequence[Ask], now: datetime) -> None:
        for ask in asks:
            before = self._rows.load(key_of(ask.table))
            self._seq += 1
            after = asked(before, ask, self._seq, now)
            if after is not None:
                self._rows.save(after, before)
