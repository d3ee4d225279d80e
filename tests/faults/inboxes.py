"""An inbox's file, looked into from outside: the service locks it, so what is looked into is a copy."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with TemporaryDirectory() as folder:
        # The log first: a checkpoint in between moves its pages into the database, and none out of it.
        for file in (path.with_name(f"{path.name}-wal"), path):
            if file.exists():
                shutil.copy(file, folder)
        db = sqlite3.connect(f"{(Path(folder) / path.name).as_uri()}?mode=rw", uri=True)
        try:
            yield db
        finally:
            db.close()


def logged(path: Path) -> set[str]:
    """The ids of all events in the log."""
    with _opened(path) as db:
        return {event for (event,) in db.execute("SELECT event_id FROM event WHERE event_id IS NOT NULL")}


def letters(path: Path) -> dict[str, int]:
    """How many rows are dead, by reason."""
    with _opened(path) as db:
        return dict(db.execute("SELECT reason, count(*) FROM dead_letter WHERE status = 'open' GROUP BY reason"))


def leased(path: Path) -> int:
    """How many claims are open."""
    with _opened(path) as db:
        return int(db.execute("SELECT count(*) FROM subject WHERE state = 'leased'").fetchone()[0])


def most_attempts(path: Path) -> int:
    """The highest count of attempts over all rows."""
    with _opened(path) as db:
        return int(db.execute("SELECT coalesce(max(attempt), 0) FROM subject").fetchone()[0])


def unsettled(path: Path) -> int:
    """How many rows have a hint that no publish has seen through, and are not dead."""
    with _opened(path) as db:
        query = "SELECT count(*) FROM subject WHERE seq > done_seq AND state != 'dead'"
        return int(db.execute(query).fetchone()[0])
