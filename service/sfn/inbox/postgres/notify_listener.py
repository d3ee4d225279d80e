"""Signals between processes that share an inbox: jobs may have become due. A lost signal only delays a claim."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio

from sfn.inbox.postgres.connections import Connections, PostgresConnection
from sfn.inbox.postgres.errors import PostgresFault

CHANNEL: Final = "sfn_inbox"
PATIENCE: Final = 2.0
"""Seconds for sending a database notification, or for starting to listen: a lost one only delays a claim."""
LISTEN_AGAIN: Final = 5.0
"""Seconds from one vain attempt to listen to the next."""
_NOTIFY: Final = "BEGIN; SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = '1s'; NOTIFY {}, '{}'; COMMIT"


class NotifyListener:
    """A sender and listener of NOTIFY signals; through a pooler it only sends.

    Args:
        connections: the connections of the process.
        on_notify: called for a signal of another process.
    """

    def __init__(self, connections: Connections, on_notify: Callable[[], None]) -> None:
        self._connections, self._on_notify = connections, on_notify
        self._name = secrets.token_hex(8)
        self._connection: PostgresConnection | None = None
        self._not_before = 0.0
        self._is_notifying = self._notifies_again = False

    async def listen(self) -> None:
        """Listen to other processes, if that is possible now."""
        if self._connection is not None:
            if self._connection.is_open:
                return
            self._connections.drop(self._connection)
            self._connection = None
        if self._connections.is_pooled or anyio.current_time() < self._not_before:
            return
        self._not_before = anyio.current_time() + LISTEN_AGAIN
        with suppress(PostgresFault), anyio.move_on_after(PATIENCE):
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

    async def notify(self) -> None:
        """Signal other processes; a call during another one only makes that one signal again."""
        self._notifies_again = True
        if self._is_notifying:
            return
        self._is_notifying = True
        try:
            while self._notifies_again:
                self._notifies_again = False
                # Beside the transaction that it is about: the server lets one such transaction commit at a time.
                with suppress(PostgresFault), anyio.move_on_after(PATIENCE):
                    async with self._connections.one() as connection:
                        await connection.command(_NOTIFY.format(CHANNEL, self._name))
        finally:
            self._is_notifying = False

    def _received(self, sender: str) -> None:
        if sender != self._name:
            self._on_notify()
