"""One connection, by asyncpg: the only module that imports it. Its errors become a `PostgresFault`."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import anyio.to_thread
import asyncpg
from asyncpg import connect_utils
from typing_extensions import override

from sfn.inbox.postgres_connections import (
    LOST,
    MISCONFIGURED,
    NO_TLS,
    UNREACHABLE,
    UNTRUSTED,
    PostgresConnectionLost,
    PostgresFault,
    PostgresServer,
)

MAX_CACHED_STATEMENTS: Final = 256
"""Prepared statements of a connection: each set of changed columns has a statement of its own."""
CLOSED_WITHIN: Final = 2.0
"""Seconds for a clean close."""
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

    async def execute(self, statement: str, *values: object) -> int:
        """Run a statement, or several without values; return how many rows the last one changed."""
        with self._map_errors():
            return _count(await self._raw.execute(statement, *values))

    async def command(self, statement: str) -> str:
        """Run one or several statements without values; return the command tag of the last one ("CommandComplete")."""
        with self._map_errors():
            tag: str = await self._raw.execute(statement)
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
    except ssl.SSLError as error:
        raise PostgresFault(UNTRUSTED, error.reason or type(error).__name__) from None
    except asyncpg.TargetServerAttributeNotMatched as error:
        raise PostgresFault("25006", _text(error)) from None
    except OSError as error:
        # The driver has no error class for this.
        has_no_tls = isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error)
        raise PostgresFault(NO_TLS if has_no_tls else UNREACHABLE, _text(error)) from None
    except (asyncpg.InterfaceError, asyncpg.InternalClientError, ValueError) as error:
        # The driver's message may repeat its arguments.
        raise PostgresFault(MISCONFIGURED, type(error).__name__) from None
    return AsyncpgConnection(raw, prepares=prepares)


def _text(error: Exception) -> str:
    # The first line: details may repeat values.
    said = str(error.args[0] if error.args else error).partition("\n")[0]
    if isinstance(error, OSError):
        said = error.strerror or said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _count(tag: str) -> int:
    number = tag.rpartition(" ")[2]
    return int(number) if number.isdigit() else 0
