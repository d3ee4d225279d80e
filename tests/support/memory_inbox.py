"""An inbox in memory, without a thread: the product's operations on a SQLite database that no file holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

import anyio.lowlevel

from sfn.clock import Clock
from sfn.inbox.inbox import Inbox
from sfn.inbox.model import FoldResult, InboxConfig
from sfn.inbox.operations import Operations
from sfn.inbox.schema import LogRow
from sfn.inbox.sqlite import connect
from sfn.inbox.sqlite_writer import SqliteTransaction
from sfn.inbox.transaction import (
    Appended,
    Durability,
    Operation,
    T,
    Transaction,
    WakeRule,
    Wakes,
    WorkerSignal,
    drive,
    wakes_after,
)


class InlineRunner:
    """Implements `Runner`: each operation runs at once, on the event loop, in a transaction of its own.

    Args:
        db: the database.
    """

    where = ":memory:"
    poll_interval = None

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.transaction = SqliteTransaction(db)
        self.signal = WorkerSignal()
        self.undone: Callable[[], None] = lambda: None

    async def append(self, rows: Sequence[LogRow], wakes: Wakes) -> Appended:
        async def append(transaction: Transaction) -> Appended:
            return await transaction.append(rows)

        return await self.run(append, Durability.SYNCED, wakes)

    async def run(self, operation: Operation[T], durability: Durability, wakes: WakeRule[T] = Wakes.NO_WORKER) -> T:
        await anyio.lowlevel.checkpoint()
        result = self.run_now(operation)
        if wakes_after(wakes, result) is not Wakes.NO_WORKER:
            self.signal.notify()
        return result

    async def claim(
        self, operation: Operation[T], after: int | None, abandoned: Callable[[T], None], *, is_free: bool
    ) -> tuple[T, int] | None:
        if after is not None:
            await self.signal.wait_beyond(after)
            return None
        number = self.signal.number
        return await self.run(operation, Durability.DERIVED), number

    def run_now(self, operation: Operation[T]) -> T:
        """Run an operation without a pause."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            result = drive(operation(self.transaction))
        except BaseException:
            self.db.execute("ROLLBACK")
            self.undone()
            raise
        self.db.execute("COMMIT")
        return result

    def end_wait(self) -> None:
        """End the wait of a claim."""
        self.signal.notify()

    async def checkpoint(self) -> None:
        """There is no file."""

    async def check(self) -> None:
        """It is always sound."""


class MemoryInbox(Inbox):
    """An inbox in memory, for one event loop and one worker."""

    def __init__(
        self,
        config: InboxConfig,
        clock: Clock,
        *,
        queue_limit: int = 25_000,
        observe_fold: Callable[[FoldResult], None] = lambda _: None,
    ) -> None:
        self.runner = InlineRunner(connect(":memory:"))
        operations = Operations(config, clock.now)
        self.runner.undone = operations.forget_groups
        super().__init__(self.runner, operations, clock, queue_limit=queue_limit, observe_fold=observe_fold)
