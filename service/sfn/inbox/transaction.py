"""Ports to the database: a transaction, in which an operation of `sfn.inbox.operations` runs, and what runs operations.

Transactions that change jobs run one after the other. In SQLite there is one writer; in PostgreSQL each such
transaction first takes one advisory lock (`FOLD_LOCK`), and that lock is what the correctness of folds, claims and
settles rests on: no row locks, no order of locks and no deadlocks are needed. Appends do not take it, so accepting an
event waits for nothing. An operation therefore reads what it needs, decides in memory, and writes once.

The operations are coroutines. In PostgreSQL they wait for the server; SQLite answers at once, so there `drive` runs
them in its thread. A statement is written in PostgreSQL's words, see `sfn.inbox.schema`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import anyio

from sfn.inbox.schema import COUNTER, LogRow, StoredTable

T = TypeVar("T")

Row: TypeAlias = Sequence[Any]


class Query(NamedTuple):
    """A statement that returns rows."""

    text: str
    values: tuple[object, ...] = ()


class Upsert(NamedTuple):
    """Rows that are inserted or replace those with the same key.

    Attributes:
        table: the table.
        rows: the values of `columns`; no two rows have the same key.
        columns: names of the columns; empty for all of the table.
        conflict: what to do about an existing row, as after `ON CONFLICT`; empty to replace its columns.
    """

    table: StoredTable
    rows: Sequence[Row]
    columns: tuple[str, ...] = ()
    conflict: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the rows."""
        return self.columns or tuple(self.table.columns)

    @property
    def on_conflict(self) -> str:
        """The words after `ON CONFLICT`."""
        if self.conflict:
            return self.conflict
        changed = [f"{name} = excluded.{name}" for name in self.names if name not in self.table.key]
        return f"({', '.join(self.table.key)}) DO UPDATE SET {', '.join(changed)}"


class Update(NamedTuple):
    """Rows that exist and get new values in some columns.

    An upsert would do the same, but a database changes every index of a column that a statement names: in SQLite, an
    update of the record alone takes a quarter of the time of the upsert.

    Attributes:
        table: the table; its key is one column.
        rows: the values of `columns`; no two rows have the same key.
        columns: names of the columns, the key first.
    """

    table: StoredTable
    rows: Sequence[Row]
    columns: tuple[str, ...]


class Run(NamedTuple):
    """A statement that changes rows."""

    text: str
    values: tuple[object, ...] = ()


Change: TypeAlias = Upsert | Update | Run


class Appended(NamedTuple):
    """The result of an append.

    Attributes:
        new: for each row, False if its sender and event id were known.
        last: the greatest number.
    """

    new: Sequence[bool]
    last: int


class Transaction(Protocol):
    """One transaction. Its changes are visible to others, and on disk, after its commit."""

    async def fetch(self, text: str, *values: object) -> Sequence[Row]:
        """Return the rows of a query."""
        ...

    async def fetch_all(self, queries: Sequence[Query]) -> list[Sequence[Row]]:
        """Return the rows of several queries, in one round trip."""
        ...

    async def write(self, changes: Sequence[Change]) -> None:
        """Make changes, in one round trip. No two of them may change the same row."""
        ...

    async def append(self, rows: Sequence[LogRow]) -> Appended:
        """Add records to the log, in their order."""
        ...

    def folded(self, seqs: Sequence[int]) -> Change:
        """Return the change that marks the oldest waiting records as folded; `seqs` ascends."""
        ...

    async def token(self) -> int:
        """Return a fencing token; no other transaction gets it, even if this one is undone."""
        ...


async def draw(transaction: Transaction, name: str, count: int) -> int:
    """Draw numbers from a counter, in a transaction that no other one runs beside; return the first of them."""
    found = await transaction.fetch("SELECT last FROM sfn.counter WHERE name = $1", name)
    last = int(found[0][0]) if found else 0
    await transaction.write([Upsert(COUNTER, [(name, last + count)])])
    return last + 1


