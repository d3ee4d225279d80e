"""Core NATS: a message is delivered once at most, to one of a group."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from sfn.dialects import Headers
from sfn.receiver.pull import Message
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

    def __init__(self, connection: Connection, delivered: Delivered) -> None:
        self._connection, self._delivered = connection, delivered

    @property
    def lost(self) -> int:
        return self._connection.dropped

    async def next(self) -> Sequence[Message]:
        return [_Once(headers_of(message), message.data) for message in await self._delivered.next()]


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
        yield _Subscribed(connection, delivered)
    finally:
        delivered.close()
