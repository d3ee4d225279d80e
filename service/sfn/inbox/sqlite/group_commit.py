"""Group commit: one thread runs all operations; each transaction has the operations that arrived during the last."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar, cast

import anyio
from typing_extensions import override

from sfn.domain.events import InboxMessage, PutResult
from sfn.errors import FatalError, SfnError
from sfn.inbox.model import CommittedTransaction, queue_full_error
from sfn.inbox.sqlite.errors import refusal
from sfn.inbox.sqlite.operations import SqliteOperations

T = TypeVar("T")

CLOSED_WITHIN = 30.0
"""Seconds."""

_Failure: TypeAlias = Callable[[], SfnError]
"""Create a new error for each caller: an error that is raised in several tasks would collect all tracebacks."""


class GroupCommitter:
    """Runs operations in a thread, and answers each once its changes are on disk.

    If an operation raises, only its own changes are undone; if a transaction fails, all its operations are. After an
    error that leaves the content of the disk in doubt, no operation runs any more. The database is not even closed,
    because that would copy data that may be damaged. It stays open until the process ends.

    Args:
        operations: only the committer may use them from now on.
        where: name of the database, for errors.
        missing: returns a file of the database that was moved, removed or replaced.
        queue_limit: most messages that may wait.
        committed: called after every transaction, on the event loop.
    """

    def __init__(
        self,
        operations: SqliteOperations,
        where: str,
        *,
        missing: Callable[[], Path | None],
        queue_limit: int,
        committed: Callable[[CommittedTransaction], None],
    ) -> None:
        self._operations, self._where, self._missing = operations, where, missing
        self._queue_limit, self._committed = queue_limit, committed
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[WriterJob[Any] | None] = SimpleQueue()
        self._waiting = 0
        self._broken: _Failure | None = None
        self._fell_silent = anyio.Event()
        self._ended = anyio.Event()
        self._closing = False
        # A daemon: a process that ends by an error must not wait for a disk that does not answer.
        threading.Thread(target=self._work, name="inbox", daemon=True).start()

    async def put(self, notes: Sequence[InboxMessage], now: datetime) -> PutResult:
        if self._waiting and self._waiting + len(notes) > self._queue_limit:
            remedy = "raise `listener.queue_limit`, or give the inbox a faster disk"
            raise queue_full_error(self._where, self._queue_limit, self._waiting, len(notes), remedy)
        job = WriterPut(notes, now, self._loop.create_future())
        self._submit(job)
        self._waiting += len(notes)
        return await job.future

    async def run(
        self, operation: Callable[[SqliteOperations], T], *, may_make_due: bool = False, alone: bool = False
    ) -> T:
        """Run an operation; return its result once it is on disk. Skip it if the caller stops waiting before the start.

        Args:
            operation: called in the thread; called again if its changes were undone because of another operation.
            may_make_due: a job may become due.
            alone: run outside a transaction.

        Raises:
            Transient: scope inbox: nothing was changed.
            FatalError: the inbox cannot be trusted any more.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._submit(WriterCall(operation, future, may_make_due=may_make_due, alone=alone))
        return await future

    async def broken(self) -> SfnError:
        """Wait until the inbox cannot be trusted any more; return the error."""
        await self._fell_silent.wait()
        return (self._broken or self._closed)()

    async def close(self) -> bool:
        """Accept no more operations, finish the accepted ones, checkpoint and close.

        Returns:
            False if the inbox is broken or its disk does not answer; the database stays open until the process ends.
        """
        if not self._closing:
            self._closing = True
            self._queue.put(None)
        with anyio.move_on_after(CLOSED_WITHIN, shield=True):
            await self._ended.wait()
        return self._ended.is_set() and self._broken is None

    def _submit(self, job: WriterJob[Any]) -> None:
        if self._broken is not None:
            raise self._broken()
        if self._closing:
            raise self._closed()
        self._queue.put(job)

    def _work(self) -> None:
        """The thread: transaction after transaction."""
        last = False
        while not last:
            jobs, last = self._next()
            began = time.perf_counter()
            failure = self._broken or self._attempted(jobs)
            seconds = time.perf_counter() - began
            self._note(failure)
            if last:
                self._shut_down()
            try:
                self._loop.call_soon_threadsafe(partial(self._deliver, jobs, failure, seconds, last=last))
            except RuntimeError:
                break  # the loop is closed, so no caller waits
        if self._broken is not None:
            # Keep a reference to the connection: without one it would be closed, and SQLite would checkpoint.
            threading.Event().wait()

    def _shut_down(self) -> None:
        if self._broken is None:
            self._note(self._caught(self._operations.checkpoint))
        if self._broken is None:
            self._note(self._caught(self._operations.close))

    def _note(self, failure: _Failure | None) -> None:
        if failure is not None and isinstance(failure(), FatalError):
            self._broken = failure

    def _next(self) -> tuple[list[WriterJob[Any]], bool]:
        """Wait for jobs and return them, with True if they are the last."""
        came = [self._queue.get()]
        came += [self._queue.get() for _ in range(self._queue.qsize())]
        jobs = [job for job in came if job is not None]
        return jobs, len(jobs) < len(came)

    def _attempted(self, jobs: Sequence[WriterJob[Any]]) -> _Failure | None:
        """Run jobs; return None if they are committed, else the failure."""
        wanted = [job for job in jobs if not job.future.cancelled()]
        failure = self._caught(partial(self._run, wanted))
        missing = self._missing()
        return failure or (partial(self._lost, missing) if missing is not None else None)

    def _run(self, jobs: Sequence[WriterJob[Any]]) -> None:
        for job in jobs:
            if job.alone:
                job.attempt(self._operations)
        run_transaction(self._operations, [job for job in jobs if not job.alone])

    def _caught(self, call: Callable[[], None]) -> _Failure | None:
        try:
            call()
        except sqlite3.Error as error:
            return partial(self._refused, error)
        except Exception as error:  # noqa: BLE001 - a thread that ended would leave every caller waiting
            return partial(self._surprised, error)
        return None

    def _deliver(self, jobs: Sequence[WriterJob[Any]], failure: _Failure | None, seconds: float, *, last: bool) -> None:
        """Answer all callers, on the event loop."""
        notes = sum(len(job.notes) for job in jobs if isinstance(job, WriterPut))
        self._waiting -= notes
        for job in jobs:
            job.answer(failure() if failure is not None else None)
        if failure is None and jobs:
            self._committed(CommittedTransaction(len(jobs), notes, any(job.may_make_due for job in jobs), seconds))
        if self._broken is not None:
            self._fell_silent.set()
        if last:
            self._ended.set()

    def _refused(self, error: sqlite3.Error) -> SfnError:
        return refusal(error, self._where) or self._surprised(error)

    def _surprised(self, error: Exception) -> FatalError:
        return FatalError(self._where, expected="a sound inbox", found=f"{type(error).__name__}: {error}")

    def _lost(self, path: Path) -> FatalError:
        return FatalError(
            self._where,
            expected=f"{path} where it was when the service started",
            found="that it was moved, removed or replaced",
            remedy="put it back while the service is stopped",
        )

    def _closed(self) -> FatalError:
        return FatalError(self._where, expected="an open inbox", found="that it was closed")


