"""The inbox in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sfn.domain.events import (
    Intent,
    IntentOutcome,
    Notification,
    PutResult,
    TableReport,
    UndecodableRequest,
)
from sfn.domain.identifiers import CatalogName, JobKey, Table, TableIdentifier
from sfn.domain.jobs import (
    Capacity,
    ConcurrencyGroup,
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    PendingChange,
    Priority,
    PublishCache,
    PublishedPointer,
    Returned,
    StoredObject,
    TableState,
)
from sfn.errors import ErrorScope, FatalError, Transient
from sfn.inbox.codec import decode_key, encode_key, from_micros, parse_pending, parse_table_state, table_key_range
from sfn.inbox.intents import CHECK_DELAYS, MAX_UNKNOWN_TABLES
from sfn.inbox.model import AdminCommand, DeadLetterFilter, DeadLetterStatus, InboxConfig, Job, JobState, group_of
from sfn.inbox.sqlite.catalogs import DropLimitTable
from sfn.inbox.sqlite.dead_letters import SqliteDeadLetters
from sfn.inbox.sqlite.errors import refusal
from sfn.inbox.sqlite.intents import SqliteIntents
from sfn.inbox.sqlite.jobs import MAX_CACHED_JOBS, DueRows, SqliteJobs
from sfn.inbox.sqlite.operations import SqliteOperations
from sfn.inbox.sqlite.operator_commands import SqliteAdmin
from sfn.inbox.sqlite.schema import MIGRATIONS, VERSION, prepare
from sfn.inbox.sqlite.table_index import IndexQueries

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


RETURNS = TableIdentifier("prod", ("sales",), "returns")
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


@pytest.mark.slow
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


UNLIMITED = Capacity(total=10**6, live=10**6, sweeps=1)
FEW, MANY = 300, 6_000


def numbered(number: int) -> TableIdentifier:
    return TableIdentifier("prod" if number % 2 else "few", ("sales",), f"t{number}")


def die(ledger: SqliteOperations, count: int) -> None:
    """So many dead letters, all but the last dozen of one reason."""
    for start in range(0, count, 1_000):
        names = [numbered(number) for number in range(start, min(start + 1_000, count))]
        ledger.put([Notification(name) for name in names], NOW)
        with ledger.transaction():
            for claim in ledger.claim(UNLIMITED, NOW).jobs:
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
        lambda: ledger.claim(UNLIMITED, NOW),
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


def admin_steps(path: Path, look: Callable[[SqliteAdmin, SqliteDeadLetters], object]) -> int:
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
    few, many = (admin_steps(folder / f"{count}.db", LOOKS[look]) for count in (FEW, MANY))
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
    assert [claim.subject for claim in ledger.claim(UNLIMITED, NOW).jobs] == [ORDERS]
    ledger.close()
    with closing(sqlite3.connect(path)) as new:
        assert new.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_at_an_upgrade_tables_of_several_places_are_looked_at(tmp_path: Path) -> None:
    """Earlier versions took two names of one directory for two places, and wrote that the table moved to itself."""
    path = str(tmp_path / "inbox.db")
    names = [numbered(number) for number in range(3)]
    ledger = SqliteOperations(path, InboxConfig())
    ledger.put([Notification(name) for name in names], NOW)
    for claim in ledger.claim(UNLIMITED, NOW).jobs:
        ledger.record_location(claim, f"file:///{claim.subject}", None, NOW)
        if claim.subject == names[1]:
            ledger.record_location(claim, "file:///other", None, NOW)
        assert ledger.settle(claim, Done(NOW + timedelta(hours=8)), NOW)
    ledger.close()
    with closing(sqlite3.connect(path)) as older:
        older.execute("PRAGMA user_version=9")
    ledger = SqliteOperations(path, InboxConfig())
    assert [claim.subject for claim in ledger.claim(UNLIMITED, NOW).jobs] == [names[1]]
    ledger.close()


LATER = NOW + timedelta(minutes=1)


def claim_in_vain(ledger: SqliteOperations, *, savepoint: bool) -> None:
    with ledger.transaction(), ledger.savepoint() if savepoint else nullcontext():
        ledger.claim(PLENTY, LATER)
        raise OSError("full")


@pytest.fixture(name="ledger")
def fixture_ledger() -> SqliteOperations:
    """One whose only row will be poison at the next look."""
    made = SqliteOperations(":memory:", InboxConfig(max_crashes=1))
    made.put([Notification(ORDERS)], NOW)
    assert made.claim(PLENTY, NOW).jobs
    return made


@pytest.mark.parametrize("savepoint", [True, False])
@pytest.mark.parametrize("recovered", [True, False])
def test_poison_is_told_by_the_first_claim_that_is_kept(
    ledger: SqliteOperations, *, savepoint: bool, recovered: bool
) -> None:
    if recovered:
        assert ledger.recover(LATER) == 1
    with pytest.raises(OSError, match="full"):
        claim_in_vain(ledger, savepoint=savepoint)
    told = [ledger.claim(PLENTY, LATER) for _ in range(2)]
    assert [(len(claimed.poison_letters), claimed.expired_leases) for claimed in told] == [(1, 1), (0, 0)]
    assert len(ledger.admin.list_after(DeadLetterFilter(), 0, 9)) == 1


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "inbox.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t(a PRIMARY KEY)")
    return path


@pytest.fixture
def db(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as opened:
        yield opened


def provoked(call: Callable[[], object]) -> sqlite3.Error:
    with pytest.raises(sqlite3.Error) as raised:
        call()
    return raised.value


def test_a_full_database_passes(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA max_page_count = 3")
    error = provoked(lambda: db.execute("INSERT INTO t VALUES(zeroblob(100000))"))
    meaning = refusal(error, "inbox.db")
    assert isinstance(meaning, Transient)
    assert (meaning.scope, meaning.retry_after, meaning.where) == (ErrorScope.INBOX, 1.0, "inbox.db")
    assert "SQLITE_FULL" in meaning.found
    assert "disk" in meaning.remedy


def test_a_lock_of_another_program_passes(database: Path, db: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        meaning = refusal(provoked(lambda: db.execute("INSERT INTO t VALUES(1)")), "inbox.db")
    assert isinstance(meaning, Transient)
    assert "SQLITE_BUSY" in meaning.found


def test_a_damaged_database_is_fatal(database: Path, db: sqlite3.Connection) -> None:
    database.write_bytes(database.read_bytes()[:4096] + b"\x99" * 8192)
    meaning = refusal(provoked(lambda: db.execute("SELECT * FROM t").fetchall()), "inbox.db")
    assert isinstance(meaning, FatalError)
    assert "SQLITE_CORRUPT" in meaning.found
    assert "backup" in meaning.remedy


def test_what_may_not_be_written_is_fatal(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA query_only = 1")
    meaning = refusal(provoked(lambda: db.execute("INSERT INTO t VALUES(1)")), "inbox.db")
    assert isinstance(meaning, FatalError)
    assert "SQLITE_READONLY" in meaning.found


@pytest.mark.parametrize("text", ["garbage " * 1000, None])
def test_what_is_no_database_is_fatal(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "other" / "inbox.db"
    if text is not None:
        path.parent.mkdir()
        path.write_text(text)
    meaning = refusal(provoked(lambda: sqlite3.connect(path).execute("SELECT * FROM t")), "inbox.db")
    assert isinstance(meaning, FatalError)
    assert ("SQLITE_NOTADB" if text else "SQLITE_CANTOPEN") in meaning.found


@pytest.mark.parametrize("statement", ["INSERT INTO t VALUES(1), (1)", "SELECT nothing FROM t", "INSERT INTO t"])
def test_a_statement_that_is_wrong_says_nothing_of_the_inbox(db: sqlite3.Connection, statement: str) -> None:
    assert refusal(provoked(lambda: db.execute(statement)), "inbox.db") is None


def test_an_error_without_a_code_says_nothing_of_the_inbox(db: sqlite3.Connection) -> None:
    db.close()
    assert refusal(provoked(lambda: db.execute("SELECT 1")), "inbox.db") is None


def test_a_file_system_without_a_write_ahead_log_is_refused_by_name(tmp_path: Path) -> None:
    """SQLite's twin of a file system without shared memory: it answers, and stays with the journal that it had."""
    path = tmp_path / "inbox.db"
    with closing(sqlite3.connect(f"{path.as_uri()}?vfs=unix-dotfile", uri=True, isolation_level=None)) as db:
        with pytest.raises(FatalError) as refused:
            prepare(db, str(path))
        assert db.execute("SELECT * FROM sqlite_schema").fetchall() == []
    assert (refused.value.where, refused.value.found) == (str(path), "journal_mode delete")
    assert "a local disk" in refused.value.remedy
    assert "inbox.url" in refused.value.remedy


