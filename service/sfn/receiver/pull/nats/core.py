"""Core NATS: a message is delivered once at most, to one of a group."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import anyio
from nats.aio.msg import Msg

from sfn.formats.event import Headers
from sfn.receiver.pull import FinalBatch, Message, SourceUnavailable
from sfn.receiver.pull.nats.connection import NatsConnection, PendingLimits
from sfn.receiver.pull.nats.delivered import BATCH, DeliveredMessages, headers_of

MAX_PENDING: Final = 1024
"""Messages that wait until the inbox has taken those before them; further ones are dropped."""
MAX_PENDING_BYTES: Final = 16 << 20
"""Most bytes of these, or four messages of the greatest size that the server lets pass."""


@dataclass(frozen=True, slots=True)
class _CoreMessage:
    """A message that nobody keeps."""

    headers: Headers
    body: bytes

    async def acknowledge(self) -> None:
        pass

    async def redeliver(self, after: float) -> bool:
        return False


class _CoreFeed:
    """Implements `Feed`."""

    def __init__(self, connection: NatsConnection, delivered: DeliveredMessages, subject: str) -> None:
        self._connection, self._delivered, self._subject = connection, delivered, subject
        self._is_drained = False

    @property
    def dropped(self) -> int:
        return self._connection.dropped

    async def next(self) -> Sequence[Message]:
        return _core_messages(await self._delivered.next())

    async def drain(self) -> FinalBatch:
        messages: Sequence[Msg] = ()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._drain)
            # As many as there is room for: what waits at nats-py comes as those before it are taken.
            messages = await self._delivered.drain()
            # nats-py would wait for ever for what it had still to tell as its connection was lost.
            tasks.cancel_scope.cancel()
        return FinalBatch(_core_messages(messages), self._is_drained)

    async def _drain(self) -> None:
        with suppress(SourceUnavailable):
            await self._connection.drain(self._subject)
            self._is_drained = True
        self._delivered.finish()


def _core_messages(messages: Sequence[Msg]) -> Sequence[Message]:
    return [_CoreMessage(headers_of(message), message.data) for message in messages]


@asynccontextmanager
async def subscribe(connection: NatsConnection, subject: str, group: str) -> AsyncIterator[_CoreFeed]:
    """What is published on a subject, shared with the others of a group; alone where that is empty.

    Raises:
        Away: we may not have it.
    """
    delivered = DeliveredMessages(connection, BATCH)
    try:
        await connection.subscribe(
            subject,
            group,
            delivered.put,
            PendingLimits(MAX_PENDING, max(MAX_PENDING_BYTES, 4 * connection.client.max_payload)),
        )
        yield _CoreFeed(connection, delivered, subject)
    finally:
        delivered.close()
