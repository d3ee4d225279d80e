"""What SQLite's own errors mean: each is provoked, none is made up."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sfn.errors import ErrorScope, FatalError, Transient
from sfn.inbox.sqlite.refusals import refusal
from sfn.inbox.sqlite.schema import prepare


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
