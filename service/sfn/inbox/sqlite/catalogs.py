"""State of whole catalogs: the drop limit, the last sweep, the owner of the files, and whether they are retired."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from sfn.domain.jobs import BackwardStep
from sfn.inbox.codec import decode_key, encode_key, encode_step, namespaces_column, parse_sweep, to_micros
from sfn.inbox.model import InboxConfig, Job, LastSweep, is_renamed
from sfn.inbox.sqlite.table_index import IndexQueries
from sfn.inbox.statistics import (
    DropLimitState,
    NamedTable,
    counted_steps,
    dropped_table,
    is_already_counted,
    without_old_names,
)


class DropLimitTable:
    """Drop limits and sweeps of all catalogs on one connection; the caller owns the transaction."""

    def __init__(self, db: sqlite3.Connection, config: InboxConfig, table_index: IndexQueries) -> None:
        self._db, self._config, self._table_index = db, config, table_index

    def allow_step(self, row: Job, step: BackwardStep, now: datetime) -> bool:
        """Return whether a step of a job is allowed; if not, allow no further step in the catalog."""
        catalog, text = row.subject.catalog, encode_step(row.subject, step)
        self._db.execute("DELETE FROM permit WHERE at <= ?", (to_micros(now - self._config.drop_limit_window),))
        if self._db.execute("SELECT 1 FROM permit WHERE catalog = ? AND step = ?", (catalog, text)).fetchone():
            return True
        drop, drops = dropped_table(row.subject, step, is_renamed=is_renamed(row)), self._drops(catalog, now)
        allowed = not self._is_tripped(catalog) and self._allows(catalog, drop, drops, now)
        if not allowed and not is_already_counted(drop, drops):
            self._trip(catalog, tripped=True)
            return False
        dropped = (encode_key(drop.name), drop.uuid, drop.is_renamed) if drop is not None else (None, None, None)
        self._db.execute(
            "INSERT INTO permit(catalog, step, at, dropped, uuid, renamed) VALUES(?, ?, ?, ?, ?, ?)",
            (catalog, text, to_micros(now), *dropped),
        )
        return True

    def reset(self, catalog: str) -> None:
        """Allow steps again, after an operator's command or a sweep within the limit."""
        self._trip(catalog, tripped=False)

    def forget_steps(self, catalog: str) -> None:
        """Forget the counted steps."""
        self._db.execute("DELETE FROM permit WHERE catalog = ?", (catalog,))

    def swept_at(self, catalog: str) -> LastSweep | None:
        """Return the last complete sweep; None if there is none."""
        found = self._db.execute("SELECT swept_at, withheld FROM catalog WHERE name = ?", (catalog,)).fetchone()
        return parse_sweep(*found) if found is not None and found[0] is not None else None

    def note_sweep(self, catalog: str, sweep: LastSweep) -> None:
        """Record a complete sweep."""
        self._db.execute(
            "INSERT INTO catalog(name, swept_at, withheld) VALUES(?, ?, ?) "
            "ON CONFLICT(name) DO UPDATE SET swept_at = excluded.swept_at, withheld = excluded.withheld",
            (catalog, to_micros(sweep.started_at), namespaces_column(sweep.unlisted_namespaces)),
        )

    def state(self, catalog: str, now: datetime, *, tripped: bool) -> DropLimitState:
        """Return the state of a catalog's drop limit."""
        drops = self._drops(catalog, now)
        used, live = self._steps(catalog, drops, now), self._table_index.live_count(catalog)
        dropped = self._table_index.without_file({encode_key(drop.name) for drop in without_old_names(drops)})
        return DropLimitState(tripped, used, self._config.allowed_drops(catalog, live, dropped), live)

    def tripped(self) -> frozenset[str]:
        """Return the catalogs in which no further step is allowed."""
        return self._named("SELECT name FROM catalog WHERE tripped = 1")

    def retire(self, catalog: str, *, retired: bool) -> None:
        """Record whether a catalog is retired: its tables get no files any more."""
        self._db.execute(
            "INSERT INTO catalog(name, retired) VALUES(?, ?) "
            "ON CONFLICT(name) DO UPDATE SET retired = excluded.retired",
            (catalog, int(retired)),
        )

    def retired_catalogs(self) -> frozenset[str]:
        return self._named("SELECT name FROM catalog WHERE retired = 1")

    def record_owner(self, catalog: str, catalog_id: str) -> None:
        """Record the `catalog_id` for which files are written."""
        self._db.execute(
            "INSERT INTO catalog(name, catalog_id) VALUES(?, ?) "
            "ON CONFLICT(name) DO UPDATE SET catalog_id = excluded.catalog_id",
            (catalog, catalog_id),
        )

    def owner_id(self, catalog: str) -> str | None:
        """Return the recorded `catalog_id`; None if there is none."""
        found = self._db.execute("SELECT catalog_id FROM catalog WHERE name = ?", (catalog,)).fetchone()
        return found[0] if found is not None else None

    def _allows(self, catalog: str, drop: NamedTable | None, drops: Sequence[NamedTable], now: datetime) -> bool:
        """Return whether the limit allows one more step; a table that is dropped twice counts once."""
        used = self._steps(catalog, drops, now)
        # Counting many live tables takes long, and more live tables never allow fewer steps.
        if used >= self._config.max_steps(catalog, 0):
            live = self._table_index.live_count(catalog)
            if used >= self._config.max_steps(catalog, live):
                return False
        if drop is None:
            return True
        gone = {encode_key(one.name) for one in without_old_names([*drops, drop])}
        # At most half of more tables than these are gone.
        live = self._table_index.live_count(catalog, 2 * len(gone) + 1)
        return len(gone) <= self._config.max_drops_of(catalog, live + self._table_index.without_file(gone))

    def _steps(self, catalog: str, drops: Sequence[NamedTable], now: datetime) -> int:
        """Return how many steps of a catalog count; its drops within the hour are given."""
        query = "SELECT count(*) FROM permit WHERE catalog = ? AND at > ?"
        (used,) = self._db.execute(query, (catalog, to_micros(now - self._config.drop_limit_window))).fetchone()
        return counted_steps(used, drops)

    def _drops(self, catalog: str, now: datetime) -> list[NamedTable]:
        """Return the drops that were allowed within the hour."""
        query = "SELECT dropped, uuid, renamed FROM permit WHERE catalog = ? AND at > ? AND dropped IS NOT NULL"
        found = self._db.execute(query, (catalog, to_micros(now - self._config.drop_limit_window))).fetchall()
        return [NamedTable(decode_key(key), uuid, bool(renamed)) for key, uuid, renamed in found]

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
