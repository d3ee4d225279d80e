"""Pool of connections to the database: opened on demand, reused, and dropped when a connection is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypeAlias

import anyio

from sfn.inbox.postgres.errors import UNREACHABLE, PostgresConnectionLost, PostgresFault

MOST: Final = 7
"""Connections for transactions at a time."""
PAUSE: Final = 0.25
"""Seconds after a failed attempt to connect without another attempt: callers get the error of the last one."""
IDLE: Final = 60.0
"""Seconds of idleness after which a connection is not reused: firewalls silently drop those idle for minutes."""
_FORGOTTEN: Final = frozenset({"26000", "42P05"})
"""SQLSTATEs behind a pooler: prepared statements are missing, or another process made them."""


class PostgresConnection(Protocol):
    """A connection, implemented in `driver`; every method raises `PostgresFault`."""

    @property
    def is_open(self) -> bool: ...

    @property
    def is_busy(self) -> bool: ...

    @property
    def prepares(self) -> bool: ...

    @property
    def session(self) -> int: ...

    async def fetch(self, statement: str, *values: object) -> Sequence[Sequence[Any]]: ...

    async def execute(self, statement: str, *values: object) -> int: ...

    async def command(self, statement: str) -> str: ...

    async def listen(self, channel: str, on_notify: Callable[[str], None]) -> None: ...

    def end(self) -> None: ...

    async def close(self) -> None: ...


Connect: TypeAlias = Callable[[bool], Awaitable[PostgresConnection]]
"""Open a connection, with or without prepared statements."""


class Connections:
    """The connections of one process, for one event loop.

    Args:
        connect: opens a connection.
        patience: seconds for an attempt to connect.
        settled: statements that are run in each new session that is not shared.
        renewed: called after each new connection: another server may answer than before.
    """

    def __init__(self, connect: Connect, patience: float, settled: str, renewed: Callable[[], None]) -> None:
        self._connect, self._patience, self._settled, self._renewed = connect, patience, settled, renewed
        self._idle: list[tuple[float, PostgresConnection]] = []
        self._all: set[PostgresConnection] = set()
        self._free = anyio.Semaphore(MOST)
        self._prepares: bool | None = None
        self._vain: PostgresFault | None = None
        self._vain_at = 0.0
        self._closed = False

    @property
    def is_pooled(self) -> bool:
        """True if a pooler is known to be in between: then no state of a session outlives a transaction."""
        return self._prepares is False

    @asynccontextmanager
    async def one(self) -> AsyncIterator[PostgresConnection]:
        """Yield a connection for one transaction; close a connection that is left within a transaction.

        Raises:
            PostgresFault: no connection can be opened.
        """
        async with self._free:
            connection = self._take_idle() or await self.made()
            try:
                yield connection
            except PostgresFault as fault:
                self._judge(fault)
                raise
            except Exception:
                raise
            except BaseException:
                # The caller was cancelled during a statement.
                connection.end()
                raise
            finally:
                self._put_back(connection)

    async def made(self) -> PostgresConnection:
        """Open a connection that is not shared.

        Raises:
            PostgresFault: no connection can be opened.
        """
        if self._vain is not None and anyio.current_time() < self._vain_at + PAUSE:
            raise PostgresFault(self._vain.code, self._vain.text)
        try:
            with anyio.fail_after(self._patience):
                connection = await self._suited()
        except (PostgresFault, TimeoutError) as error:
            self._vain = error if isinstance(error, PostgresFault) else PostgresFault(UNREACHABLE, "no answer in time")
            self._vain_at = anyio.current_time()
            raise self._vain from None
        self._vain = None
        self._all.add(connection)
        self._renewed()
        return connection

    def forget(self) -> None:
        """Close all idle connections, because they may be broken."""
        while self._idle:
            self.drop(self._idle.pop()[1])

    async def close(self) -> None:
        self._closed = True
        with anyio.CancelScope(shield=True):
            for connection in list(self._all):
                await connection.close()

    async def _suited(self) -> PostgresConnection:
        """Open a connection, with prepared statements if possible."""
        if self._prepares is None:
            connection = await self._connect(False)
            try:
                self._prepares = await _is_direct(connection)
            finally:
                await connection.close()
        connection = await self._connect(self._prepares)
        try:
            if self._prepares:
                await connection.command(self._settled)
        except BaseException:
            connection.end()
            raise
        return connection

    def _take_idle(self) -> PostgresConnection | None:
        """Return the connection that was used last; None if that was long ago."""
        if self._idle and self._idle[-1][0] < anyio.current_time() - IDLE:
            self.forget()
        return self._idle.pop()[1] if self._idle else None

    def _judge(self, fault: PostgresFault) -> None:
        if fault.code in _FORGOTTEN:
            self._prepares = False
        if isinstance(fault, PostgresConnectionLost):
            self.forget()

    def _put_back(self, connection: PostgresConnection) -> None:
        is_fit = connection.is_open and not connection.is_busy and connection.prepares == self._prepares
        if is_fit and not self._closed:
            self._idle.append((anyio.current_time(), connection))
        else:
            self.drop(connection)

    def drop(self, connection: PostgresConnection) -> None:
        """Close a connection that is not shared."""
        self._all.discard(connection)
        connection.end()


async def _is_direct(connection: PostgresConnection) -> bool:
    """Return True for a connection to a server; a pooler reports another process id than that of the session."""
    await connection.command("BEGIN")
    ((session,),) = await connection.fetch("SELECT pg_backend_pid()")
    await connection.command("COMMIT")
    return bool(session == connection.session)
