"""Group commit: one thread runs every verb, and a transaction takes whatever came while the last one was written."""

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
    """Runs verbs on a ledger, and answers them once what they did is on disk.

    A verb that raises undoes what it did itself and nothing else; a transaction that fails undoes all its verbs. After
    an error that leaves in doubt what is on disk no verb is run any more, and the database is not even closed, for that
    would copy what may be damaged: the end of the process ends it.

    Args:
        ledger: the operations; only the committer may use them from now on.
        where: name of the database, for errors.
        missing: returns a file of the database that was moved, removed or replaced.
        queue_limit: most messages that may wait.
        committed: called after every transaction, on the event loop.
    """

    def __init__(
        self,
        ledger: SqliteOperations,
        where: str,
        *,
        missing: Callable[[], Path | None],
        queue_limit: int,
        committed: Callable[[CommittedTransaction], None],
    ) -> None:
        self._ledger, self._where, self._missing = ledger, where, missing
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

    async def run(self, verb: Callable[[SqliteOperations], T], *, stirring: bool = False, alone: bool = False) -> T:
        """Run an operation; return its result once it is on disk. Skip it if the caller stops waiting before the start.

        Args:
            verb: called in the thread; again if what it did was undone for another verb's sake.
            stirring: something may fall due by it.
            alone: not within a transaction.

        Raises:
            Transient: scope inbox: nothing of it was done.
            FatalError: the inbox cannot be trusted any more.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._submit(WriterCall(verb, future, stirring=stirring, alone=alone))
        return await future

    async def broken(self) -> SfnError:
        """Wait until the inbox cannot be trusted any more: why."""
        await self._fell_silent.wait()
        return (self._broken or self._closed)()

    async def close(self) -> bool:
        """Take no more verbs, end those that were taken, checkpoint and close.

        Returns:
            False: the inbox is broken, or its disk does not answer; it stays as it is until the process ends.
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
            self._note(self._caught(self._ledger.checkpoint))
        if self._broken is None:
            self._note(self._caught(self._ledger.close))

    def _note(self, failure: _Failure | None) -> None:
        if failure is not None and isinstance(failure(), FatalError):
            self._broken = failure

    def _next(self) -> tuple[list[WriterJob[Any]], bool]:
        """What has come, at least one; and whether it is the last."""
        came = [self._queue.get()]
        came += [self._queue.get() for _ in range(self._queue.qsize())]
        jobs = [job for job in came if job is not None]
        return jobs, len(jobs) < len(came)

    def _attempted(self, jobs: Sequence[WriterJob[Any]]) -> _Failure | None:
        """Run jobs; why nothing of them was taken, None if it was."""
        wanted = [job for job in jobs if not job.future.cancelled()]
        failure = self._caught(partial(self._run, wanted))
        missing = self._missing()
        return failure or (partial(self._lost, missing) if missing is not None else None)

    def _run(self, jobs: Sequence[WriterJob[Any]]) -> None:
        for job in jobs:
            if job.alone:
                job.attempt(self._ledger)
        run_transaction(self._ledger, [job for job in jobs if not job.alone])

    def _caught(self, call: Callable[[], None]) -> _Failure | None:
        try:
            call()
        except sqlite3.Error as error:
            return partial(self._refused, error)
        except Exception as error:  # noqa: BLE001 - a thread that ended would leave every caller waiting
            return partial(self._surprised, error)
        return None

    def _deliver(self, jobs: Sequence[WriterJob[Any]], failure: _Failure | None, seconds: float, *, last: bool) -> None:
        """On the event loop: answer everybody."""
        notes = sum(len(job.notes) for job in jobs if isinstance(job, WriterPut))
        self._waiting -= notes
        for job in jobs:
            job.answer(failure() if failure is not None else None)
        if failure is None and jobs:
            self._committed(CommittedTransaction(len(jobs), notes, any(job.stirring for job in jobs), seconds))
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
    """Something to be done in the writer thread, and who waits for it.

    Args:
        future: the caller's.
        stirring: something may fall due by it.
        alone: to be run before the transaction, not in it.
    """

    __slots__ = ("_error", "_result", "alone", "future", "stirring")

    def __init__(self, future: asyncio.Future[T], *, stirring: bool = False, alone: bool = False) -> None:
        self.future, self.stirring, self.alone = future, stirring, alone
        self._result: T | None = None
        self._error: Exception | None = None

    def attempt(self, ledger: SqliteOperations) -> None:
        """Do it; again if its transaction was undone."""
        raise NotImplementedError

    def succeed(self, result: T) -> None:
        """Keep what came of it, until it is on disk."""
        self._result, self._error = result, None

    def fail(self, error: Exception) -> None:
        """Keep what was raised."""
        self._error = error

    def answer(self, failure: Exception | None) -> None:
        """Answer the caller, if it still waits; on the event loop.

        Args:
            failure: why nothing of the transaction was taken.
        """
        error = failure or self._error
        if self.future.done():
            return
        if error is None:
            self.future.set_result(cast(T, self._result))
        else:
            self.future.set_exception(error)


class WriterCall(WriterJob[T]):
    """Any verb of the ledger."""

    __slots__ = ("_verb",)

    def __init__(
        self, verb: Callable[[SqliteOperations], T], future: asyncio.Future[T], *, stirring: bool, alone: bool = False
    ) -> None:
        super().__init__(future, stirring=stirring, alone=alone)
        self._verb = verb

    @override
    def attempt(self, ledger: SqliteOperations) -> None:
        self.succeed(self._verb(ledger))


class WriterPut(WriterJob[PutResult]):
    """A `put`: several of them are one verb of the ledger. Whether it is stirring turns out as it is run."""

    __slots__ = ("notes", "now")

    def __init__(self, notes: Sequence[InboxMessage], now: datetime, future: asyncio.Future[PutResult]) -> None:
        super().__init__(future)
        self.notes, self.now = notes, now

    @override
    def attempt(self, ledger: SqliteOperations) -> None:
        [(accepted, self.stirring)] = ledger.put_all([(self.notes, self.now)])
        self.succeed(accepted)


def run_transaction(ledger: SqliteOperations, jobs: Sequence[WriterJob[Any]]) -> None:
    """Run calls in one transaction, which is on disk afterwards; a call that raises fails without the others.

    Raises:
        sqlite3.Error: nothing of it is on disk.
    """
    try:
        with ledger.transaction():
            _run_together(ledger, jobs)
    except Exception as error:
        if isinstance(error, sqlite3.Error) and refusal(error, "") is not None:
            raise
        # A savepoint costs a copy of every page that is changed after it: they are for the rare case.
        with ledger.transaction():
            for job in jobs:
                _run_apart(ledger, job)


def _run_together(ledger: SqliteOperations, jobs: Sequence[WriterJob[Any]]) -> None:
    puts = [job for job in jobs if isinstance(job, WriterPut)]
    taken = ledger.put_all([(put.notes, put.now) for put in puts])
    for put, (accepted, stirring) in zip(puts, taken, strict=True):
        put.stirring = stirring
        put.succeed(accepted)
    for job in jobs:
        if not isinstance(job, WriterPut):
            job.attempt(ledger)


def _run_apart(ledger: SqliteOperations, job: WriterJob[Any]) -> None:
    try:
        with ledger.savepoint():
            job.attempt(ledger)
    except Exception as error:
        if isinstance(error, sqlite3.Error) and refusal(error, "") is not None:
            raise
        job.fail(error)
