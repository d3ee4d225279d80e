"""Connections to a PostgreSQL server, their pool, and signals between processes: the only module that imports asyncpg.

The pool differs from asyncpg's in what poolers and lost servers need: it finds out whether a pooler is in between, and
then neither prepares statements nor keeps settings in a session; one lost connection ends all idle ones; and a failed
attempt to connect answers other callers, too. An idle connection is taken and put back without a round trip.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import anyio
import anyio.to_thread
import asyncpg
from asyncpg import connect_utils
from typing_extensions import override

from sfn.inbox.postgres_server import (
    EXPIRED,
    LOST,
    MISCONFIGURED,
    NO_TLS,
    OTHER_HOST,
    UNREACHABLE,
    UNTRUSTED,
    Connect,
    PostgresConnection,
    PostgresConnectionLost,
    PostgresFault,
    PostgresServer,
)

MAX_CACHED_STATEMENTS: Final = 256
"""Prepared statements of a connection: each set of changed columns has a statement of its own."""
CLOSED_WITHIN: Final = 2.0
"""Seconds for a clean close."""
_VERIFICATION: Final = {9: EXPIRED, 10: EXPIRED, 62: OTHER_HOST, 64: OTHER_HOST}
"""Faults by OpenSSL's code of a failed verification."""
_LAST_WORDS: Final = frozenset({"FATAL", "PANIC"})
"""After an error of such a severity the server ends the connection."""


class AsyncpgConnection:
    """An open connection.

    Args:
        raw: the connection of asyncpg.
        prepares: True if statements stay prepared.
    """

    def __init__(self, raw: Any, *, prepares: bool) -> None:  # noqa: ANN401 - asyncpg has no types
        self._raw = raw
        self.prepares = prepares

    @property
    def is_open(self) -> bool:
        """True unless the connection is known to be closed."""
        return not self._raw.is_closed()

    @property
    def is_busy(self) -> bool:
        """True within a transaction."""
        return self.is_open and bool(self._raw.is_in_transaction())

    @property
    def session(self) -> int:
        """The process id of the server that the connection reports; a pooler reports another number."""
        return int(self._raw.get_server_pid())

    async def fetch(self, statement: str, *values: object) -> Sequence[Sequence[Any]]:
        """Return the rows of a statement."""
        with self._map_errors():
            found: Sequence[Sequence[Any]] = await self._raw.fetch(statement, *values)
            return found

    async def execute(self, statement: str, *values: object) -> str:
        """Run a statement, or several without values; return the command tag of the last one ("CommandComplete")."""
        with self._map_errors():
            tag: str = await self._raw.execute(statement, *values)
            return tag

    async def listen(self, channel: str, on_notify: Callable[[str], None]) -> None:
        """Call `on_notify` with the payload of each database notification."""
        with self._map_errors():
            await self._raw.add_listener(channel, lambda *payload: on_notify(payload[-1]))

    def end(self) -> None:
        """Close the connection at once; the server rolls back an open transaction."""
        self._raw.terminate()

    async def close(self) -> None:
        """Close the connection cleanly."""
        try:
            await self._raw.close(timeout=CLOSED_WITHIN)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            self._raw.terminate()

    @contextmanager
    def _map_errors(self) -> Iterator[None]:
        try:
            yield
        except asyncpg.PostgresError as error:
            code = error.sqlstate or LOST
            if error.severity_en not in _LAST_WORDS and self.is_open:
                raise PostgresFault(code, _text(error)) from None
            self._raw.terminate()
            raise PostgresConnectionLost(code, _text(error)) from None
        except (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError) as error:
            self._raw.terminate()
            raise PostgresConnectionLost(LOST, _text(error)) from None


class _TlsUpgrade(connect_utils.TLSUpgradeProto):  # type: ignore[misc] # it has no types
    """The wait for the server's answer whether it speaks TLS; an error that no caller waits for is not reported.

    If a connection is cancelled while it opens, asyncio would log that an exception was never retrieved (asyncpg
    issue 1310). Who still waits gets the error nevertheless.
    """

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.on_data.cancelled():
            self.on_data.exception()


connect_utils.TLSUpgradeProto = _TlsUpgrade