class WriterJob(Generic[T]):
    """A call for the writer thread, with the future of its caller.

    Args:
        future: the future of the caller.
        may_make_due: a job may become due.
        alone: run before the transaction, not in it.
    """

    __slots__ = ("_error", "_result", "alone", "future", "may_make_due")

    def __init__(self, future: asyncio.Future[T], *, may_make_due: bool = False, alone: bool = False) -> None:
        self.future, self.may_make_due, self.alone = future, may_make_due, alone
        self._result: T | None = None
        self._error: Exception | None = None

    def attempt(self, operations: SqliteOperations) -> None:
        """Run the call; it runs again if its transaction was undone."""
        raise NotImplementedError

    def succeed(self, result: T) -> None:
        """Store the result until it is on disk."""
        self._result, self._error = result, None

    def fail(self, error: Exception) -> None:
        """Store the error of the call."""
        self._error = error

    def answer(self, failure: Exception | None) -> None:
        """Answer the caller, if it still waits; on the event loop.

        Args:
            failure: the error of the whole transaction, if it failed.
        """
        error = failure or self._error
        if self.future.done():
            return
        if error is None:
            self.future.set_result(cast(T, self._result))
        else:
            self.future.set_exception(error)


class WriterCall(WriterJob[T]):
    """A call of any operation."""

    __slots__ = ("_operation",)

    def __init__(
        self,
        operation: Callable[[SqliteOperations], T],
        future: asyncio.Future[T],
        *,
        may_make_due: bool,
        alone: bool = False,
    ) -> None:
        super().__init__(future, may_make_due=may_make_due, alone=alone)
        self._operation = operation

    @override
    def attempt(self, operations: SqliteOperations) -> None:
        self.succeed(self._operation(operations))


class WriterPut(WriterJob[PutResult]):
    """A put; several puts run as one operation, which sets `may_make_due`."""

    __slots__ = ("notes", "now")

    def __init__(self, notes: Sequence[InboxMessage], now: datetime, future: asyncio.Future[PutResult]) -> None:
        super().__init__(future)
        self.notes, self.now = notes, now

    @override
    def attempt(self, operations: SqliteOperations) -> None:
        [(accepted, self.may_make_due)] = operations.put_all([(self.notes, self.now)])
        self.succeed(accepted)


def run_transaction(operations: SqliteOperations, jobs: Sequence[WriterJob[Any]]) -> None:
    """Run calls in one transaction, which is on disk afterwards; a call that raises fails without the others.

    Raises:
        sqlite3.Error: nothing is on disk.
    """
    try:
        with operations.transaction():
            _run_together(operations, jobs)
    except Exception as error:
        if isinstance(error, sqlite3.Error) and refusal(error, "") is not None:
            raise
        # A savepoint copies every page that is changed after it, so savepoints are for this rare case.
        with operations.transaction():
            for job in jobs:
                _run_apart(operations, job)


def _run_together(operations: SqliteOperations, jobs: Sequence[WriterJob[Any]]) -> None:
    puts = [job for job in jobs if isinstance(job, WriterPut)]
    taken = operations.put_all([(put.notes, put.now) for put in puts])
    for put, (accepted, may_make_due) in zip(puts, taken, strict=True):
        put.may_make_due = may_make_due
        put.succeed(accepted)
    for job in jobs:
        if not isinstance(job, WriterPut):
            job.attempt(operations)


def _run_apart(operations: SqliteOperations, job: WriterJob[Any]) -> None:
    try:
        with operations.savepoint():
            job.attempt(operations)
    except Exception as error:
        if isinstance(error, sqlite3.Error) and refusal(error, "") is not None:
            raise
        job.fail(error)
