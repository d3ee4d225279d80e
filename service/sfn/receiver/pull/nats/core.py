"""Core NATS: a message is delivered once at most, to one of a group."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import anyio
from nats.aio.msg import Msg

from sfn.dialects import Headers
from sfn.receiver.pull import Away, Last, Message
from sfn.receiver.pull.nats.connection import Connection, Room
from sfn.receiver.pull.nats.delivered import BATCH, Delivered, headers_of

WAITING: Final = 1024
"""Messages that wait until the inbox has taken those before them; further ones are dropped."""
WAITING_BYTES: Final = 16 << 20
"""Most bytes of these, or four messages of the greatest size that the server lets pass."""


@dataclass(frozen=True, slots=True)
class _Once:
    """A message that nobody keeps."""

    headers: Headers
    body: bytes

    async def taken(self) -> None:
        pass

    async def again(self, after: float) -> bool:
        return False


class _Subscribed:
    """Implements `Feed`."""

    def __init__(self, connection: Connection, delivered: Delivered, subject: str) -> None:
        self._connection, self._delivered, self._subject = connection, delivered, subject
        self._is_drained = False

    @property
    def lost(self) -> int:
        return self._connection.dropped

    async def next(self) -> Sequence[Message]:
        return _once(await self._delivered.next())

    async def end(self) -> Last:
        messages: Sequence[Msg] = ()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._drain)
            # As many as there is room for: what waits at nats-py comes as those before it are taken.
            messages = await self._delivered.last()
            # nats-py would wait for ever for what it had still to tell as its connection was lost.
            tasks.cancel_scope.cancel()
        return Last(_once(messages), self._is_drained)

    async def _drain(self) -> None:
        with suppress(Away):
            await self._connection.drain(self._subject)
            self._is_drained = True
        self._delivered.finish()


def _once(messages: Sequence[Msg]) -> Sequence[Message]:
    return [_Once(headers_of(message), message.data) for message in messages]


@asynccontextmanager
async def subscribed(connection: Connection, subject: str, group: str) -> AsyncIterator[_Subscribed]:
    """What is published on a subject, shared with the others of a group; alone where that is empty.

    Raises:
        Away: we may not have it.
    """
    delivered = Delivered(connection, BATCH)
    try:
        await connection.subscribe(
            subject,
            group,
            delivered.put,
            Room(WAITING, max(WAITING_BYTES, 4 * connection.client.max_payload)),
        )
        yield _Subscribed(connection, delivered, subject)
    finally:
        delivered.close()
