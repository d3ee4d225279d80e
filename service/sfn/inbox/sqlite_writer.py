"""The thread that owns the SQLite connection: it runs the operations that arrived during its last turn.

One turn has two transactions. The first has what must survive a power cut: appends, operators' commands, recorded
locations and steps of the drop limit. Small appends share one statement. Its commit is synced, and its callers get
their answers at once. The second has what is derived from the log, such as folds, claims and settles; its commit is not
synced.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import anyio
import msgspec
from typing_extensions import override

from sfn.errors import ErrorScope, FatalError, SfnError, Transient
from sfn.inbox.model import RETRY_AFTER, CommittedTransaction
from sfn.inbox.schema import LogRow, sqlite_text
from sfn.inbox.transaction import (
    Appended,
    Change,
    Durability,
    Operation,
    Query,
    Row,
    Run,
    Transaction,
    Update,
    WakeRule,
    Wakes,
    drive,
    wakes_after,
)

T = TypeVar("T")

_encode_list = msgspec.json.Encoder().encode
CLOSED_WITHIN: Final = 30.0
"""Seconds."""
APPENDED_AT_ONCE: Final = 64
"""Most rows of one statement of a small append."""
MANY_APPENDED_AT_ONCE: Final = 512
"""Rows of one statement of a large append. Between two statements the thread may wait for the interpreter's lock, which
costs more than the statement."""
WRITTEN_AT_ONCE: Final = (64, 16)
"""Rows of one statement that writes many rows."""
HANDED_OVER_AT_ONCE: Final = 32
"""Appends that are handed to the thread before the end of a turn of the event loop. With busy clients, a turn has one
of each. If all of them went to the thread together, it and the event loop would wait for each other in turn."""

_Failure: TypeAlias = Callable[[], SfnError]
"""Create a new error for each caller: an error that is raised in several tasks would collect all tracebacks."""

_ROOM: Final = "free some room on the disk of the inbox"
_TRANSIENT: Final = {
    sqlite3.SQLITE_FULL: _ROOM,
    sqlite3.SQLITE_IOERR_SHMSIZE: _ROOM,
    sqlite3.SQLITE_BUSY: "leave the inbox to the service: another program has it locked",
    sqlite3.SQLITE_LOCKED: "leave the inbox to the service: another program has it locked",
    sqlite3.SQLITE_NOMEM: "give the service more memory",
}
_FATAL: Final = {
    sqlite3.SQLITE_IOERR: "look at the disk of the inbox and at the machine's log, then start the service again",
    sqlite3.SQLITE_CORRUPT: "restore the inbox from a backup, or move it away: an empty one fills itself by a sweep",
    sqlite3.SQLITE_NOTADB: "move the file away, or set `inbox.url` to another one",
    sqlite3.SQLITE_CANTOPEN: "let the service's user read and write the file and its folder",
    sqlite3.SQLITE_READONLY: "let the service's user write the file and its folder",
    sqlite3.SQLITE_PERM: "let the service's user read and write the file and its folder",
}
_PRIMARY: Final = 0xFF
"""The bits of a code that hold the primary one (https://www.sqlite.org/rescode.html)."""


def to_inbox_error(error: sqlite3.Error, where: str) -> Transient | FatalError | None:
    """Return the inbox's error for an error of SQLite; None for a defect of the statement, not of the file.

    Args:
        error: the error.
        where: name of the database, for the error.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    found = f"{getattr(error, 'sqlite_errorname', type(error).__name__)}: {error}"
    remedy = _TRANSIENT.get(code) or _TRANSIENT.get(code & _PRIMARY)
    if remedy is not None:
        return Transient(
            where,
            scope=ErrorScope.INBOX,
            expected="a transaction to be stored",
            found=found,
            remedy=remedy,
            retry_after=RETRY_AFTER,
        )
    fatal = _FATAL.get(code & _PRIMARY)
    return FatalError(where, expected="a sound inbox", found=found, remedy=fatal) if fatal is not None else None


class SqliteTransaction:
    """Implements `Transaction` on one connection; `begin`, `commit` and `rollback` are the caller's.

    Args:
        db: the connection, in autocommit mode.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        ((last, folded),) = db.execute(
            "SELECT coalesce((SELECT max(seq) FROM event), 0), (SELECT last FROM counter WHERE name = 'folded')"
        ).fetchall()
        self._seq = max(last, folded)
        # Leases are taken back when the inbox is opened, so the tokens of an earlier process cannot meet these.
        self._token = 0

    async def fetch(self, text: str, *values: object) -> Sequence[Row]:
        return self.db.execute(sqlite_text(text), _bound(values)).fetchall()

    async def fetch_all(self, queries: Sequence[Query]) -> list[Sequence[Row]]:
        return [self.db.execute(sqlite_text(query.text), _bound(query.values)).fetchall() for query in queries]

    async def write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Run):
                self.db.execute(sqlite_text(change.text), _bound(change.values))
                continue
            for some in _parts(change.rows):
                if isinstance(change, Update):
                    text = _update_text(change.table.name, change.columns, len(some))
                else:
                    text = _upsert_text(change.table.name, change.names, change.on_conflict, len(some))
                self.db.execute(text, [value for row in some for value in row])

    async def append(self, rows: Sequence[LogRow]) -> Appended:
        return self.append_now(rows)

    def append_now(self, rows: Sequence[LogRow]) -> Appended:
        """Add records to the log, in their order."""
        first = self._seq + 1
        is_new = [True] * len(rows)
        start = 0
        while start < len(rows):
            is_many = len(rows) - start >= MANY_APPENDED_AT_ONCE
            some = rows[start : start + (MANY_APPENDED_AT_ONCE if is_many else APPENDED_AT_ONCE)]
            values = (first + start, *chain.from_iterable(some))
            count = self.db.execute(_append_text(len(some)), values).rowcount
            if count < len(some):
                numbers = first + start, first + start + len(some) - 1
                found = {seq for (seq,) in self.db.execute("SELECT seq FROM event WHERE seq BETWEEN ? AND ?", numbers)}
                for place in range(len(some)):
                    is_new[start + place] = first + start + place in found
            start += len(some)
        self._seq += len(rows)
        return Appended(is_new, self._seq)

    def folded(self, seqs: Sequence[int]) -> Change:
        return Run("UPDATE sfn.counter SET last = $1 WHERE name = 'folded'", (seqs[-1],))

    async def token(self) -> int:
        self._token += 1
        return self._token


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield rows in parts of few sizes, one statement each: Python keeps a limited number of prepared statements.

    Each statement releases the interpreter's lock, and then waits for it. So there is not one for each row.
    """
    start = 0
    while start < len(rows):
        left = len(rows) - start
        size = next((size for size in WRITTEN_AT_ONCE if size <= left), left)
        yield rows[start : start + size]
        start += size


@lru_cache(512)
def _update_text(table: str, columns: Sequence[str], rows: int) -> str:
    key, *changed = columns
    values = ", ".join(f"{name} = new.column{number}" for number, name in enumerate(changed, start=2))
    return f"UPDATE {table} SET {values} FROM ({_values(len(columns), rows)}) AS new WHERE {table}.{key} = new.column1"


@lru_cache(512)
def _upsert_text(table: str, columns: Sequence[str], on_conflict: str, rows: int) -> str:
    return f"INSERT INTO {table}({', '.join(columns)}) {_values(len(columns), rows)} ON CONFLICT {on_conflict}"


def _values(columns: int, rows: int) -> str:
    return "VALUES " + ", ".join([f"({', '.join('?' * columns)})"] * rows)


@lru_cache(512)
def _append_text(rows: int) -> str:
    """Return the statement that appends rows; its first value is the number of the first one."""
    fields = ", ".join("?" * len(LogRow._fields))
    values = ", ".join(f"(?1 + {place}, {fields})" for place in range(rows))
    names = ", ".join(LogRow._fields)
    return f"INSERT INTO event(seq, {names}) VALUES {values} ON CONFLICT (sender, event_id) DO NOTHING"


def _bound(values: tuple[object, ...]) -> tuple[object, ...]:
    """Return values for SQLite, which has no arrays: a list becomes a JSON array."""
    if any(isinstance(value, list) for value in values):
        return tuple(_encode_list(value).decode() if isinstance(value, list) else value for value in values)
    return values


async def _nothing(_: Transaction) -> None:
    """Do nothing in the transaction."""


class _Call(Generic[T]):
    """A call for the writer thread, with the future of its caller."""

    rows: Sequence[LogRow] = ()
    is_checkpoint = False
    after: int | None = None
    number = 0
    abandoned: Callable[[T], None] | None = None
    _result: T | None = None
    _error: Exception | None = None

    def __init__(
        self, operation: Operation[T], durability: Durability, future: asyncio.Future[T], wakes: WakeRule[T]
    ) -> None:
        self.operation, self.durability, self.future, self.wakes = operation, durability, future, wakes

    @property
    def callers(self) -> int:
        """The number of callers."""
        return 1

    @property
    def is_cancelled(self) -> bool:
        """True if no caller waits."""
        return self.future.cancelled()

    @property
    def is_claim(self) -> bool:
        """True for a claim, which may wait in the thread."""
        return self.abandoned is not None

    @property
    def wakes_worker(self) -> bool:
        """True if the call may make a job due; also if its result decides that, and there is none yet."""
        wakes = self.wakes
        if self._result is not None:
            wakes = wakes_after(wakes, self._result)
        return wakes is not Wakes.NO_WORKER

    def attempt(self, transaction: SqliteTransaction) -> None:
        """Run the call; it runs again if its transaction was undone."""
        self.succeed(drive(self.operation(cast(Transaction, transaction))))

    def succeed(self, result: T) -> None:
        """Store the result of the call."""
        self._result, self._error = result, None

    def fail(self, error: Exception) -> None:
        """Store the error of the call."""
        self._error = error

    def answer(self, failure: _Failure | None) -> None:
        """Answer the callers that still wait; on the event loop.

        Args:
            failure: the error of the whole transaction, if it failed.
        """
        error = failure() if failure is not None else self._error
        if self.future.done():
            if error is None and self._result is not None and self.abandoned is not None:
                self.abandoned(self._result)
            return
        if error is None:
            self.future.set_result(cast(T, self._result))
        else:
            self.future.set_exception(error)


class _Append(_Call[Appended]):
    """Appends of several callers in one turn of the event loop: all are stored, or none.

    With a call for each of them, the thread would spend as much time on the calls as on the statement.

    Args:
        rows: the rows of the first caller.
        future: its future.
        wakes: whom they wake.
    """

    durability = Durability.SYNCED
    wakes: WakeRule[Appended] = Wakes.NO_WORKER

    def __init__(self, rows: Sequence[LogRow], future: asyncio.Future[Appended], wakes: Wakes) -> None:
        self.rows: list[LogRow] = []
        self._callers: list[tuple[asyncio.Future[Appended], int]] = []
        self.add(rows, future, wakes)

    def add(self, rows: Sequence[LogRow], future: asyncio.Future[Appended], wakes: Wakes) -> None:
        """Append the rows of one more caller."""
        self.rows += rows
        self._callers.append((future, len(rows)))
        if wakes is not Wakes.NO_WORKER:
            self.wakes = wakes

    @property
    @override
    def callers(self) -> int:
        return len(self._callers)

    @property
    @override
    def is_cancelled(self) -> bool:
        return all(future.cancelled() for future, _ in self._callers)

    @override
    def attempt(self, transaction: SqliteTransaction) -> None:
        self.succeed(transaction.append_now(self.rows))

    @override
    def answer(self, failure: _Failure | None) -> None:
        appended, start = cast(Appended, self._result), 0
        for future, count in self._callers:
            if future.done():
                pass
            elif failure is not None or self._error is not None:
                future.set_exception(failure() if failure is not None else cast(Exception, self._error))
            else:
                last = appended.last - len(self.rows) + start + count
                future.set_result(Appended(appended.new[start : start + count], last))
            start += count


class SqliteWriter:
    """Runs operations in a thread, and answers each once its changes are stored as it needs.

    If an operation raises, only its own changes are undone; if a transaction fails, all its operations are. After an
    error that leaves the content of the disk in doubt, no operation runs any more. The database is not even closed,
    because that would copy data that may be damaged. It stays open until the process ends.

    Args:
        db: only the writer may use it from now on.
        where: name of the database, for errors.
        missing: returns a file of the database that was moved, removed or replaced.
        observe: called after every transaction, on the event loop.
        undone: called after a transaction was undone, in the thread.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        where: str,
        *,
        missing: Callable[[], Path | None],
        observe: Callable[[CommittedTransaction], None],
        undone: Callable[[], None],
    ) -> None:
        self._undone = undone
        self._db, self.where, self._missing, self._observe = db, where, missing, observe
        self._transaction = SqliteTransaction(db)
        self._loop = asyncio.get_running_loop()
        # Callbacks run in this context. In the empty one of the thread, AnyIO raises where sniffio is installed.
        self._context = copy_context()
        self._queue: SimpleQueue[list[_Call[Any]] | None] = SimpleQueue()
        self._leaving: list[_Call[Any]] = []
        self._append: _Append | None = None
        self._broken: _Failure | None = None
        self._ended = anyio.Event()
        self._closing = False
        self._claims: list[_Call[Any]] = []
        self._number = 0
        self._is_synced: bool | None = None
        # A daemon: a process that ends by an error must not wait for a disk that does not answer.
        threading.Thread(target=self._work, name="inbox", daemon=True).start()

    poll_interval = None

    def append(self, rows: Sequence[LogRow], wakes: Wakes) -> asyncio.Future[Appended]:
        """Add records to the log; they are on disk once the future has its result."""
        self._require_open()
        future: asyncio.Future[Appended] = self._loop.create_future()
        if self._append is None:
            self._append = _Append(rows, future, wakes)
            self._put(self._append)
        else:
            self._append.add(rows, future, wakes)
        if self._append.callers == HANDED_OVER_AT_ONCE:
            self._hand_over()
        return future

    async def run(self, operation: Operation[T], durability: Durability, wakes: WakeRule[T] = Wakes.NO_WORKER) -> T:
        """Run an operation; skip it if the caller stops waiting before the start."""
        return await self._submit(_Call(operation, durability, self._loop.create_future(), wakes))

    async def claim(
        self, operation: Operation[T], after: int | None, abandoned: Callable[[T], None], *, is_free: bool
    ) -> tuple[T, int] | None:
        """Run a claim at once, or in the turn that may make a job due."""
        call = _Call(operation, Durability.DERIVED, self._loop.create_future(), Wakes.NO_WORKER)
        call.after, call.abandoned = after, abandoned
        return await self._submit(call), call.number

    def end_wait(self) -> None:
        """Run a claim that waits."""
        unawaited = self._loop.create_future()
        # Otherwise asyncio would report an error that no caller awaits; the claim that waits gets the same error.
        unawaited.add_done_callback(lambda ended: ended.exception())
        self._put(_Call(_nothing, Durability.DERIVED, unawaited, Wakes.OWN_WORKER))

    async def checkpoint(self) -> None:
        """Copy the write-ahead log into the database. SQLite does so by itself at times, but reports no error then."""
        call = _Call(_nothing, Durability.DERIVED, self._loop.create_future(), Wakes.NO_WORKER)
        call.is_checkpoint = True
        await self._submit(call)

    async def check(self) -> None:
        """Raise the error if the inbox cannot be trusted any more."""
        if self._broken is not None:
            raise self._broken()

    async def close(self) -> bool:
        """Accept no more operations, finish the accepted ones, checkpoint and close.

        Returns:
            False if the inbox is broken or its disk does not answer; the database stays open until the process ends.
        """
        if not self._closing:
            self._closing = True
            self._hand_over()
            self._queue.put(None)
        with anyio.move_on_after(CLOSED_WITHIN, shield=True):
            await self._ended.wait()
        return self._ended.is_set() and self._broken is None

    async def _submit(self, call: _Call[T]) -> T:
        self._require_open()
        self._put(call)
        return await call.future

    def _require_open(self) -> None:
        if self._broken is not None:
            raise self._broken()
        if self._closing:
            raise FatalError(self.where, expected="an open inbox", found="that it was closed")

    def _put(self, call: _Call[Any]) -> None:
        """Hand a call to the thread with others of this turn of the event loop: waking a thread costs some 10 µs."""
        if not self._leaving:
            self._loop.call_soon(self._hand_over)
        self._leaving.append(call)

    def _hand_over(self) -> None:
        if self._leaving:
            self._queue.put(self._leaving)
            self._leaving, self._append = [], None

    def _work(self) -> None:
        """The thread: turn after turn."""
        is_last = False
        while not is_last:
            calls, is_last = self._next()
            synced = [call for call in calls if call.durability is Durability.SYNCED]
            if synced and not self._attempt(synced, is_synced=True):
                return
            self._number += any(call.wakes_worker for call in calls)
            derived = [call for call in calls if call.durability is not Durability.SYNCED]
            # A claim comes last: what else happens in its turn may make a job due.
            claims = [*self._claims, *(call for call in derived if call.is_claim)]
            is_over = is_last or self._broken is not None
            due = [call for call in claims if is_over or call.after is None or call.after < self._number]
            self._claims = [call for call in claims if call not in due and not call.is_cancelled]
            derived = [*(call for call in derived if not call.is_claim), *due]
            for call in due:
                call.number = self._number
            if derived and not self._attempt(derived, is_synced=False):
                return
            if is_last:
                self._shut_down()
        if self._broken is not None:
            # Keep a reference to the connection: without one it would be closed, and SQLite would checkpoint.
            threading.Event().wait()

    def _next(self) -> tuple[list[_Call[Any]], bool]:
        """Wait for calls and return them, with True if they are the last."""
        came = [self._queue.get()]
        came += [self._queue.get() for _ in range(self._queue.qsize())]
        return [call for calls in came if calls is not None for call in calls], None in came

    def _attempt(self, calls: Sequence[_Call[Any]], *, is_synced: bool) -> bool:
        """Run calls in one transaction and answer them; return False if the loop is closed, so no caller waits."""
        began = time.perf_counter()
        failure = self._broken
        if failure is None:
            wanted = [call for call in calls if not call.is_cancelled]
            failure = self._caught(partial(self._run, wanted, is_synced=is_synced))
            # Only appends and commands are acknowledged. The rest is derived again from them after a restart.
            missing = self._missing() if is_synced and failure is None else None
            if missing is not None:
                failure = partial(self._lost, missing)
        self._note(failure)
        seconds = time.perf_counter() - began
        try:
            deliver = partial(self._deliver, calls, failure, seconds)
            self._loop.call_soon_threadsafe(deliver, context=self._context)
        except RuntimeError:
            return False
        return True

    def _run(self, calls: Sequence[_Call[Any]], *, is_synced: bool) -> None:
        """Run calls in one transaction; a call that raises fails without the others.

        Raises:
            sqlite3.Error: nothing is on disk.
        """
        if any(call.is_checkpoint for call in calls):
            self._checkpoint()
        if is_synced is not self._is_synced:
            self._db.execute(f"PRAGMA synchronous={'FULL' if is_synced else 'NORMAL'}")
            self._is_synced = is_synced
        try:
            self._run_together(calls)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and to_inbox_error(error, "") is not None:
                raise
            # A savepoint copies every page that is changed after it, so savepoints are for this rare case.
            self._run_apart(calls)

    def _run_together(self, calls: Sequence[_Call[Any]]) -> None:
        appends = [call for call in calls if isinstance(call, _Append)]
        if len(appends) == len(calls) and sum(len(call.rows) for call in appends) <= APPENDED_AT_ONCE:
            # One statement is a transaction of its own. Three would wait for the interpreter's lock three times.
            self._append_together(appends)
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._append_together(appends)
            for call in calls:
                if not isinstance(call, _Append):
                    call.attempt(self._transaction)
            self._db.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _append_together(self, calls: Sequence[_Append]) -> None:
        """Run appends in one statement: each statement waits for the interpreter's lock, which the event loop holds."""
        rows = [row for call in calls for row in call.rows]
        if not rows:
            return
        appended = self._transaction.append_now(rows)
        start = 0
        for call in calls:
            end = start + len(call.rows)
            call.succeed(Appended(appended.new[start:end], appended.last - len(rows) + end))
            start = end

    def _run_apart(self, calls: Sequence[_Call[Any]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for call in calls:
                self._db.execute("SAVEPOINT operation")
                try:
                    call.attempt(self._transaction)
                except Exception as error:
                    if isinstance(error, sqlite3.Error) and to_inbox_error(error, "") is not None:
                        raise
                    self._db.execute("ROLLBACK TO operation")
                    self._undone()
                    call.fail(error)
                self._db.execute("RELEASE operation")
            self._db.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        self._undone()
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _caught(self, call: Callable[[], None]) -> _Failure | None:
        try:
            call()
        except sqlite3.Error as error:
            return partial(self._sqlite_error, error)
        except Exception as error:  # noqa: BLE001 - a thread that ended would leave every caller waiting
            return partial(self._unexpected, error)
        return None

    def _note(self, failure: _Failure | None) -> None:
        if failure is not None and isinstance(failure(), FatalError):
            self._broken = failure

    def _shut_down(self) -> None:
        if self._broken is None:
            self._note(self._caught(self._checkpoint))
        if self._broken is None:
            self._note(self._caught(self._db.close))
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ended.set)

    def _checkpoint(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _deliver(self, calls: Sequence[_Call[Any]], failure: _Failure | None, seconds: float) -> None:
        """Answer all callers, on the event loop."""
        for call in calls:
            call.answer(failure)
        if failure is None:
            answered, rows = sum(call.callers for call in calls), sum(len(call.rows) for call in calls)
            self._observe(CommittedTransaction(answered, rows, seconds))

    def _sqlite_error(self, error: sqlite3.Error) -> SfnError:
        return to_inbox_error(error, self.where) or self._unexpected(error)

    def _unexpected(self, error: Exception) -> FatalError:
        return FatalError(self.where, expected="a sound inbox", found=f"{type(error).__name__}: {error}")

    def _lost(self, path: Path) -> FatalError:
        return FatalError(
            self.where,
            expected=f"{path} where it was when the service started",
            found="that it was moved, removed or replaced",
            remedy="put it back while the service is stopped",
        )
