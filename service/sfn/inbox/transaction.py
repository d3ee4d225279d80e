"""Port to the database: one transaction, in which the operations of `sfn.inbox.operations` run.

Transactions that change jobs run one after the other. In SQLite there is one writer; in PostgreSQL each such
transaction first takes one advisory lock (`FOLD_LOCK`), and that lock is what the correctness of folds, claims and
settles rests on: no row locks, no order of locks and no deadlocks are needed. Appends do not take it, so accepting an
event waits for nothing. An operation therefore reads what it needs, decides in memory, and writes once.

The operations are coroutines. In PostgreSQL they wait for the server; SQLite answers at once, so there `drive` runs
them in its thread. A statement is written in PostgreSQL's words, see `sfn.inbox.schema`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from sfn.inbox.records import LogRow
from sfn.inbox.schema import COUNTER, StoredTable

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
        """Return the change that takes records from those that wait to be folded: the oldest ones, in order."""
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


def counted(rows: Sequence[Row]) -> Mapping[tuple[str, str], int]:
    """Return counts by their first two columns, without zeros."""
    return {(first or "", second): count for first, second, count in rows if count}
