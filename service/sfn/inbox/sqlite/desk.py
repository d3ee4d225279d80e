"""What operators ask of the inbox and tell it, as SQL; every verb is one transaction, as the ledger's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from sfn.inbox.codec import key_of, micros, moment
from sfn.inbox.figures import BrakeState, Figures, braking, earliest
from sfn.inbox.intents import numbers
from sfn.inbox.keeping import AUDIT_KEPT, Batch
from sfn.inbox.letters import RELEASED, Audited, DeadLetter, Order, Status, Wanted
from sfn.inbox.row import Row, standing_of, told_by
from sfn.inbox.sqlite.brake import BrakeTable
from sfn.inbox.sqlite.dead import DeadLetters
from sfn.inbox.sqlite.due import DueRows
from sfn.inbox.sqlite.intents import IntentTable
from sfn.inbox.sqlite.roster import RosterQueries
from sfn.inbox.sqlite.rows import Rows
from sfn.inbox.standing import LastEvent, Standing
from sfn.inbox.transitions import released, replayed
from sfn.words import Accepted, Hint, Reason, Subject, Undecodable


class Desk:
    """The operators' verbs on one connection, see `sfn.inbox.desk`.

    Args:
        rows, dead, brake, intents: the ledger's.
        transaction, put: the ledger's verbs.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        rows: Rows,
        dead: DeadLetters,
        brake: BrakeTable,
        intents: IntentTable,
        *,
        transaction: Callable[[], AbstractContextManager[None]],
        put: Callable[[Sequence[Hint], datetime], Accepted],
    ) -> None:
        self._db, self._rows, self._dead, self._brake, self._intents = db, rows, dead, brake, intents
        self._transaction, self._put = transaction, put
        self._due, self._roster = DueRows(rows), RosterQueries(rows)

    def figures(self, now: datetime) -> Figures:
        """See `Desk.figures`: the counts are kept; only open intents, which are few, are counted for it."""
        catalogs = {catalog for catalog, _ in self._rows.counts}
        oldest = earliest(self._due.oldest(now), self._dead.oldest(catalogs))
        tables = {pair: count for pair, count in self._rows.counts.items() if count}
        letters = {pair: count for pair, count in self._dead.open_ones.items() if count}
        tripped = braking(tables, self._brake.tripped())
        intents, missing = numbers(self._intents.counts()), self._roster.missing()
        return Figures(tables, oldest, letters, tripped, *intents, missing)

    def standing(self, subject: Subject) -> Standing | None:
        """See `Desk.standing`."""
        row = self._rows.load(key_of(subject))
        if row is None:
            return None
        return standing_of(row, self._last_event(row), self._intents.opened(subject))

    def brake(self, catalog: str, now: datetime) -> BrakeState:
        """See `Desk.brake`."""
        on = catalog in braking(self._rows.counts, self._brake.tripped())
        return self._brake.state(catalog, now, tripped=on)

    def audited(self, before: int | None, limit: int) -> list[Audited]:
        """See `Desk.audited`."""
        query = "SELECT id, at, actor, action, about, count FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?"
        found = self._db.execute(query, (2**63 - 1 if before is None else before, limit)).fetchall()
        return [Audited(number, moment(at), *rest) for number, at, *rest in found]

    def find(self, wanted: Wanted, after: int, limit: int) -> list[DeadLetter]:
        """See `DeadLetters.find`."""
        return self._dead.find(wanted, after, limit)

    def newest(self, wanted: Wanted, limit: int) -> list[DeadLetter]:
        """See `DeadLetters.newest`."""
        return self._dead.newest(wanted, limit)

    def numbered(self, numbers: Sequence[int]) -> list[DeadLetter]:
        """See `DeadLetters.numbered`."""
        return self._dead.numbered(numbers)

    def event(self, number: int) -> Undecodable | None:
        """See `DeadLetters.event`."""
        return self._dead.event(number)

    def replay(self, numbers: Sequence[int], hints: Sequence[Hint], order: Order) -> int:
        """See `DeadLetters.replay`."""
        with self._transaction():
            count = 0
            for letter in self._dead.numbered(numbers):
                if self._dead.end(letter.id, Status.REPLAYED, order.at, order.actor):
                    count += 1
                    self._requeue(letter.subject, order.at)
            if hints:
                self._put(hints, order.at)
            self._note("replay", order, count)
        return count

    def discard(self, numbers: Sequence[int], order: Order) -> int:
        """See `DeadLetters.discard`."""
        with self._transaction():
            count = sum(self._dead.end(number, Status.DISCARDED, order.at, order.actor) for number in set(numbers))
            self._note("discard", order, count)
        return count

    def prune(self, before: datetime, most: int) -> int:
        """Delete dead letters that were closed before a moment, so many at most; how many."""
        with self._transaction():
            return self._dead.prune(before, most)

    def release(self, catalog: str, order: Order, before: Batch | None = None) -> Batch:
        """The next batch of `Brake.release`.

        Args:
            before: what the one before answered; None for the first.
        """
        query = "SELECT key FROM subject WHERE catalog = ? AND reason = ? AND key > ? ORDER BY key LIMIT ?"
        with self._transaction():
            if before is None:
                self._brake.reset(catalog)
                self._brake.forget_steps(catalog)
                before = Batch(self._note("release", order, 0))
            found = self._rows.select(query, (catalog, Reason.HELD_DROP.value, before.last, RELEASED))
            for (key,) in found:
                row = self._rows.load(key)
                if row is not None:
                    self._rows.save(key, released(row, order.at))
                    self._dead.close(key, Status.REPLAYED, order.at, order.actor)
            count = before.count + len(found)
            self._db.execute("UPDATE audit SET count = ? WHERE id = ?", (count, before.entry))
        return Batch(before.entry, count, found[-1][0] if found else before.last, more=len(found) == RELEASED)

    def reconcile(self, hints: Sequence[Hint], order: Order) -> None:
        """See `Custody.reconcile`."""
        self._told("reconcile", hints, order)

    def adopt(self, hints: Sequence[Hint], order: Order) -> None:
        """See `Custody.adopt`."""
        self._told("adopt", hints, order)

    def retire(self, catalog: str, *, retired: bool, order: Order) -> None:
        """See `Custody.retire`."""
        with self._transaction():
            self._brake.retire(catalog, retired=retired)
            self._note("retire" if retired else "unretire", order, 1)

    def owner(self, catalog: str) -> str | None:
        """See `Custody.owner`."""
        return self._brake.owner(catalog)

    def own(self, catalog: str, catalog_id: str) -> None:
        """See `Custody.own`."""
        with self._transaction():
            self._brake.own(catalog, catalog_id)

    def retired(self) -> frozenset[str]:
        """See `Custody.retired`."""
        return self._brake.retired()

    def _told(self, action: str, hints: Sequence[Hint], order: Order) -> None:
        with self._transaction():
            self._put(hints, order.at)
            self._note(action, order, len(hints))

    def _requeue(self, subject: Subject | None, now: datetime) -> None:
        if subject is None:
            return
        key = key_of(subject)
        self._rows.save(key, replayed(self._rows.load(key) or Row(subject, now), now))

    def _last_event(self, row: Row) -> LastEvent | None:
        query = "SELECT sender, event_id, received_at, body FROM event WHERE seq = ?"
        found = self._db.execute(query, (told_by(row),)).fetchone()
        return LastEvent(found[0], found[1], moment(found[2]), found[3]) if found is not None else None

    def _note(self, action: str, order: Order, count: int) -> int:
        """Remember an order; the entry's id."""
        (number,) = self._db.execute(
            "INSERT INTO audit(at, actor, action, about, count) VALUES(?, ?, ?, ?, ?) RETURNING id",
            (micros(order.at), order.actor, action, order.about, count),
        ).fetchone()
        self._db.execute("DELETE FROM audit WHERE id <= ?", (number - AUDIT_KEPT,))
        return int(number)