def drive(operation: Coroutine[Any, Any, T]) -> T:
    """Run an operation to its end; none of its steps may wait.

    Raises:
        RuntimeError: the operation waited.
    """
    try:
        operation.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    operation.close()
    raise RuntimeError("an operation of the inbox waited for something else than its database")


class Durability(Enum):
    """What a transaction needs of the database."""

    READ = auto()
    """It changes nothing, and may run beside others."""
    WIDE_READ = auto()
    """It changes nothing, and reads every job."""
    SYNCED = auto()
    """It must survive a power cut once it has returned."""
    DERIVED = auto()
    """In SQLite a power cut may undo it, but then everything after it as well, and the process ends, too: the records
    are folded again, the leases are taken back, and the files are compared with the catalog again."""


Operation = Callable[[Transaction], Coroutine[Any, Any, T]]
"""What runs in one transaction."""


class Wakes(Enum):
    """The workers that an operation may give work to."""

    NO_WORKER = auto()
    OWN_WORKER = auto()
    """The worker of this process: a capacity was freed, or a job of it is due again."""
    ALL_WORKERS = auto()


WakeRule = Wakes | Callable[[T], Wakes]
"""The workers to wake after an operation, or a function that decides by its result."""


def wakes_after(wakes: WakeRule[T], result: T) -> Wakes:
    """Return whom to wake after an operation, see `Runner.run`."""
    return wakes if isinstance(wakes, Wakes) else wakes(result)


class Runner(Protocol):
    """Port to one database: runs operations, each in one transaction.

    Every method raises `Transient` with scope inbox if nothing was changed, `OutcomeUnknown` if that is not known,
    `Permanent` if a value cannot be stored, and `FatalError` if the inbox cannot be trusted any more.
    """

    @property
    def where(self) -> str:
        """Name of the database in errors."""
        ...

    def append(self, rows: Sequence[LogRow], wakes: Wakes) -> Awaitable[Appended]:
        """Add records to the log; they are on disk when this awaitable has its result."""
        ...

    async def run(self, operation: Operation[T], durability: Durability, wakes: WakeRule[T] = Wakes.NO_WORKER) -> T:
        """Return the result of an operation once it is committed; it may run several times.

        Args:
            operation: the operation.
            durability: what it needs.
            wakes: whom to wake afterwards.
        """
        ...

    async def claim(
        self, operation: Operation[T], after: int | None, abandoned: Callable[[T], None], *, is_free: bool
    ) -> tuple[T, int] | None:
        """Run the claim of this process's worker, with durability `DERIVED`.

        Args:
            operation: the operation.
            after: None to run it at once; else the number that an earlier claim returned, to run it once something
                may have made a job due since.
            abandoned: called with the result if the caller was cancelled while the operation ran.
            is_free: the worker has free capacity: what it waits for, it takes, so other processes need not be woken.

        Returns:
            The result, and a number for `after`. None if something may have made a job due since `after`, and the
            operation was not run: a runner that cannot run it in the same turn leaves it to the caller.
        """
        ...

    def end_wait(self) -> None:
        """Have a claim that waits answered soon, whether something may have made a job due or not."""
        ...

    @property
    def poll_interval(self) -> timedelta | None:
        """The longest wait without a signal, to find what other processes left; None if there are none."""
        ...

    async def checkpoint(self) -> None:
        """Move what is committed to where it stays, if the database does not do so by itself or hides its errors."""
        ...

    async def check(self) -> None:
        """Raise `FatalError` if the inbox cannot be trusted any more, and do what is due at intervals."""
        ...


class WorkerSignal:
    """The wake-up signal of one worker, on one event loop.

    Attributes:
        number: how often something may have made a job due.
    """

    def __init__(self) -> None:
        self.number = 0
        self._changed = anyio.Event()

    def notify(self) -> None:
        """Wake the worker, because a job may have become due."""
        self.number += 1
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_beyond(self, number: int) -> None:
        """Return once something may have made a job due since the signal had a number."""
        while self.number <= number:
            await self._changed.wait()
