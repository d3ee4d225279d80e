"""Connections to a PostgreSQL server: its address, the pool of connections, and the map of its errors.

`sfn.inbox.postgres_driver` opens the connections.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio

from sfn.errors import ErrorScope, FatalError, OutcomeUnknown, Permanent, SfnError, Transient
from sfn.inbox.model import RETRY_AFTER

UNREACHABLE: Final = "unreachable"
"""No SQLSTATE: the server can't be reached, or did not answer in time."""
LOST: Final = "lost"
"""No SQLSTATE: the connection ended."""
UNCERTAIN: Final = "uncertain"
"""No SQLSTATE: the connection ended, or there was no answer, while a transaction may have been committed."""
MISCONFIGURED: Final = "misconfigured"
"""Not an SQLSTATE: the driver rejects its arguments."""
LOGIN_FILE: Final = "login-file"
"""No SQLSTATE: the file with the password can't be read."""
NO_TLS: Final = "no-tls"
"""No SQLSTATE: the server does not support TLS, which the URL requires."""
UNTRUSTED: Final = "untrusted"
"""No SQLSTATE: the server's certificate is not trusted, or a certificate file can't be read."""
ABORTED: Final = "25P02"
"""SQLSTATE in_failed_sql_transaction: the transaction was rolled back."""


