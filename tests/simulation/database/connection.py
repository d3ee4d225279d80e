"""A process's end of a session: every statement is a call of a port, which may take long, never end, or be cut off."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from sfn.inbox.postgres.connections import Connect, PostgresConnection
from sfn.inbox.postgres.errors import LOST, UNREACHABLE, PostgresConnectionLost, PostgresFault
from tests.simulation.database.server import IDLE_TIMEOUT, Server, Session

if TYPE_CHECKING:
    from tests.simulation.node import Node

T = TypeVar("T")

RISK = 0.1
"""Of another call's chance to be killed or stopped at it: a transaction has many statements."""
PACE, SLOW = 100.0, 4.0
"""Statements a second, and of those that take long."""
AT_ONCE = 1e-4
"""Seconds for a statement of who belongs to no service."""
SELDOM = 0.05
"""Of all statements: they take long."""
_TOLD = re.compile(r"NOTIFY (\w+), '(\w+)'")


def connector(server: Server, node: Node | None) -> Connect:
    """Makes connections of a process; of None, of one that never dies."""

    async def connect(prepares: bool) -> PostgresConnection:
        if node is not None:
            await node.step("before sql connect", RISK, PACE)
        if server.is_away:
            raise PostgresFault(UNREACHABLE, "connection refused")
        return TwinConnection(server, node, prepares=prepares)

    return connect


class TwinConnection:
    """Implements `Connection` as far as it is not SQL, and runs the statements of a `TwinTransaction`.

    Args:
        prepares: as of `Connection`.
    """

    def __init__(self, server: Server, node: Node | None, *, prepares: bool) -> None:
        self._server, self._node, self.prepares = server, node, prepares
        self._session = server.connected(node)
        self._is_noticed = False

    @property
    def is_open(self) -> bool:
        """Whether it can be used as far as is known: of one that the server ended that is seen sooner or later."""
        self._is_noticed |= not self._session.is_open and self._server.rng.random() < 1 / 2
        return not self._is_noticed

    @property
    def is_busy(self) -> bool:
        return self._session.in_transaction

    @property
    def session(self) -> int:
        return self._session.number + self._server.is_pooled

    async def fetch(self, statement: str, *_values: object) -> Sequence[Sequence[Any]]:
        """The session's number, which is all that is asked for in SQL."""
        assert statement == "SELECT pg_backend_pid()", statement
        return ((self._session.number,),)

    async def execute(self, statement: str, *_values: object) -> int:
        raise NotImplementedError(statement)

    async def command(self, statement: str) -> str:
        """Begin, end, or tell."""
        if statement == "COMMIT":
            await self._commit()
        elif (told := _TOLD.search(statement)) is not None:
            await self.run("notify", _nothing)
            self._server.tell(told[2])
        elif statement.startswith(("BEGIN", "ROLLBACK", "SET")):
            await self.run(statement.split(maxsplit=1)[0].lower(), _nothing)
            if statement.startswith("BEGIN"):
                self._session.begin()
            elif statement == "ROLLBACK":
                self._session.rollback()
        else:
            raise NotImplementedError(statement)
        return statement

    async def listen(self, channel: str, heard: Callable[[str], None]) -> None:
        await self.run(f"listen {channel}", _nothing)
        self._server.listen(self._session, heard)

    def end(self) -> None:
        if self._node is None or self._node.alive:
            self._is_noticed = True
            self._session.end()

    async def close(self) -> None:
        self.end()

    async def run(self, call: str, work: Callable[[Session], Awaitable[T]]) -> T:
        """Have the server run one statement.

        Raises:
            Gone: the connection ended before or meanwhile.
            Fault: the server refused.
        """
        await self._sent(call)
        if self._is_cut():
            raise self._lost()
        try:
            result = await work(self._session)
        except PostgresConnectionLost:
            await self._awake(call)
            self._is_noticed = True
            raise
        await self._awake(call)
        return result

    async def _commit(self) -> None:
        await self._sent("commit")
        is_cut = self._is_cut()
        if not is_cut or self._server.rng.random() < 1 / 2:
            self._session.commit()
        if is_cut:
            raise self._lost()
        if self._node is not None:
            await self._node.step("after sql commit", RISK, self._pace())
        if not self._session.is_open:
            raise self._lost()

    async def _sent(self, call: str) -> None:
        """A statement reaches the server."""
        if self._node is None:
            await asyncio.sleep(AT_ONCE)
        else:
            with self._waited_for():
                await self._node.step(f"before sql {call}", RISK, self._pace())
        if not self._session.is_open:
            raise self._lost()

    async def _awake(self, call: str) -> None:
        """Whoever asked is there to hear the answer."""
        if self._node is not None:
            with self._waited_for():
                await self._node.hear(f"after sql {call}")

    @contextmanager
    def _waited_for(self) -> Iterator[None]:
        """The server waits for the next statement of a transaction, but not for ever; if the process is dead or not."""
        timer: asyncio.TimerHandle | None = None
        if self._session.in_transaction:
            timer = self._server.loop.call_outside(IDLE_TIMEOUT, self._session.end)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()

    def _pace(self) -> float:
        return SLOW if not self._server.faults.calm and self._server.rng.random() < SELDOM else PACE

    def _is_cut(self) -> bool:
        faults = self._server.faults
        if self._node is None or faults.calm or self._server.rng.random() >= faults.cut:
            return False
        self._server.count("cut")
        return True

    def _lost(self) -> PostgresConnectionLost:
        self.end()
        return PostgresConnectionLost(LOST, "the connection was closed")


async def _nothing(_session: Session) -> None:
    pass
