"""Open intents in SQLite: all or nothing with what is put beside them, kept over a restart, found by an index."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sfn.domain.events import Intent, IntentOutcome, Notification, UndecodableRequest
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import Capacity, LeasedJob
from sfn.inbox.intents import CHECK_DELAYS, MAX_UNKNOWN_TABLES
from sfn.inbox.model import InboxConfig
from sfn.inbox.sqlite.intents import SqliteIntents
from sfn.inbox.sqlite.ledger import SqliteOperations
from sfn.inbox.sqlite.schema import MIGRATIONS, VERSION

ORDERS, RETURNS = TableIdentifier("prod", ("sales",), "orders"), TableIdentifier("prod", ("sales",), "returns")
NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
PLENTY = Capacity(total=9, live=9, sweeps=9)
ODD = UndecodableRequest("etl", "/v1/events", None, b"{", 1, "expected JSON")
FEW, MANY = 300, 6_000


def due(ledger: SqliteOperations, seconds: float) -> tuple[LeasedJob, ...]:
    return ledger.claim(PLENTY, NOW + timedelta(seconds=seconds)).jobs


@pytest.mark.parametrize(
    "notes", [[Intent("b", (RETURNS,)), ODD], [IntentOutcome("a", is_known=True), Notification(RETURNS)]]
)
def test_what_is_put_with_an_intent_or_an_answer_is_all_or_nothing(
    notes: list[Intent | IntentOutcome | Notification],
) -> None:
    ledger = SqliteOperations(":memory:", InboxConfig())
    ledger.put([Intent("a", (ORDERS,))], NOW)

    def put_in_vain() -> None:
        with ledger.transaction():
            ledger.put(notes, NOW)
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        put_in_vain()
    assert [claim.subject for claim in due(ledger, 30)] == [ORDERS]


def test_an_ask_whose_claim_is_undone_is_asked_by_the_next_one() -> None:
    ledger = SqliteOperations(":memory:", InboxConfig())
    ledger.put([Intent("a", (ORDERS,))], NOW)

    def claim_in_vain() -> None:
        with ledger.transaction(), ledger.savepoint():
            assert due(ledger, 30)
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        claim_in_vain()
    assert [claim.subject for claim in due(ledger, 31)] == [ORDERS]


def test_what_was_left_open_is_asked_for_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "inbox.db")
    ledger = SqliteOperations(path, InboxConfig())
    ledger.put([Intent("a", (ORDERS,)), Intent("b", (RETURNS,))], NOW)
    ledger.put([IntentOutcome("b", is_known=True)], NOW)
    ledger.put([IntentOutcome("a", is_known=False)], NOW + timedelta(seconds=20))
    ledger.close()
    ledger = SqliteOperations(path, InboxConfig())
    assert due(ledger, 49) == ()
    assert [claim.subject for claim in due(ledger, 50)] == [ORDERS]


def test_an_older_inbox_gets_room_for_intents_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    with closing(sqlite3.connect(path)) as old:
        for number, script in enumerate(MIGRATIONS[:5], start=1):
            old.executescript(f"BEGIN;{script}PRAGMA user_version={number};COMMIT;")
        old.execute("INSERT INTO event VALUES(1, 'etl', 'e1', '[\"prod\",\"sales\",\"orders\"]', 0, '')")
        old.commit()
    ledger = SqliteOperations(str(path), InboxConfig())
    assert ledger.put([Notification(ORDERS, "etl", "e1"), Intent("a", (RETURNS,))], NOW).duplicates == 1
    assert [claim.subject for claim in due(ledger, 30)] == [RETURNS]
    ledger.close()
    with closing(sqlite3.connect(path)) as new:
        assert new.execute("PRAGMA user_version").fetchone() == (VERSION,)


def steps(path: Path, act: Callable[[SqliteIntents], object]) -> int:
    """How many of its instructions SQLite needs."""
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1

    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        db.set_progress_handler(count, 1)
        act(SqliteIntents(db, lambda _: True))
        db.set_progress_handler(None, 0)
    return taken


def opened(path: Path, count: int) -> Path:
    """An inbox with so many open intents, of which none is due."""
    ledger = SqliteOperations(str(path), InboxConfig())
    names = [TableIdentifier("prod", ("sales",), f"t{number}") for number in range(count)]
    for number, name in enumerate(names):
        ledger.put([Notification(name), Intent(f"i{number}", (name,), "gateway", f"10.0.0.{number % 50}")], NOW)
    ledger.close()
    return path


def test_no_verb_of_a_put_or_a_claim_looks_at_all_that_is_open(tmp_path: Path) -> None:
    few, many = opened(tmp_path / "few", FEW), opened(tmp_path / "many", MANY)
    acts: list[Callable[[SqliteIntents], object]] = [
        lambda table: table.take([(Intent("new", (ORDERS,)), NOW)]),
        lambda table: table.take([(IntentOutcome("i7", is_known=True), NOW)]),
        lambda table: table.take([(IntentOutcome("i7", is_known=False), NOW)]),
        lambda table: table.ask(NOW),
        lambda table: table.unresolved_since(TableIdentifier("prod", ("sales",), "t7")),
    ]
    for act in acts:
        # A deeper tree takes a step more here and there.
        assert steps(many, act) < 1.2 * steps(few, act) + 20


def test_a_flood_of_a_peer_takes_no_more_room_than_its_bound(tmp_path: Path) -> None:
    ledger = SqliteOperations(str(tmp_path / "inbox.db"), InboxConfig())
    names = [TableIdentifier("prod", ("sales",), f"t{number}") for number in range(3 * MAX_UNKNOWN_TABLES)]
    ledger.put([Intent(f"i{number}", (name,), "gateway", "10.0.0.1") for number, name in enumerate(names)], NOW)
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as other:
        assert other.execute("SELECT count(*) FROM intent").fetchone() == (MAX_UNKNOWN_TABLES + 1,)
    late = [claim.subject for claim in ledger.claim(PLENTY, NOW + CHECK_DELAYS[-1]).jobs]
    assert CatalogName("prod") in late
