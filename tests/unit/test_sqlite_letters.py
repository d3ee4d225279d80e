"""The operators' side of the SQLite inbox: counts that are kept, letters that are many, inboxes that are older."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sfn.domain.events import Notification, PutResult, UndecodableRequest
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import Capacity, DeadLettered, DeadLetterReason, Done
from sfn.inbox.model import AdminCommand, DeadLetterFilter, DeadLetterStatus, InboxConfig
from sfn.inbox.sqlite.brake import DropLimitTable
from sfn.inbox.sqlite.dead import SqliteDeadLetters
from sfn.inbox.sqlite.desk import SqliteAdmin
from sfn.inbox.sqlite.intents import SqliteIntents
from sfn.inbox.sqlite.ledger import SqliteOperations
from sfn.inbox.sqlite.roster import IndexQueries
from sfn.inbox.sqlite.rows import SqliteJobs
from sfn.inbox.sqlite.schema import MIGRATIONS, VERSION

ORDERS = TableIdentifier("prod", ("sales",), "orders")
NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
PLENTY = Capacity(total=10**6, live=10**6, sweeps=1)
ODD = UndecodableRequest("etl", "/v1/events", None, b"{", 1, "expected JSON")
FEW, MANY = 300, 6_000


def numbered(number: int) -> TableIdentifier:
    return TableIdentifier("prod" if number % 2 else "few", ("sales",), f"t{number}")


def die(ledger: SqliteOperations, count: int) -> None:
    """So many dead letters, all but the last dozen of one reason."""
    for start in range(0, count, 1_000):
        names = [numbered(number) for number in range(start, min(start + 1_000, count))]
        ledger.put([Notification(name) for name in names], NOW)
        with ledger.transaction():
            for claim in ledger.claim(PLENTY, NOW).jobs:
                number = int(str(claim.subject).rpartition("t")[2])
                reason = DeadLetterReason.POISON if number >= count - 12 else DeadLetterReason.PERMANENT
                assert ledger.settle(claim, DeadLettered(reason, "why"), NOW)


def counted(ledger: SqliteOperations) -> tuple[object, object]:
    figures = ledger.admin.stats(NOW)
    return dict(figures.tables), dict(figures.dead_letters)


def fail(act: Callable[[], object], ledger: SqliteOperations, *, savepoint: bool) -> None:
    with ledger.transaction(), ledger.savepoint() if savepoint else nullcontext():
        act()
        raise OSError("full")


@pytest.mark.parametrize("savepoint", [True, False])
def test_what_was_undone_is_not_counted(*, savepoint: bool) -> None:
    ledger = SqliteOperations(":memory:", InboxConfig())
    die(ledger, 20)
    ledger.put([Notification(ORDERS), ODD], NOW)
    before = counted(ledger)
    numbers = [letter.id for letter in ledger.admin.list_after(DeadLetterFilter(), 0, 99)]
    acts: list[Callable[[], object]] = [
        lambda: ledger.put([Notification(TableIdentifier("prod", (), "x")), ODD], NOW),
        lambda: ledger.claim(PLENTY, NOW),
        lambda: ledger.admin.replay(numbers, [], AdminCommand("ann", "", NOW)),
        lambda: ledger.admin.discard(numbers, AdminCommand("ann", "", NOW)),
    ]
    for act in acts:
        with pytest.raises(OSError, match="full"):
            fail(act, ledger, savepoint=savepoint)
        assert counted(ledger) == before


def test_what_was_counted_is_counted_again_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "inbox.db")
    ledger = SqliteOperations(path, InboxConfig())
    die(ledger, 20)
    ledger.put([Notification(ORDERS), Notification(numbered(3)), ODD], NOW)
    before = counted(ledger)
    ledger.close()
    assert counted(SqliteOperations(path, InboxConfig())) == before
    assert before[1] == {("few", "permanent"): 4, ("prod", "permanent"): 4} | {
        ("few", "poison"): 6,
        ("prod", "poison"): 6,
        ("", "undecodable"): 1,
    }


def test_what_another_connection_changed_is_counted_too(tmp_path: Path) -> None:
    ledger = SqliteOperations(str(tmp_path / "inbox.db"), InboxConfig())
    die(ledger, 2)
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as other, other:
        other.execute("UPDATE subject SET reason = 'held-drop' WHERE catalog = 'few'")
        other.execute("UPDATE dead_letter SET reason = 'held-drop' WHERE catalog = 'few'")
    ledger.put([Notification(ORDERS)], NOW)
    tables = {("few", "held"): 1, ("prod", "dead"): 1, ("prod", "due"): 1}
    assert counted(ledger) == (tables, {("few", "held-drop"): 1, ("prod", "poison"): 1})


def steps(path: Path, look: Callable[[SqliteAdmin, SqliteDeadLetters], object]) -> int:
    """How many of its instructions SQLite needs for a look."""
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1

    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        rows, dead = SqliteJobs(db), SqliteDeadLetters(db)
        brake, intents = DropLimitTable(db, InboxConfig(), IndexQueries(rows)), SqliteIntents(db, lambda _: False)
        desk = SqliteAdmin(db, rows, dead, brake, intents, transaction=nullcontext, put=lambda _, __: PutResult(0, 0))
        db.set_progress_handler(count, 1)
        look(desk, dead)
    return taken


LOOKS: dict[str, Callable[[SqliteAdmin, SqliteDeadLetters], object]] = {
    "a page": lambda desk, _: desk.list_after(DeadLetterFilter(), 100, 20),
    "the last page": lambda desk, _: desk.list_after(DeadLetterFilter(), 10**9, 20),
    "of a rare reason": lambda desk, _: desk.list_after(DeadLetterFilter(reason=DeadLetterReason.POISON), 0, 20),
    "of a catalog": lambda desk, _: desk.list_after(DeadLetterFilter(catalog="few"), 0, 20),
    "of a catalog that has none": lambda desk, _: desk.list_after(DeadLetterFilter(catalog="none"), 0, 20),
    "of a table": lambda desk, _: desk.list_after(DeadLetterFilter(table=numbered(7)), 0, 20),
    "of a sender": lambda desk, _: desk.list_after(DeadLetterFilter(sender="etl"), 0, 20),
    "all of a table": lambda desk, _: desk.list_after(DeadLetterFilter(status=None, table=numbered(7)), 0, 20),
    "that were replayed": lambda desk, _: desk.list_after(DeadLetterFilter(status=DeadLetterStatus.REPLAYED), 0, 20),
    "figures": lambda desk, _: desk.stats(NOW),
    "one more": lambda _, dead: dead.keep(ODD, NOW),
    "a batch of replays": lambda desk, _: desk.replay(range(1, 100), [], AdminCommand("ann", "", NOW)),
}


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("letters")
    for count in (FEW, MANY):
        ledger = SqliteOperations(str(folder / f"{count}.db"), InboxConfig())
        die(ledger, count)
        ledger.close()
    return folder


@pytest.mark.parametrize("look", list(LOOKS))
def test_many_dead_letters_cost_no_more_than_few(folder: Path, look: str) -> None:
    few, many = (steps(folder / f"{count}.db", LOOKS[look]) for count in (FEW, MANY))
    assert many < few * 1.2 + 100


def test_letters_that_were_closed_long_ago_go(tmp_path: Path) -> None:
    ledger = SqliteOperations(str(tmp_path / "inbox.db"), InboxConfig())
    die(ledger, 5)
    ledger.put([ODD], NOW)
    first, second, *_, odd = (letter.id for letter in ledger.admin.list_after(DeadLetterFilter(), 0, 9))
    ledger.admin.discard([first, odd], AdminCommand("ann", "", NOW))
    ledger.admin.discard([second], AdminCommand("ann", "", NOW + timedelta(hours=1)))
    assert ledger.admin.prune(NOW + timedelta(minutes=30), 1) == 1
    assert ledger.admin.prune(NOW + timedelta(minutes=30), 9) == 1
    assert [
        letter.id for letter in ledger.admin.list_after(DeadLetterFilter(status=DeadLetterStatus.DISCARDED), 0, 9)
    ] == [second]
    assert ledger.admin.request_of(odd) is None
    assert len(ledger.admin.list_after(DeadLetterFilter(), 0, 9)) == 3


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
    ledger = SqliteOperations(str(path), InboxConfig())
    assert counted(ledger) == ({("prod", "dead"): 1}, {("prod", "permanent"): 1})
    superseded, left = ledger.admin.list_after(DeadLetterFilter(status=None), 0, 9)
    assert (superseded.detail, superseded.status) == ("first", DeadLetterStatus.SUPERSEDED)
    assert (left.id, left.subject, left.detail, left.attempts) == (2, ORDERS, "why", 3)
    assert ledger.admin.replay([left.id], [], AdminCommand("ann", "", NOW)) == 1
    assert [claim.subject for claim in ledger.claim(PLENTY, NOW).jobs] == [ORDERS]
    ledger.close()
    with closing(sqlite3.connect(path)) as new:
        assert new.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_at_an_upgrade_tables_of_several_places_are_looked_at(tmp_path: Path) -> None:
    """Earlier versions took two names of one directory for two places, and wrote that the table moved to itself."""
    path = str(tmp_path / "inbox.db")
    names = [numbered(number) for number in range(3)]
    ledger = SqliteOperations(path, InboxConfig())
    ledger.put([Notification(name) for name in names], NOW)
    for claim in ledger.claim(PLENTY, NOW).jobs:
        ledger.record_location(claim, f"file:///{claim.subject}", None, NOW)
        if claim.subject == names[1]:
            ledger.record_location(claim, "file:///other", None, NOW)
        assert ledger.settle(claim, Done(NOW + timedelta(hours=8)), NOW)
    ledger.close()
    with closing(sqlite3.connect(path)) as older:
        older.execute("PRAGMA user_version=9")
    ledger = SqliteOperations(path, InboxConfig())
    assert [claim.subject for claim in ledger.claim(PLENTY, NOW).jobs] == [names[1]]
    ledger.close()