PLACES = st.sampled_from(["s3://lake/1", "s3://lake/2", "gs://pond/3"])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
moments = st.datetimes(datetime(1969, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone
counts = st.integers(0, 2**53)
names = st.builds(TableIdentifier, st.sampled_from(["prod", "dev"]), st.lists(texts, max_size=2).map(tuple), texts)
lives = st.builds(PublishedPointer, texts, st.none() | texts, PLACES, moments)
told_tables = st.builds(
    TableReport,
    st.none() | texts,
    st.lists(texts, max_size=2).map(tuple),
    st.just(-1) | counts,
    st.none() | counts,
    st.none() | names,
)
stories = st.builds(
    TableState,
    live=st.none() | lives,
    has_settled=st.booleans(),
    missing_since=st.dictionaries(texts, moments, max_size=2),
    on_hold=st.booleans(),
    limit_overridden=st.booleans(),
    version_hints=st.dictionaries(texts, st.lists(texts, max_size=2).map(tuple), max_size=2),
    refresh_at=st.none() | moments,
    misses=counts,
    reported=st.lists(told_tables, max_size=2).map(tuple),
    is_short_lived=st.booleans(),
)
tables = st.builds(Table, st.none() | texts, PLACES, texts, st.lists(texts, max_size=2).map(tuple), counts, counts)
helds = st.builds(StoredObject, st.binary(max_size=8), texts)
memos = st.builds(
    PublishCache, st.none() | tables, st.none() | texts, st.dictionaries(texts, st.none() | helds, max_size=2)
)
wishes = st.builds(
    PendingChange,
    st.none() | texts,
    st.none() | names,
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


def rows(subject: JobKey) -> st.SearchStrategy[Job]:
    return st.builds(
        Job,
        st.just(subject),
        moments,
        state=st.sampled_from(JobState),
        not_before=st.none() | moments,
        notified_seq=counts,
        processed_seq=counts,
        event_seq=st.none() | counts,
        fencing_token=counts,
        lease_until=st.none() | moments,
        attempt=counts,
        crashes=counts,
        failing_since=st.none() | moments,
        pending_since=st.none() | moments,
        reason=st.none() | st.sampled_from(DeadLetterReason),
        pending=wishes,
        locations=st.frozensets(PLACES),
        table_state=stories,
        cache=memos,
    )


def memory_database() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    prepare(db, "inbox.db")
    return db


def stored(db: sqlite3.Connection, key: str) -> tuple[Job | None, list[int], int]:
    """A row as another process would load it, its lane, and how many other records there are of it."""
    lanes = [lane for (lane,) in db.execute("SELECT lane FROM subject WHERE key = ?", (key,))]
    query = "SELECT (SELECT count(*) FROM memo WHERE key = ?1) + (SELECT count(*) FROM location WHERE key = ?1)"
    (others,) = db.execute(query, (key,)).fetchone()
    return SqliteJobs(db).load(key), lanes, others


@pytest.mark.slow
@given(st.data(), names | st.just(CatalogName("prod")))
def test_what_is_saved_is_what_another_process_loads(data: st.DataObject, subject: JobKey) -> None:
    key = encode_key(subject)
    with closing(memory_database()) as db:
        ours = SqliteJobs(db)
        assert ours.load(key) is None
        for _ in range(3):
            before = ours.load(key)
            row = data.draw(st.none() | rows(subject))
            if row is not None and before is not None and data.draw(st.booleans()):
                parts = data.draw(
                    st.sets(
                        st.sampled_from(
                            ["pending", "table_state", "cache", "locations", "due_at", "notified_seq", "event_seq"]
                        )
                    )
                )
                row = replace(before, **{part: getattr(row, part) for part in parts})
            ours.save(key, row)
            assert ours.load(key) == row
            ours.flush()
            expected = [] if row is None else [ours.lanes()[group_of(row)]]
            others = 0 if row is None else len(row.locations) + (row.cache != PublishCache())
            assert stored(db, key) == (row, expected, others)


def test_no_more_rows_stay_known_than_there_is_room_for() -> None:
    with closing(memory_database()) as db:
        ours = SqliteJobs(db)
        at = datetime(2026, 1, 1, tzinfo=UTC)
        for number in range(MAX_CACHED_JOBS + 10):
            table = TableIdentifier("prod", (), f"t{number}")
            ours.save(encode_key(table), Job(table, at + timedelta(microseconds=number)))
        ours.flush()
        ours.begin()
        db.execute("UPDATE subject SET due_at = 0")
        due = [
            ours.load(encode_key(TableIdentifier("prod", (), f"t{number}")))
            for number in (0, 9, 10, MAX_CACHED_JOBS + 9)
        ]
        assert [row is not None and row.due_at == from_micros(0) for row in due] == [True, True, False, False]


@given(names | st.builds(CatalogName, texts))
def test_a_key_says_whose_it_is(subject: JobKey) -> None:
    assert decode_key(encode_key(subject)) == subject


@given(names, texts)
def test_keys_of_a_catalog_lie_together(table: TableIdentifier, catalog: str) -> None:
    start, end = table_key_range(catalog)
    assert (start < encode_key(table) < end) == (table.catalog == catalog)
    assert not start < encode_key(CatalogName(catalog)) < end


def test_what_an_older_version_wrote_is_read() -> None:
    pending = b'{"drop":true,"min_metadata_location":"s3://x","not_known_any_more":false,"renamed_to":null}'
    assert parse_pending(pending) == PendingChange(min_metadata_location="s3://x", drop=True)
    story = b'{"has_settled":true,"live":null,"misses":2,"not_known_any_more":{},"refresh_at":null}'
    assert parse_table_state(story) == TableState(has_settled=True, misses=2)
