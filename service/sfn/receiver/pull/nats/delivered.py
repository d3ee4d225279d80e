"""What a server delivered, in the order of arrival, and no more of it than fits into a bounded room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio
from nats.aio.msg import Msg

from sfn.formats.event import Headers
from sfn.receiver.pull.nats.connection import NatsConnection

BATCH: Final = 64
"""Most messages that are handed on, and so in hand, at a time."""
IDLE: Final = 5.0
"""Seconds after which there are none."""


class DeliveredMessages:
    """The messages of one subscription. While there is no room, nats-py keeps as many as it was told to.

    Args:
        connection: when it is lost nothing more will come.
        room: for so many messages.
    """

    def __init__(self, connection: NatsConnection, room: int) -> None:
        self._connection = connection
        self._put, self._got = anyio.create_memory_object_stream[Msg](room)
        connection.add_lost_callback(self._put.close)

    async def put(self, message: Msg) -> None:
        """What nats-py calls; it waits where there is no room."""
        await self._put.send(message)

    async def next(self, within: float = IDLE) -> Sequence[Msg]:
        """Those that are here; none where none came in time.

        Raises:
            Away: none will come any more.
        """
        found: list[Msg] = []
        with anyio.move_on_after(within):
            try:
                found.append(await self._got.receive())
            except anyio.EndOfStream:
                self._connection.check()
        return [*found, *self.take_available(BATCH - 1)] if found else found

    def take_available(self, count: int) -> Sequence[Msg]:
        """So many of those that are here, without waiting."""
        found: list[Msg] = []
        while len(found) < count:
            try:
                found.append(self._got.receive_nowait())
            except (anyio.WouldBlock, anyio.EndOfStream):
                break
        return found

    def finish(self) -> None:
        """Nothing more will come."""
        self._put.close()

    async def drain(self) -> Sequence[Msg]:
        """All until nothing more will come."""
        return [message async for message in self._got]

    def close(self) -> None:
        """Nobody takes any more of them."""
        self._put.close()
        self._got.close()


def headers_of(message: Msg) -> Headers:
    """As those of a request."""
    return [(name.lower().encode(), value.encode()) for name, value in (message.headers or {}).items()]
