"""One session of a simulated database: what its transaction sees, writes and locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from sfn.inbox.postgres.errors import LOST, PostgresConnectionLost
from tests.simulation.database.tables import Changes, K, Table, V

if TYPE_CHECKING:
    from tests.simulation.database.server import Server
    from tests.simulation.node import Node

T = TypeVar("T")


class Session:
    """One session.

    Args:
        server: whose.
        node: the process at its other end; None for one that belongs to no service.
        number: no other session has it.

    Attributes:
        is_open: the server still has it.
        in_transaction: a transaction was begun and has not ended.
        is_ordered: an operator's order is carried out in it.
    """

    def __init__(self, server: Server, node: Node | None, number: int) -> None:
        self.server, self.node, self.number = server, node, number
        self.is_open = True
        self.in_transaction = self.is_ordered = False
        self.changes = Changes()

    @override
    def __str__(self) -> str:
        return f"session {self.number}"

    def begin(self) -> None:
        """Begin a transaction."""
        assert not self.in_transaction, "one transaction in another"
        self.in_transaction, self.is_ordered, self.changes = True, False, Changes()

    def seen(self, table: Table[K, V], key: K) -> V | None:
        """What is there for this transaction: what it wrote itself, or what is committed by now."""
        mine = self.changes.of(table)
        return mine[key] if key in mine else table.committed.get(key)

    def all(self, table: Table[K, V]) -> dict[K, V]:
        """All that is there for this transaction."""
        mine = self.changes.of(table)
        both: dict[K, V | None] = {**table.committed, **mine}
        return {key: value for key, value in both.items() if value is not None}

    def write(self, table: Table[K, V], key: K, value: V | None) -> None:
        """Write, or delete where the value is None; what may be somebody else's is locked before."""
        assert self.in_transaction, "a statement outside of any transaction"
        self.changes.write(table, key, value)

    async def lock(self, table: Table[K, V], key: K) -> None:
        """Lock a key, once nobody else has it locked.

        Raises:
            Gone: the session ended meanwhile.
            Fault: it took too long, or all wait for each other.
        """
        await self.server.dawdle(self)
        await self.server.locks.take(self, (table.name, key))
        # The lock was handed on to it, and lost again, before it heard of that.
        if not self.is_open:
            raise PostgresConnectionLost(LOST, "the connection was closed")

    def lock_now(self, table: Table[K, V], key: K) -> bool:
        """Lock a key, if nobody else has it locked."""
        return self.server.locks.take_now(self, (table.name, key))

    def has_locked(self, table: Table[K, V], key: K) -> bool:
        """Whether a key is this transaction's."""
        return self.server.locks.holder((table.name, key)) is self

    def unlock(self, table: Table[K, V], key: K) -> None:
        """What was locked is not there any more: nothing is locked."""
        self.server.locks.release(self, (table.name, key))

    async def insert(self, table: Table[K, V], key: K, value: V) -> bool:
        """Make what is not there, as by ON CONFLICT DO NOTHING: one that somebody makes or deletes is waited for."""
        await self.server.dawdle(self)
        while self.seen(table, key) is None or self._may_go(table, key):
            if self.lock_now(table, key):
                self.write(table, key, value)
                return True
            await self.lock(table, key)
            if self.seen(table, key) is not None:
                self.unlock(table, key)
        return False

    def commit(self) -> None:
        """Let all see what the transaction did."""
        if self.in_transaction:
            self.server.commits(self)
            self.changes.apply()
        self.rollback()

    def rollback(self) -> None:
        """End the transaction; what it did is undone, but for numbers."""
        self.in_transaction, self.changes = False, Changes()
        self.server.locks.release_all(self)

    def end(self) -> None:
        """The server ends it, or saw that its other end is gone."""
        if self.is_open:
            self.is_open = False
            self.server.locks.expel(self, PostgresConnectionLost(LOST, "the connection was closed"))
            self.rollback()
            self.server.forget(self)

    def _may_go(self, table: Table[K, V], key: K) -> bool:
        """Whether somebody else's transaction deletes it."""
        holder = self.server.locks.holder((table.name, key))
        return holder is not None and holder is not self and holder.changes.of(table).get(key, True) is None
