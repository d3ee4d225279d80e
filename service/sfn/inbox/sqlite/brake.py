"""What is noted of whole catalogs: the brake on steps that are not forward, their sweeps, who they are, who retired."""

from __future__ import annotations

import sqlite3
from datetime import datetime

from sfn.inbox.codec import key_of, micros, step_text, sweep_of, withheld_text
from sfn.inbox.figures import BrakeState
from sfn.inbox.row import LastSweep
from sfn.inbox.sqlite.roster import RosterQueries
from sfn.inbox.terms import Terms
from sfn.words import Backward, Step, Subject


class BrakeTable:
    """The brakes and sweeps of all catalogs on one connection; the caller owns the transaction."""

    def __init__(self, db: sqlite3.Connection, terms: Terms, roster: RosterQueries) -> None:
        self._db, self._terms, self._roster = db, terms, roster

    def permit(self, subject: Subject, step: Step, now: datetime) -> bool:
        """Allow a step, or trip."""
        catalog, dropped = subject.catalog, key_of(subject) if step.kind is Backward.DROP else None
        text = step_text(subject, step)
        self._db.execute("DELETE FROM permit WHERE at <= ?", (micros(now - self._terms.brake_window),))
        if self._db.execute("SELECT 1 FROM permit WHERE catalog = ? AND step = ?", (catalog, text)).fetchone():
            return True
        if self._is_tripped(catalog) or not self._allows(catalog, dropped, now):
            self._trip(catalog, tripped=True)
            return False
        self._db.execute(
            "INSERT INTO permit(catalog, step, at, dropped) VALUES(?, ?, ?, ?)", (catalog, text, micros(now), dropped)
        )
        return True

    def reset(self, catalog: str) -> None:
        """Let an operator's word, or a calm sweep, loosen it."""
        self._trip(catalog, tripped=False)

    def forget_steps(self, catalog: str) -> None:
        """Start the hour anew."""
        self._db.execute("DELETE FROM permit WHERE catalog = ?", (catalog,))

    def swept_at(self, catalog: str) -> LastSweep | None:
        """The last complete sweep."""
        found = self._db.execute("SELECT swept_at, withheld FROM catalog WHERE name = ?", (catalog,)).fetchone()
        return sweep_of(*found) if found is not None and found[0] is not None else None

    def note_sweep(self, catalog: str, sweep: LastSweep) -> None:
        """A sweep is complete."""
        self._db.execute(
            "INSERT INTO catalog(name, swept_at, withheld) VALUES(?, ?, ?) "
            "ON CONFLICT(name) DO UPDATE SET swept_at = excluded.swept_at, withheld = excluded.withheld",
            (catalog, micros(sweep.began), withheld_text(sweep.withheld)),
        )

    def state(self, catalog: str, now: datetime, *, tripped: bool) -> BrakeState:
        """How a catalog's brake stands, which is on or not."""
        used, live = self._steps(catalog, now), self._roster.live_count(catalog)
        dropped = self._roster.without_file(self._dropped(catalog, now))
        return BrakeState(tripped, used, self._terms.allowance(catalog, live, dropped), live)

    def tripped(self) -> frozenset[str]:
        """The catalogs whose brake is on."""
        return self._named("SELECT name FROM catalog WHERE tripped = 1")

    def retire(self, catalog: str, *, retired: bool) -> None:
        """Note whether a catalog's tables get no files any more."""
        self._db.execute(
            "INSERT INTO catalog(name, retired) VALUES(?, ?) "
            "ON CONFLICT(name) DO UPDATE SET retired = excluded.retired",
            (catalog, int(retired)),
        )

    def retired(self) -> frozenset[str]:
        """The catalogs of which that was noted."""
        return self._named("SELECT name FROM catalog WHERE retired = 1")

    def own(self, catalog: str, catalog_id: str) -> None:
        """Note for which `catalog_id` files are written."""
        self._db.execute(
            "INSERT INTO catalog(name, catalog_id) VALUES(?, ?) "
            "ON CONFLICT(name) DO UPDATE SET catalog_id = excluded.catalog_id",
            (catalog, catalog_id),
        )

    def owner(self, catalog: str) -> str | None:
        """For which that was noted last."""
        found = self._db.execute("SELECT catalog_id FROM catalog WHERE name = ?", (catalog,)).fetchone()
        return found[0] if found is not None else None

    def _allows(self, catalog: str, dropped: str | None, now: datetime) -> bool:
        """Whether one more step is no more than may be; a table that is dropped twice disappears once."""
        used = self._steps(catalog, now)
        # To count the live tables takes long where they are many, and more of them never allow less.
        if used >= self._terms.most_steps(catalog, 0):
            live = self._roster.live_count(catalog)
            if used >= self._terms.most_steps(catalog, live):
                return False
        if dropped is None:
            return True
        gone = {*self._dropped(catalog, now), dropped}
        # Of more tables than these no more than half are gone.
        live = self._roster.live_count(catalog, 2 * len(gone) + 1)
        return len(gone) <= self._terms.most_drops(catalog, live + self._roster.without_file(gone))

    def _steps(self, catalog: str, now: datetime) -> int:
        query = "SELECT count(*) FROM permit WHERE catalog = ? AND at > ?"
        (used,) = self._db.execute(query, (catalog, micros(now - self._terms.brake_window))).fetchone()
        return int(used)

    def _dropped(self, catalog: str, now: datetime) -> frozenset[str]:
        """Return the keys of the tables that were allowed to be dropped within the hour."""
        query = "SELECT DISTINCT dropped FROM permit WHERE catalog = ? AND at > ? AND dropped IS NOT NULL"
        found = self._db.execute(query, (catalog, micros(now - self._terms.brake_window))).fetchall()
        return frozenset(key for (key,) in found)

    def _named(self, query: str) -> frozenset[str]:
        return frozenset(name for (name,) in self._db.execute(query).fetchall())

    def _is_tripped(self, catalog: str) -> bool:
        return (
            self._db.execute("SELECT 1 FROM catalog WHERE name = ? AND tripped = 1", (catalog,)).fetchone() is not None
        )

    def _trip(self, catalog: str, *, tripped: bool) -> None:
        self._db.execute(
            "INSERT INTO catalog(name, tripped) VALUES(?, ?) "
            "ON CONFLICT(name) DO UPDATE SET tripped = excluded.tripped",
            (catalog, int(tripped)),
        )