async def connect(server: PostgresServer, *, prepares: bool) -> AsyncpgConnection:
    """Open a connection.

    Args:
        prepares: True if statements stay prepared; False if a pooler gives each transaction another session.

    Raises:
        PostgresFault: no connection can be opened.
    """
    try:
        raw = await asyncpg.connect(
            **await anyio.to_thread.run_sync(server.arguments, abandon_on_cancel=True),
            timeout=server.patience,
            statement_cache_size=MAX_CACHED_STATEMENTS if prepares else 0,
            max_cached_statement_lifetime=0,
            server_settings={"application_name": "iceberg-sfn"},
        )
    except asyncpg.PostgresError as error:
        raise PostgresFault(error.sqlstate or UNREACHABLE, _text(error)) from None
    except ssl.SSLCertVerificationError as error:
        raise PostgresFault(_VERIFICATION.get(error.verify_code, UNTRUSTED), error.verify_message) from None
    except ssl.SSLError as error:
        raise PostgresFault(UNTRUSTED, error.reason or type(error).__name__) from None
    except asyncpg.TargetServerAttributeNotMatched as error:
        raise PostgresFault("25006", _text(error)) from None
    except OSError as error:
        # The driver has no error class for this.
        has_no_tls = isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error)
        raise PostgresFault(NO_TLS if has_no_tls else UNREACHABLE, _text(error)) from None
    except (asyncpg.InterfaceError, asyncpg.InternalClientError, ValueError) as error:
        if str(error).startswith("root certificate file"):
            raise PostgresFault(UNTRUSTED, "sslmode verifies the server, but sslrootcert is missing") from None
        # The driver's message may repeat its arguments.
        raise PostgresFault(MISCONFIGURED, type(error).__name__) from None
    return AsyncpgConnection(raw, prepares=prepares)


def _text(error: Exception) -> str:
    # The first line: details may repeat values.
    said = str(error.args[0] if error.args else error).partition("\n")[0]
    if isinstance(error, OSError):
        said = error.strerror or said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


# ── The pool

MOST: Final = 7
"""Connections for transactions at a time."""
PAUSE: Final = 0.25
"""Seconds after a failed attempt to connect without another attempt: callers get the error of the last one."""
IDLE: Final = 60.0
"""Seconds of idleness after which a connection is not reused: firewalls silently drop those idle for minutes."""
_FORGOTTEN: Final = frozenset({"26000", "42P05"})
"""SQLSTATEs behind a pooler: prepared statements are missing, or another process made them."""


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
            connection = await self._connect(prepares=False)
            try:
                self._prepares = await _is_direct(connection)
            finally:
                await connection.close()
        connection = await self._connect(prepares=self._prepares)
        try:
            if self._prepares:
                await connection.execute(self._settled)
        except BaseException:
            connection.end()
            raise
        return connection

    def _take_idle(self) -> PostgresConnection | None:
        """Return the connection that was used last; None if that was long ago, or if the server has closed it."""
        if self._idle:
            used_at, connection = self._idle[-1]
            if used_at < anyio.current_time() - IDLE or not connection.is_open:
                # The other idle connections most likely have ended, too.
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
    await connection.execute("BEGIN")
    ((session,),) = await connection.fetch("SELECT pg_backend_pid()")
    await connection.execute("COMMIT")
    return bool(session == connection.session)


# ── Signals between processes

CHANNEL: Final = "sfn_inbox"
MAX_SIGNAL_WAIT: Final = 2.0
"""Seconds for sending a database notification, or for starting to listen: a lost one only delays a claim."""
LISTEN_RETRY: Final = 5.0
"""Seconds from one vain attempt to listen to the next."""
NOTIFY_PAUSE: Final = 0.05
"""Seconds between two database notifications of one process."""
_NOTIFY: Final = "BEGIN; SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = '1s'; NOTIFY {}, '{}'; COMMIT"


class NotifyListener:
    """A sender and listener of NOTIFY signals between processes that share an inbox: jobs may have become due.

    A lost signal only delays a claim. Through a pooler it only sends.

    Args:
        connections: the connections of the process.
        on_notify: called for a signal of another process.
    """

    def __init__(self, connections: Connections, on_notify: Callable[[], None]) -> None:
        self._connections, self._on_notify = connections, on_notify
        self._name = secrets.token_hex(8)
        self._connection: PostgresConnection | None = None
        self._not_before = 0.0
        self._sending: asyncio.Task[None] | None = None
        self._sends_again = False

    async def listen(self) -> None:
        """Listen to other processes, if that is possible now."""
        if self._connection is not None:
            if self._connection.is_open:
                return
            self._connections.drop(self._connection)
            self._connection = None
        if self._connections.is_pooled or anyio.current_time() < self._not_before:
            return
        self._not_before = anyio.current_time() + LISTEN_RETRY
        with suppress(PostgresFault), anyio.move_on_after(MAX_SIGNAL_WAIT):
            connection = await self._connections.made()
            try:
                if self._connections.is_pooled:
                    return
                await connection.listen(CHANNEL, self._received)
                self._connection = connection
                self._not_before = 0.0
            finally:
                if self._connection is not connection:
                    self._connections.drop(connection)

    def notify(self) -> None:
        """Signal other processes soon, once for all calls until then."""
        self._sends_again = True
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def close(self) -> None:
        """Stop sending."""
        if self._sending is not None and not self._sending.done():
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending

    async def _send(self) -> None:
        while self._sends_again:
            self._sends_again = False
            # Beside the transaction that it is about: the server lets one such transaction commit at a time.
            with suppress(PostgresFault), anyio.move_on_after(MAX_SIGNAL_WAIT):
                async with self._connections.one() as connection:
                    await connection.execute(_NOTIFY.format(CHANNEL, self._name))
            await anyio.sleep(NOTIFY_PAUSE)

    def _received(self, sender: str) -> None:
        if sender != self._name:
            self._on_notify()
