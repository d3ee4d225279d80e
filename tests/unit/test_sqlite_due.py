"""What is due is found by lane: what waits in a lane without slots costs nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import Capacity, ConcurrencyGroup, Priority, Returned
from sfn.inbox.model import InboxConfig
from sfn.inbox.sqlite.due import DueRows
from sfn.inbox.sqlite.ledger import SqliteOperations
from sfn.inbox.sqlite.rows import SqliteJobs

ORDERS = TableIdentifier("prod", ("sales",), "orders")
NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
BLOCKED = Capacity(total=9, live=9, sweeps=9, per_group={ConcurrencyGroup("away", "", Priority.LIVE): 0})


@pytest.mark.parametrize("backlog", [20, 2000])
def test_a_blocked_backlog_is_never_scanned(tmp_path: Path, backlog: int) -> None:
    path = tmp_path / "inbox.db"
    ledger = SqliteOperations(str(path), InboxConfig())
    ledger.put([Notification(TableIdentifier("away", ("sales",), f"t{number}")) for number in range(backlog)], NOW)
    ledger.put([Notification(ORDERS)], NOW)
    ledger.close()
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with closing(sqlite3.connect(path)) as db:
        due = DueRows(SqliteJobs(db))
        db.set_progress_handler(count, 1)
        assert [lane.catalog for lane, _ in due.due(BLOCKED, NOW)] == ["prod"]
        assert due.next(BLOCKED) == NOW
        assert due.oldest(NOW) == {"away": NOW, "prod": NOW}
    assert steps < 500


@pytest.mark.parametrize("backlog", [20, 2000])
def test_who_has_waited_longest_is_found_without_a_scan(tmp_path: Path, backlog: int) -> None:
    path = tmp_path / "inbox.db"
    ledger = SqliteOperations(str(path), InboxConfig())
    ledger.put([Notification(TableIdentifier("prod", ("sales",), f"t{number}")) for number in range(backlog)], NOW)
    later = NOW + timedelta(minutes=9)
    with ledger.transaction():
        for claim in ledger.claim(Capacity(total=backlog, live=backlog, sweeps=0), later).jobs:
            ledger.settle(claim, Returned(later, "its store is away"), later)
    ledger.close()
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with closing(sqlite3.connect(path)) as db:
        due = DueRows(SqliteJobs(db))
        db.set_progress_handler(count, 1)
        assert due.oldest(later) == {"prod": NOW}
    assert steps < 500
