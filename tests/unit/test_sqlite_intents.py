"""Open intents in SQLite: all or nothing with what is put beside them, kept over a restart, found by an index."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sfn.inbox.intents import ASKS, MOST_UNSEEN
from sfn.inbox.sqlite.intents import IntentTable
from sfn.inbox.sqlite.ledger import Ledger
from sfn.inbox.sqlite.schema import MIGRATIONS, VERSION
from sfn.inbox.terms import Terms
from sfn.words import Answered, CatalogName, Claim, Hint, Intent, Slots, TableName, Undecodable

ORDERS, RETURNS = TableName("prod", ("sales",), "orders"), TableName("prod", ("sales",), "returns")
NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
PLENTY = Slots(total=9, live=9, sweeps=9)
ODD = Undecodable("etl", "/v1/events", None, b"{", 1, "expected JSON")
FEW, MANY = 300, 6_000


def due(ledger: Ledger, seconds: float) -> tuple[Claim, ...]:
    return ledger.claim(PLENTY, NOW + timedelta(seconds=seconds)).claims


@pytest.mark.parametrize("notes", [[Intent("b", (RETURNS,)), ODD], [Answered("a", known=True), Hint(RETURNS)]])
def test_what_is_put_with_an_intent_or_an_answer_is_all_or_nothing(notes: list[Intent | Answered | Hint]) -> None:
    ledger = Ledger(":memory:", Terms())
    ledger.put([Intent("a", (ORDERS,))], NOW)

    def put_in_vain() -> None:
        with ledger.transaction():
            ledger.put(notes, NOW)
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        put_in_vain()
    assert [claim.subject for claim in due(ledger, 30)] == [ORDERS]


def test_an_ask_whose_claim_is_undone_is_asked_by_the_next_one() -> None:
    ledger = Ledger(":memory:", Terms())
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
    ledger = Ledger(path, Terms())
    ledger.put([Intent("a", (ORDERS,)), Intent("b", (RETURNS,))], NOW)
    ledger.put([Answered("b", known=True)], NOW)
    ledger.put([Answered("a", known=False)], NOW + timedelta(seconds=20))
    ledger.close()
    ledger = Ledger(path, Terms())
    assert due(ledger, 49) == ()
    assert [claim.subject for claim in due(ledger, 50)] == [ORDERS]


def test_an_older_inbox_gets_room_for_intents_and_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    with closing(sqlite3.connect(path)) as old:
        for number, script in enumerate(MIGRATIONS[:5], start=1):
            old.executescript(f"BEGIN;{script}PRAGMA user_version={number};COMMIT;")
        old.execute("INSERT INTO event VALUES(1, 'etl', 'e1', '[\"prod\",\"sales\",\"orders\"]', 0, '')")
        old.commit()
    ledger = Ledger(str(path), Terms())
    assert ledger.put([Hint(ORDERS, "etl", "e1"), Intent("a", (RETURNS,))], NOW).duplicates == 1
    assert [claim.subject for claim in due(ledger, 30)] == [RETURNS]
    ledger.close()
    with closing(sqlite3.connect(path)) as new:
        assert new.execute("PRAGMA user_version").fetchone() == (VERSION,)


def steps(path: Path, act: Callable[[IntentTable], object]) -> int:
    """How many of its instructions SQLite needs."""
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1

    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        db.set_progress_handler(count, 1)
        act(IntentTable(db, lambda _: True))
        db.set_progress_handler(None, 0)
    return taken


def opened(path: Path, count: int) -> Path:
    """An inbox with so many open intents, of which none is due."""
    ledger = Ledger(str(path), Terms())
    names = [TableName("prod", ("sales",), f"t{number}") for number in range(count)]
    for number, name in enumerate(names):
        ledger.put([Hint(name), Intent(f"i{number}", (name,), "gateway", f"10.0.0.{number % 50}")], NOW)
    ledger.close()
    return path


def test_no_verb_of_a_put_or_a_claim_looks_at_all_that_is_open(tmp_path: Path) -> None:
    few, many = opened(tmp_path / "few", FEW), opened(tmp_path / "many", MANY)
    acts: list[Callable[[IntentTable], object]] = [
        lambda table: table.take([(Intent("new", (ORDERS,)), NOW)]),
        lambda table: table.take([(Answered("i7", known=True), NOW)]),
        lambda table: table.take([(Answered("i7", known=False), NOW)]),
        lambda table: table.ask(NOW),
        lambda table: table.left_at(TableName("prod", ("sales",), "t7")),
    ]
    for act in acts:
        # A deeper tree takes a step more here and there.
        assert steps(many, act) < 1.2 * steps(few, act) + 20


def test_a_flood_of_a_peer_takes_no_more_room_than_its_bound(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "inbox.db"), Terms())
    names = [TableName("prod", ("sales",), f"t{number}") for number in range(3 * MOST_UNSEEN)]
    ledger.put([Intent(f"i{number}", (name,), "gateway", "10.0.0.1") for number, name in enumerate(names)], NOW)
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as other:
        assert other.execute("SELECT count(*) FROM intent").fetchone() == (MOST_UNSEEN + 1,)
    late = [claim.subject for claim in ledger.claim(PLENTY, NOW + ASKS[-1]).claims]
    assert CatalogName("prod") in late
