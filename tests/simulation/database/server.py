"""A simulated database server: its tables and sessions, whom it notifies, and when it is away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from typing_extensions import override

from sfn.domain.events import UndecodableRequest
from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import ConcurrencyGroup, PublishCache
from sfn.inbox.intents import IntentKey, OpenIntent
from sfn.inbox.model import AuditEntry, DeadLetter, Job, LastSweep
from sfn.inbox.postgres.errors import LOST, PostgresConnectionLost
from sfn.inbox.postgres.transaction import LoggedEvent
from sfn.inbox.statistics import NamedTable
from tests.simulation.database.locks import Locks
from tests.simulation.loop import SimulatedLoop

if TYPE_CHECKING:
    from tests.simulation.faults import Faults
    from tests.simulation.node import Node

IDLE_TIMEOUT = 10.0
"""Seconds after which the server ends a session of the service whose transaction is left alone."""
DAWDLING = 0.03
"""Of the rows that a statement locks: another one may come in between."""
UNNOTICED = 0.25
"""Of the processes that die: the server is not told."""

T = TypeVar("T")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Server:
    """One server, and the one database on it.

    Args:
        loop: time.
        rng: chance.
        faults: how bad the world is.
        blame: told of what the service must not do.
        count: of what befalls it.
        is_pooled: a pooler stands before it.

    Attributes:
        committing: told of every transaction that ends well, before anybody sees what it did.
        breaches: rows that the service changed, or opened or closed letters of, and had not locked.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: random.Random,
        faults: Faults,
        blame: Callable[[str, str], None],
        count: Callable[[str], None],
        *,
        is_pooled: bool = False,
    ) -> None:
        self.loop, self.rng, self.faults, self.is_pooled = loop, rng, faults, is_pooled
        self.blame, self.count = blame, count
        self.tables = Tables()
        self.locks = Locks[Session](loop, lambda circle: blame("deadlock", circle), count)
        self.committing: Callable[[Session], None] = lambda _session: None
        self.breaches: list[str] = []
        self._sessions: list[Session] = []
        self._listeners: list[tuple[Session, Callable[[str], None]]] = []
        self._last = self._drawn = self._lives = self._letters = 0
        self._back_at = 0.0

    @property
    def is_away(self) -> bool:
        """Whether nobody can connect."""
        return self.loop.time() < self._back_at

    def connected(self, node: Node | None) -> Session:
        """A new session."""
        self._last += 1
        self._sessions.append(Session(self, node, self._last))
        return self._sessions[-1]

    def forget(self, session: Session) -> None:
        """A session ended."""
        self._sessions.remove(session)
        self._listeners = [one for one in self._listeners if one[0] is not session]

    async def dawdle(self, session: Session) -> None:
        """Now and then a statement takes long in the midst of its rows.

        Raises:
            Gone: its session ended meanwhile.
        """
        if session.node is None or self.faults.calm or self.rng.random() >= DAWDLING:
            return
        over: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_outside(self.rng.expovariate(20), _end, over)
        await over
        if not session.is_open:
            raise PostgresConnectionLost(LOST, "the connection was closed")

    def draw(self) -> int:
        """The next number, which nobody else gets, whatever becomes of the transaction."""
        self._drawn += 1
        return self._drawn

    def draw_life(self) -> int:
        """Of a row that is made: no other one has it."""
        self._lives += 1
        return self._lives

    def draw_letter(self) -> int:
        """The next number of a letter or an order."""
        self._letters += 1
        return self._letters

    def commits(self, session: Session) -> None:
        """A transaction ends well."""
        self.committing(session)

    def listen(self, session: Session, heard: Callable[[str], None]) -> None:
        """Have what is told told to a session."""
        self._listeners.append((session, heard))

    def tell(self, what: str) -> None:
        """Tell those who listen; some of them never hear it."""
        for session, heard in self._listeners:
            if self.faults.calm or self.rng.random() >= self.faults.unheard:
                self.loop.call_outside(self.rng.expovariate(100), self._tell, session, heard, what)

    def restart(self, seconds: float) -> None:
        """Every session ends, and none is made for so long."""
        self._back_at = self.loop.time() + seconds
        for session in list(self._sessions):
            session.end()

    def cut(self, node: Node) -> None:
        """All connections of a process end."""
        for session in [one for one in self._sessions if one.node is node]:
            session.end()

    def abandoned(self, node: Node) -> None:
        """A process died: its transactions are undone, now or once they were left alone for too long."""
        if self.rng.random() >= UNNOTICED:
            self.cut(node)

    def row(self, subject: JobKey) -> Stored | None:
        """A row as it is committed."""
        return self.tables.rows.committed.get(subject)

    @staticmethod
    def _tell(session: Session, heard: Callable[[str], None], what: str) -> None:
        if session.is_open and (session.node is None or session.node.alive):
            heard(what)


def _end(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)


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


class Table(Generic[K, V]):
    """One table, by its key."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.committed: dict[K, V] = {}


class Stored(NamedTuple):
    """A row without its memo, and which of the rows it is that its subject ever had."""

    row: Job
    life: int


@dataclass(frozen=True, slots=True)
class Noted:
    """What is noted of a catalog."""

    sweep: LastSweep | None = None
    tripped: bool = False
    retired: bool = False
    catalog_id: str | None = None


@dataclass(frozen=True, slots=True)
class Tables:
    """All of them.

    Attributes:
        events: by sender and id, or by sender and number.
        permits: when a step got leave, and which table is dropped by it, by catalog and text.
    """

    rows: Table[JobKey, Stored] = field(default_factory=lambda: Table("row"))
    memos: Table[JobKey, PublishCache] = field(default_factory=lambda: Table("memo"))
    lanes: Table[ConcurrencyGroup, bool] = field(default_factory=lambda: Table("lane"))
    events: Table[tuple[str, str | int], LoggedEvent] = field(default_factory=lambda: Table("event"))
    letters: Table[int, DeadLetter] = field(default_factory=lambda: Table("letter"))
    requests: Table[int, UndecodableRequest] = field(default_factory=lambda: Table("request"))
    audit: Table[int, AuditEntry] = field(default_factory=lambda: Table("audit"))
    catalogs: Table[str, Noted] = field(default_factory=lambda: Table("catalog"))
    intents: Table[IntentKey, OpenIntent] = field(default_factory=lambda: Table("intent"))
    permits: Table[tuple[str, str], tuple[datetime, NamedTable | None]] = field(default_factory=lambda: Table("permit"))


class Changes:
    """What one transaction wrote, which nobody else sees; None for what it deleted."""

    def __init__(self) -> None:
        self._written: dict[Table[Any, Any], dict[Any, Any]] = {}

    def of(self, table: Table[K, V]) -> Mapping[K, V | None]:
        """Those of one table."""
        return self._written.get(table, {})

    def write(self, table: Table[K, V], key: K, value: V | None) -> None:
        """Write, or delete where the value is None."""
        self._written.setdefault(table, {})[key] = value

    def apply(self) -> None:
        """Let all see all of it at once."""
        for table, changed in self._written.items():
            for key, value in changed.items():
                if value is None:
                    table.committed.pop(key, None)
                else:
                    table.committed[key] = value
