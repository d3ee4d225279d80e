"""A simulated server with the database of an inbox that several processes share, as far as `Runner` depends on one.

As in PostgreSQL, transactions that change jobs run one after the other, by one lock, and appends run beside them. A
record gets its number before its transaction is committed, so records may come to be seen in another order. The
statements of a transaction see what is committed by then. Above the port to a connection all is the product's own code:
its pool, its retries, and what it makes of an error.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from sfn.inbox.postgres_server import LOST, PostgresConnectionLost, PostgresFault
from sfn.inbox.schema import LogRow
from sfn.inbox.sqlite import connect
from sfn.inbox.transaction import Appended, Change, Run
from tests.simulation.loop import SimulatedLoop
from tests.simulation.rules import WatchedTransaction

if TYPE_CHECKING:
    from tests.simulation.faults import Faults
    from tests.simulation.node import Node

IDLE_TIMEOUT: Final = 10.0
"""Seconds without a statement after which the server ends a session that is in a transaction."""
LOCK_TIMEOUT: Final = 5.0
"""Seconds for which a transaction waits for the lock."""
UNNOTICED: Final = 0.25
"""Of the processes that die: the server does not notice."""
TOKENS: Final = 1000
"""Of a process at a time: see the sequence in `sfn.inbox.schema`."""
LOCK_NOT_AVAILABLE: Final = "55P03"
"""SQLSTATE."""

_PENDING: Final = """
    DROP VIEW pending;
    CREATE TABLE pending(seq INTEGER PRIMARY KEY, received_at INTEGER NOT NULL);
"""


def connection_lost() -> PostgresConnectionLost:
    """Return the error of a session that ended."""
    return PostgresConnectionLost(LOST, "the connection was closed")


class Database:
    """One server, and the one database on it.

    Args:
        loop: time.
        rng: chance.
        faults: how bad the world is.
        count: called with the name of what happens to it.
        is_pooled: a pooler stands before it, so that no process can be notified.

    Attributes:
        db: the database.
        lock: the lock of the transactions that change jobs.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: random.Random,
        faults: Faults,
        count: Callable[[str], None],
        *,
        is_pooled: bool = False,
    ) -> None:
        self.loop, self.rng, self.faults, self.count, self.is_pooled = loop, rng, faults, count, is_pooled
        self.db = connect(":memory:")
        self.db.executescript(_PENDING)
        self.lock = FoldLock(loop)
        self._sessions: list[Session] = []
        self._drawn = self._tokens = self._last = 0
        self._back_at = 0.0

    @property
    def is_away(self) -> bool:
        """Whether no process can connect."""
        return self.loop.time() < self._back_at

    def connected(self, node: Node | None) -> Session:
        """A new session.

        Args:
            node: the process at its other end; None for one that belongs to no service.
        """
        self._last += 1
        self._sessions.append(Session(self, node, self._last))
        return self._sessions[-1]

    def forget(self, session: Session) -> None:
        """A session ended."""
        self._sessions.remove(session)
        self.lock.release(session)

    def draw(self, count: int) -> int:
        """The first of some numbers that no other transaction gets, whatever becomes of this one."""
        first = self._drawn + 1
        self._drawn += count
        return first

    def draw_tokens(self) -> int:
        """The first of some fencing tokens, which no other transaction gets either."""
        self._tokens += TOKENS
        return self._tokens

    def notify(self, payload: str) -> None:
        """Notify the sessions that listen; some of them never hear it."""
        for session in self._sessions:
            is_heard = self.faults.calm or self.rng.random() >= self.faults.unheard
            if session.heard is not None and is_heard:
                self.loop.call_outside(self.rng.expovariate(100), session.hear, payload)

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


class Session:
    """One session. It writes and commits at once, so that there is nothing to undo before.

    Args:
        database: the database.
        node: see `Database.connected`.
        number: no other session has it.

    Attributes:
        is_open: the server still has it.
        heard: called with what is notified; None for a session that does not listen.
    """

    def __init__(self, database: Database, node: Node | None, number: int) -> None:
        self._database, self.node, self.number = database, node, number
        self.is_open = True
        self.heard: Callable[[str], None] | None = None

    def end(self) -> None:
        """The server ends it, or saw that its other end is gone."""
        if self.is_open:
            self.is_open = False
            self._database.forget(self)

    def release(self) -> None:
        """Its transaction ended."""
        self._database.lock.release(self)

    def hear(self, payload: str) -> None:
        """A notification arrives."""
        if self.heard is not None and self.is_open and (self.node is None or self.node.alive):
            self.heard(payload)


class FoldLock:
    """The lock, and who waits for it, in turn."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._holder: Session | None = None
        self._line: deque[tuple[Session, asyncio.Future[None]]] = deque()

    async def take(self, session: Session) -> None:
        """Wait for the lock.

        Raises:
            PostgresFault: the session ended meanwhile, or it took too long.
        """
        if self._holder is None:
            self._holder = session
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._line.append((session, turn))
        timer = self._loop.call_outside(LOCK_TIMEOUT, self._refuse, turn)
        try:
            await turn
        finally:
            timer.cancel()

    def release(self, session: Session) -> None:
        """Release the lock, or wait for it no more."""
        for one, turn in self._line:
            if one is session and not turn.done():
                turn.set_exception(connection_lost())
        self._line = deque((one, turn) for one, turn in self._line if one is not session)
        if self._holder is session:
            self._holder = None
            self._hand_on()

    def _hand_on(self) -> None:
        while self._line and self._holder is None:
            session, turn = self._line.popleft()
            if not turn.done():
                self._holder = session
                turn.set_result(None)

    @staticmethod
    def _refuse(turn: asyncio.Future[None]) -> None:
        if not turn.done():
            turn.set_exception(PostgresFault(LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout"))


class SharedTransaction(WatchedTransaction):
    """A transaction of a database in which the records that wait are listed, because numbers are not seen in order.

    Args:
        database: the database.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database.db)
        self._database = database

    @override
    async def append(self, rows: Sequence[LogRow]) -> Appended:
        return self.append_as(self._database.draw(len(rows)), rows)

    def append_as(self, first: int, rows: Sequence[LogRow]) -> Appended:
        """Add records with numbers that were drawn before."""
        self._seq = first - 1
        appended = self.append_now(rows)
        waiting = [
            (seq, row.received_at)
            for seq, (row, is_new) in enumerate(zip(rows, appended.new, strict=True), start=first)
            if is_new
        ]
        self.db.executemany("INSERT INTO pending VALUES(?, ?)", waiting)
        return appended

    @override
    def folded(self, seqs: Sequence[int]) -> Change:
        self.seqs += seqs
        return Run("DELETE FROM sfn.pending WHERE seq = ANY($1::bigint[])", (list(seqs),))