class PostgresFault(Exception):
    """A failed request to the database.

    Attributes:
        code: an SQLSTATE (PostgreSQL manual, appendix A), or one of the constants above.
        text: the message, without secrets.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class PostgresConnectionLost(PostgresFault):
    """The connection is closed. An open transaction was rolled back."""


_WAIT: Final = "it is tried again; see whether the server runs and is reached"
_ROOM: Final = "free some room on the disk of the database's server"
_PRIMARY: Final = "let `inbox.url` lead to the primary: several hosts with target_session_attrs=read-write find it"
_LOGIN: Final = "give the user and its password in `inbox.url`, or `inbox.password_file`, as the server knows them"
_GRANT: Final = (
    "as a superuser: GRANT CREATE ON DATABASE …, or CREATE SCHEMA sfn AUTHORIZATION … and leave it to the user"
)

_PASSING: Final = {
    LOST: _WAIT,
    UNREACHABLE: _WAIT,
    UNCERTAIN: "it is tried again; what was sent with an id is never taken twice",
    "08": _WAIT,
    "25006": _PRIMARY,
    "25": _WAIT,
    "26": "it is tried again, as behind a pooler",
    "40": "it is tried again",
    "42P05": "it is tried again, as behind a pooler",
    "53": "see what the database's server lacks: connections, memory or room on its disk",
    "53100": _ROOM,
    "53300": "raise max_connections of the server, or start fewer replicas: each has eight connections at most",
    "55": "see who keeps tables of the schema sfn locked (pg_stat_activity)",
    "57": _WAIT,
    "58": "look at the log of the database's server",
}
"""Remedies of temporary faults, which need no restart of the listener, by code or class."""
_AT_A_START: Final = {
    "28": _LOGIN,
    "3D000": "create the database: CREATE DATABASE … OWNER …",
    "42501": _GRANT,
    MISCONFIGURED: "set `inbox.url` to postgresql://user:password@host:port/database, percent-encoded",
    LOGIN_FILE: "let the service's user read `inbox.password_file`",
    NO_TLS: "set ssl = on at the server, or another sslmode in `inbox.url`",
    UNTRUSTED: "set sslrootcert in `inbox.url` to the certificates that signed the server's, or to system",
}
"""Remedies of a wrong configuration: a start is refused, but a running process waits until it is corrected."""
_FATAL: Final = {
    "0A": "let `inbox.url` lead to PostgreSQL 13 or newer",
    "3F": "leave the schema sfn to the service: start it again, and it makes what is missing",
    "42": "leave the schema sfn to the service: start it again, and it makes what is missing",
    "XX": "look at the log of the database's server; restore it from a backup if its data are damaged",
}


def refusal(fault: PostgresFault, where: str, *, starting: bool = False) -> SfnError:
    """Return the error of the inbox for a fault.

    Args:
        where: name of the database in errors.
        starting: True if the process has not used the database yet.

    Returns:
        A `Transient` with scope inbox; an `OutcomeUnknown` if the transaction may have been committed; a `FatalError`
        if this process can't continue or start; a `Permanent` for values that the database can't store.
    """
    expected = "a transaction to be stored" if not starting else "a database that the inbox can be kept in"
    found = f"{fault.text} ({fault.code})"
    remedy = _of(_AT_A_START, fault.code)
    if remedy is not None and starting:
        return FatalError(where, expected=expected, found=found, remedy=remedy)
    remedy = remedy or _of(_PASSING, fault.code)
    if remedy is not None:
        kind = OutcomeUnknown if fault.code == UNCERTAIN else Transient
        return kind(
            where, scope=ErrorScope.INBOX, expected=expected, found=found, remedy=remedy, retry_after=RETRY_AFTER
        )
    remedy = _of(_FATAL, fault.code)
    if remedy is not None or starting:
        return FatalError(where, expected=expected, found=found, remedy=remedy or "")
    return Permanent(where, scope=ErrorScope.INBOX, expected="values that can be stored", found=found)


def _of(remedies: Mapping[str, str], code: str) -> str | None:
    """Return the remedy for a code, or for its class: the first two characters of an SQLSTATE."""
    is_state = code.isdigit() or code.isupper()
    return remedies.get(code) or (remedies.get(code[:2]) if is_state else None)


CONNECTED_WITHIN: Final = 5.0
"""Seconds, unless the URL says `connect_timeout`."""
_CERTIFICATES: Final = frozenset({"sslcert", "sslcrl", "sslkey", "sslrootcert"})
_SYSTEM: Final = "system"
"""The value of `sslrootcert` that stands for the certificates of the system, as in libpq 16."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A database of a server, or of one of several, as libpq's URLs name it (PostgreSQL manual, section 34.1.1.2).

    Attributes:
        url: may hold a password.
        password_file: file with the password; read for each new connection.
    """

    url: str = field(repr=False)
    password_file: Path | None = None

    @property
    def name(self) -> str:
        """The URL without anything that may be secret."""
        parts = urlsplit(self.url)
        login, _, hosts = parts.netloc.rpartition("@")
        user = login.partition(":")[0]
        return f"postgresql://{user}@{hosts}{parts.path}" if user else f"postgresql://{hosts}{parts.path}"

    @property
    def patience(self) -> float:
        """Seconds for an attempt to connect."""
        return float(self._options().get("connect_timeout", CONNECTED_WITHIN))

    def arguments(self) -> dict[str, Any]:
        """Return the connection parameters for the driver.

        Raises:
            PostgresFault: the file with the password, or a certificate, can't be read.
        """
        options = self._options()
        options.pop("connect_timeout", None)
        driver_arguments: dict[str, Any] = {}
        if options.get("sslrootcert") == _SYSTEM:
            del options["sslrootcert"]
            driver_arguments["ssl"] = ssl.create_default_context()
        if self.password_file is not None:
            driver_arguments["password"] = _read(self.password_file, LOGIN_FILE).rstrip("\r\n")
        for option in sorted(_CERTIFICATES & options.keys()):
            _read(Path(options[option]), UNTRUSTED)
        return {"dsn": urlsplit(self.url)._replace(query=urlencode(options)).geturl(), **driver_arguments}

    def _options(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.url).query))


def _read(file: Path, code: str) -> str:
    """Return the content of a file; the driver would report a missing file as a server that can't be reached."""
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise PostgresFault(code, f"{file}: {why}") from None


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
    await connection.command("BEGIN")
    ((session,),) = await connection.fetch("SELECT pg_backend_pid()")
    await connection.command("COMMIT")
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
                    await connection.command(_NOTIFY.format(CHANNEL, self._name))
            await anyio.sleep(NOTIFY_PAUSE)

    def _received(self, sender: str) -> None:
        if sender != self._name:
            self._on_notify()
