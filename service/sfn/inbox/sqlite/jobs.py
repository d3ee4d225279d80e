"""Verbs on their way to the writer thread and back, and what one transaction of them does."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, cast

from typing_extensions import override

from sfn.domain.events import InboxMessage, PutResult
from sfn.inbox.sqlite.ledger import SqliteOperations
from sfn.inbox.sqlite.refusals import refusal

T = TypeVar("T")


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
