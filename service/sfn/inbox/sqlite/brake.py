"""What is noted of whole catalogs: the brake on steps that are not forward, their sweeps, who they are, who retired."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime

from sfn.inbox.codec import micros, step_text, sweep_of, withheld_text
from sfn.inbox.figures import BrakeState
from sfn.inbox.row import LastSweep
from sfn.inbox.terms import Terms
from sfn.words import Step, Subject


class BrakeTable:
    """The brakes and sweeps of all catalogs on one connection; the caller owns the transaction."""

    def __init__(self, db: sqlite3.Connection, terms: Terms) -> None:
        self._db, self._terms = db, terms

    def permit(self, subject: Subject, step: Step, live: Callable[[], int], now: datetime) -> bool:
        """Give leave for a step, or trip.

        Args:
            live: counts the catalog's tables that have a live file; it takes long where they are many.
        """
        catalog = subject.catalog
        text = step_text(subject, step)
        self._db.execute("DELETE FROM permit WHERE at <= ?", (micros(now - self._terms.brake_window),))
        if self._db.execute("SELECT 1 FROM permit WHERE catalog = ? AND step = ?", (catalog, text)).fetchone():
            return True
        (used,) = self._db.execute("SELECT count(*) FROM permit WHERE catalog = ?", (catalog,)).fetchone()
        if self._is_tripped(catalog) or used >= self._terms.allowance(catalog, live()):
            self._trip(catalog, tripped=True)
            return False
        self._db.execute("INSERT INTO permit(catalog, step, at) VALUES(?, ?, ?)", (catalog, text, micros(now)))
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

    def state(self, catalog: str, live: int, now: datetime, *, tripped: bool) -> BrakeState:
        """How a catalog's brake stands, which is on or not, with so many live tables."""
        query = "SELECT count(*) FROM permit WHERE catalog = ? AND at > ?"
        (used,) = self._db.execute(query, (catalog, micros(now - self._terms.brake_window))).fetchone()
        return BrakeState(tripped, used, self._terms.allowance(catalog, live), live)

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
