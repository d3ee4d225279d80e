"""A simulated database server: its tables, locks and sessions, what it tells who listens, and when it is away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from sfn.domain.identifiers import JobKey
from sfn.inbox.postgres.errors import LOST, PostgresConnectionLost
from tests.simulation.database.locks import Locks
from tests.simulation.database.session import Session
from tests.simulation.database.tables import Stored, Tables
from tests.simulation.loop import SimulatedLoop

if TYPE_CHECKING:
    from tests.simulation.node import Node
    from tests.simulation.weather import Weather

IDLE_TIMEOUT = 10.0
"""Seconds after which the server ends a session of the service whose transaction is left alone."""
DAWDLING = 0.03
"""Of the rows that a statement locks: another one may come in between."""
UNNOTICED = 0.25
"""Of the processes that die: the server is not told."""


class Server:
    """One server, and the one database on it.

    Args:
        loop: time.
        rng: chance.
        weather: how bad the world is.
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
        weather: Weather,
        blame: Callable[[str, str], None],
        count: Callable[[str], None],
        *,
        is_pooled: bool = False,
    ) -> None:
        self.loop, self.rng, self.weather, self.is_pooled = loop, rng, weather, is_pooled
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
        if session.node is None or self.weather.calm or self.rng.random() >= DAWDLING:
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
            if self.weather.calm or self.rng.random() >= self.weather.unheard:
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
