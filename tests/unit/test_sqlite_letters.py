"""The operators' side of the SQLite inbox: counts that are kept, letters that are many, inboxes that are older."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sfn.inbox.letters import Order, Status, Wanted
from sfn.inbox.sqlite.brake import BrakeTable
from sfn.inbox.sqlite.dead import DeadLetters
from sfn.inbox.sqlite.desk import Desk
from sfn.inbox.sqlite.intents import IntentTable
from sfn.inbox.sqlite.ledger import Ledger
from sfn.inbox.sqlite.roster import RosterQueries
from sfn.inbox.sqlite.rows import Rows
from sfn.inbox.sqlite.schema import MIGRATIONS, VERSION
from sfn.inbox.terms import Terms
from sfn.words import Accepted, Dead, Done, Hint, Reason, Slots, TableName, Undecodable

ORDERS = TableName("prod", ("sales",), "orders")
NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
PLENTY = Slots(total=10**6, live=10**6, sweeps=1)
ODD = Undecodable("etl", "/v1/events", None, b"{", 1, "expected JSON")
FEW, MANY = 300, 6_000


def numbered(number: int) -> TableName:
    return TableName("prod" if number % 2 else "few", ("sales",), f"t{number}")


def die(ledger: Ledger, count: int) -> None:
    """So many dead letters, all but the last dozen of one reason."""
    for start in range(0, count, 1_000):
        names = [numbered(number) for number in range(start, min(start + 1_000, count))]
        ledger.put([Hint(name) for name in names], NOW)
        with ledger.transaction():
            for claim in ledger.claim(PLENTY, NOW).claims:
                number = int(str(claim.subject).rpartition("t")[2])
                reason = Reason.POISON if number >= count - 12 else Reason.PERMANENT
                assert ledger.settle(claim, Dead(reason, "why"), NOW)


def counted(ledger: Ledger) -> tuple[object, object]:
    figures = ledger.desk.figures(NOW)
    return dict(figures.tables), dict(figures.letters)


def fail(act: Callable[[], object], ledger: Ledger, *, savepoint: bool) -> None:
    with ledger.transaction(), ledger.savepoint() if savepoint else nullcontext():
        act()
        raise OSError("full")


@pytest.mark.parametrize("savepoint", [True, False])
def test_what_was_undone_is_not_counted(*, savepoint: bool) -> None:
    ledger = Ledger(":memory:", Terms())
    die(ledger, 20)
    ledger.put([Hint(ORDERS), ODD], NOW)
    before = counted(ledger)
    numbers = [letter.id for letter in ledger.desk.find(Wanted(), 0, 99)]
    acts: list[Callable[[], object]] = [
        lambda: ledger.put([Hint(TableName("prod", (), "x")), ODD], NOW),
        lambda: ledger.claim(PLENTY, NOW),
        lambda: ledger.desk.replay(numbers, [], Order("ann", "", NOW)),
        lambda: ledger.desk.discard(numbers, Order("ann", "", NOW)),
    ]
    for act in acts:
        with pytest.raises(OSError, match="full"):
            fail(act, ledger, savepoint=savepoint)
        assert counted(ledger) == before


def test_what_was_counted_is_counted_again_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "inbox.db")
    ledger = Ledger(path, Terms())
    die(ledger, 20)
    ledger.put([Hint(ORDERS), Hint(numbered(3)), ODD], NOW)
    before = counted(ledger)
    ledger.close()
    assert counted(Ledger(path, Terms())) == before
    assert before[1] == {("few", "permanent"): 4, ("prod", "permanent"): 4} | {
        ("few", "poison"): 6,
        ("prod", "poison"): 6,
        ("", "undecodable"): 1,
    }


def test_what_another_connection_changed_is_counted_too(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "inbox.db"), Terms())
    die(ledger, 2)
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as other, other:
        other.execute("UPDATE subject SET reason = 'held-drop' WHERE catalog = 'few'")
        other.execute("UPDATE dead_letter SET reason = 'held-drop' WHERE catalog = 'few'")
    ledger.put([Hint(ORDERS)], NOW)
    tables = {("few", "held"): 1, ("prod", "dead"): 1, ("prod", "due"): 1}
    assert counted(ledger) == (tables, {("few", "held-drop"): 1, ("prod", "poison"): 1})


def steps(path: Path, look: Callable[[Desk, DeadLetters], object]) -> int:
    """How many of its instructions SQLite needs for a look."""
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1

    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        rows, dead = Rows(db), DeadLetters(db)
        brake, intents = BrakeTable(db, Terms(), RosterQueries(rows)), IntentTable(db, lambda _: False)
        desk = Desk(db, rows, dead, brake, intents, transaction=nullcontext, put=lambda _, __: Accepted(0, 0))
        db.set_progress_handler(count, 1)
        look(desk, dead)
    return taken


LOOKS: dict[str, Callable[[Desk, DeadLetters], object]] = {
    "a page": lambda desk, _: desk.find(Wanted(), 100, 20),
    "the last page": lambda desk, _: desk.find(Wanted(), 10**9, 20),
    "of a rare reason": lambda desk, _: desk.find(Wanted(reason=Reason.POISON), 0, 20),
    "of a catalog": lambda desk, _: desk.find(Wanted(catalog="few"), 0, 20),
    "of a catalog that has none": lambda desk, _: desk.find(Wanted(catalog="none"), 0, 20),
    "of a table": lambda desk, _: desk.find(Wanted(table=numbered(7)), 0, 20),
    "of a sender": lambda desk, _: desk.find(Wanted(sender="etl"), 0, 20),
    "all of a table": lambda desk, _: desk.find(Wanted(status=None, table=numbered(7)), 0, 20),
    "that were replayed": lambda desk, _: desk.find(Wanted(status=Status.REPLAYED), 0, 20),
    "figures": lambda desk, _: desk.figures(NOW),
    "one more": lambda _, dead: dead.keep(ODD, NOW),
    "a batch of replays": lambda desk, _: desk.replay(range(1, 100), [], Order("ann", "", NOW)),
}


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("letters")
    for count in (FEW, MANY):
        ledger = Ledger(str(folder / f"{count}.db"), Terms())
        die(ledger, count)
        ledger.close()
    return folder


@pytest.mark.parametrize("look", list(LOOKS))
def test_many_dead_letters_cost_no_more_than_few(folder: Path, look: str) -> None:
    few, many = (steps(folder / f"{count}.db", LOOKS[look]) for count in (FEW, MANY))
    assert many < few * 1.2 + 100


def test_letters_that_were_closed_long_ago_go(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "inbox.db"), Terms())
    die(ledger, 5)
    ledger.put([ODD], NOW)
    first, second, *_, odd = (letter.id for letter in ledger.desk.find(Wanted(), 0, 9))
    ledger.desk.discard([first, odd], Order("ann", "", NOW))
    ledger.desk.discard([second], Order("ann", "", NOW + timedelta(hours=1)))
    assert ledger.desk.prune(NOW + timedelta(minutes=30), 1) == 1
    assert ledger.desk.prune(NOW + timedelta(minutes=30), 9) == 1
    assert [letter.id for letter in ledger.desk.find(Wanted(status=Status.DISCARDED), 0, 9)] == [second]
    assert ledger.desk.event(odd) is None
    assert len(ledger.desk.find(Wanted(), 0, 9)) == 3


def test_an_older_inbox_keeps_its_rows_and_letters(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    with closing(sqlite3.connect(path)) as old:
        old.executescript(f"BEGIN;{MIGRATIONS[0]}PRAGMA user_version=1;COMMIT;")
        old.executescript(
            """
            INSERT INTO lane(catalog, store, urgency) VALUES('prod', '', 'live');
            INSERT INTO subject(key, catalog, lane, state, due_at, seq, done_seq, token, attempt, crashes, reason)
              VALUES('["prod","sales","orders"]', 'prod', 1, 'dead', 0, 1, 0, 1, 3, 0, 'permanent');
            INSERT INTO dead_letter(key, catalog, reason, detail, status, opened_at, changed_at, attempts) VALUES
              ('["prod","sales","orders"]', 'prod', 'exhausted', 'first', 'superseded', 5, 6, 9),
              ('["prod","sales","orders"]', 'prod', 'permanent', 'why', 'open', 7, 8, 3);
            """
        )
    ledger = Ledger(str(path), Terms())
    assert counted(ledger) == ({("prod", "dead"): 1}, {("prod", "permanent"): 1})
    superseded, left = ledger.desk.find(Wanted(status=None), 0, 9)
    assert (superseded.detail, superseded.status) == ("first", Status.SUPERSEDED)
    assert (left.id, left.subject, left.detail, left.attempts) == (2, ORDERS, "why", 3)
    assert ledger.desk.replay([left.id], [], Order("ann", "", NOW)) == 1
    assert [claim.subject for claim in ledger.claim(PLENTY, NOW).claims] == [ORDERS]
    ledger.close()
    with closing(sqlite3.connect(path)) as new:
        assert new.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_at_an_upgrade_tables_of_several_places_are_looked_at(tmp_path: Path) -> None:
    """Earlier versions took two names of one directory for two places, and wrote that the table moved to itself."""
    path = str(tmp_path / "inbox.db")
    names = [numbered(number) for number in range(3)]
    ledger = Ledger(path, Terms())
    ledger.put([Hint(name) for name in names], NOW)
    for claim in ledger.claim(PLENTY, NOW).claims:
        ledger.remember(claim, f"file:///{claim.subject}", None, NOW)
        if claim.subject == names[1]:
            ledger.remember(claim, "file:///other", None, NOW)
        assert ledger.settle(claim, Done(NOW + timedelta(hours=8)), NOW)
    ledger.close()
    with closing(sqlite3.connect(path)) as older:
        older.execute("PRAGMA user_version=9")
    ledger = Ledger(path, Terms())
    assert [claim.subject for claim in ledger.claim(PLENTY, NOW).claims] == [names[1]]
    ledger.close()
