"""Verbs on their way to the writer thread and back, and what one transaction of them does."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

from sfn.inbox.sqlite.ledger import Ledger
from sfn.inbox.sqlite.refusals import refusal
from sfn.words import Accepted, Hint, Undecodable

T = TypeVar("T")


class Job(Generic[T]):
    """A verb and who waits for it.

    Args:
        verb: called in the writer thread, again if its transaction was undone.
        future: the caller's.
        stirring: something may fall due by it.
        alone: to be run before the transaction, not in it.
    """

    __slots__ = ("_deliver", "_verb", "alone", "future", "stirring")

    def __init__(
        self, verb: Callable[[Ledger], T], future: asyncio.Future[T], *, stirring: bool, alone: bool = False
    ) -> None:
        self._verb, self.future, self.stirring, self.alone = verb, future, stirring, alone
        self._deliver: Callable[[], None] | None = None

    def attempt(self, ledger: Ledger) -> None:
        """Run the verb."""
        self.succeed(self._verb(ledger))

    def succeed(self, result: T) -> None:
        """Keep what the verb returned, until it is on disk."""
        self._deliver = partial(self.future.set_result, result)

    def fail(self, error: Exception) -> None:
        """Keep what the verb raised."""
        self._deliver = partial(self.future.set_exception, error)

    def answer(self, failure: Exception | None) -> None:
        """Answer the caller, if it still waits; on the event loop.

        Args:
            failure: why nothing of the transaction was taken.
        """
        if self.future.done():
            return
        if failure is not None:
            self.future.set_exception(failure)
        elif self._deliver is not None:
            self._deliver()


class PutJob(Job[Accepted]):
    """A `put`: several of them are one verb of the ledger."""

    __slots__ = ("notes", "now")

    def __init__(self, notes: Sequence[Hint | Undecodable], now: datetime, future: asyncio.Future[Accepted]) -> None:
        super().__init__(partial(_put, notes, now), future, stirring=True)
        self.notes, self.now = notes, now


def _put(notes: Sequence[Hint | Undecodable], now: datetime, ledger: Ledger) -> Accepted:
    return ledger.put(notes, now)


def transact(ledger: Ledger, jobs: Sequence[Job[Any]]) -> None:
    """Run jobs in one transaction, which is on disk afterwards. A job whose verb raises has failed alone.

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


def _run_together(ledger: Ledger, jobs: Sequence[Job[Any]]) -> None:
    puts = [job for job in jobs if isinstance(job, PutJob)]
    for put, accepted in zip(puts, ledger.put_all([(put.notes, put.now) for put in puts]), strict=True):
        put.succeed(accepted)
    for job in jobs:
        if not isinstance(job, PutJob):
            job.attempt(ledger)


def _run_apart(ledger: Ledger, job: Job[Any]) -> None:
    try:
        with ledger.savepoint():
            job.attempt(ledger)
    except Exception as error:
        if isinstance(error, sqlite3.Error) and refusal(error, "") is not None:
            raise
        job.fail(error)
