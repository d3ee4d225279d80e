"""JetStream: what was not acknowledged is delivered again. One request for messages is open at a time.

nats-py's own `fetch` waits until a whole batch is there or its time is over, and a commit would be as late as that. So
the requests are made here (NATS, ADR-13 "Pull Subscribe internals"): each lets so many messages through as soon as they
are there, and ends with a status where it is too old.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import anyio
import msgspec
from nats.aio.msg import Msg

from sfn.formats.event import Headers
from sfn.receiver.pull import FinalBatch, Message, SourceUnavailable
from sfn.receiver.pull.nats.connection import CLOSE_TIMEOUT, NatsConnection, PendingLimits
from sfn.receiver.pull.nats.delivered import BATCH, DeliveredMessages, headers_of
from sfn.receiver.pull.nats.terms import DurableConsumer

EXPIRES: Final = 30
"""Seconds that a request is open."""
HEARTBEAT: Final = 5
"""Seconds after which the server says that it still is, where there is no message."""
SILENT: Final = 3 * HEARTBEAT
"""Seconds after which the request must have been lost."""

_NANOSECONDS: Final = 1_000_000_000
_ALIVE: Final = "100"
_ENDED: Final = frozenset({"404", "408"})
"""Statuses of a request that let through what there was."""
_NO_RESPONDERS: Final = "503"


@dataclass(frozen=True, slots=True)
class _JetStreamMessage:
    """A message that is kept until it is acknowledged."""

    connection: NatsConnection
    raw: Msg

    @property
    def headers(self) -> Headers:
        return headers_of(self.raw)

    @property
    def body(self) -> bytes:
        return self.raw.data

    async def acknowledge(self) -> None:
        with self.connection.map_errors():
            await self.raw.ack()

    async def redeliver(self, after: float) -> bool:
        with self.connection.map_errors():
            await self.raw.nak(after)
        return True


class _JetStreamFeed:
    """Implements `Feed`."""

    dropped = 0

    def __init__(
        self, connection: NatsConnection, delivered: DeliveredMessages, durable: DurableConsumer, where: str, inbox: str
    ) -> None:
        self._connection, self._delivered, self._where = connection, delivered, where
        self._durable, self._inbox = durable, inbox
        self._open = 0
        """Messages that the open request still lets through; 0 where none is open."""
        self._ended: SourceUnavailable | None = None
        """How a request ended, if badly: raised once what came before that is handed on."""
        self._last_message_at = anyio.current_time()

    async def next(self) -> Sequence[Message]:
        if self._ended is not None:
            raise self._ended
        if self._open <= 0:
            await self._request_messages()
        arrived = await self._delivered.next()
        if arrived:
            self._last_message_at = anyio.current_time()
        elif anyio.current_time() - self._last_message_at > SILENT:
            raise SourceUnavailable(
                self._where,
                expected=f"a sign of life of the consumer {self._durable.name} every {HEARTBEAT} s",
                found="none",
            )
        # What is of a stream is answered to it; a status is not, whatever its header says.
        messages = [_JetStreamMessage(self._connection, message) for message in arrived if message.reply]
        self._open -= len(messages)
        for message in arrived:
            if not message.reply:
                self._handle_status(message)
        if self._ended is not None and not messages:
            raise self._ended
        return messages

    async def drain(self) -> FinalBatch:
        return FinalBatch((), is_complete=True)

    async def give_back(self) -> None:
        """Have delivered at once to somebody else what was delivered here and not looked at."""
        for message in self._delivered.take_available(BATCH):
            if message.reply:
                with self._connection.map_errors():
                    await message.nak()

    async def _request_messages(self) -> None:
        request = {"batch": BATCH, "expires": EXPIRES * _NANOSECONDS, "idle_heartbeat": HEARTBEAT * _NANOSECONDS}
        self._open, self._last_message_at = BATCH, anyio.current_time()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._durable.stream}.{self._durable.name}"
        with self._connection.map_errors():
            await self._connection.client.publish(subject, msgspec.json.encode(request), self._inbox)

    def _handle_status(self, message: Msg) -> None:
        headers = message.headers or {}
        status, said = headers.get("Status", ""), headers.get("Description", "").partition("\n")[0]
        if status == _ALIVE:
            return
        self._open = 0
        if status not in _ENDED:
            found = "nobody who answers" if status == _NO_RESPONDERS else f"{status} {said}".strip()
            self._ended = SourceUnavailable(
                self._where,
                expected=f"messages of the consumer {self._durable.name} of the stream {self._durable.stream}",
                found=found,
                remedy="it is asked for again; where that does not help, see whether somebody deletes it",
            )


@asynccontextmanager
async def consume(connection: NatsConnection, durable: DurableConsumer, where: str) -> AsyncIterator[_JetStreamFeed]:
    """What a consumer has; what was delivered and not looked at is given back in the end.

    Raises:
        Away: we may not have it.
    """
    # Heartbeats come beside the messages, and nobody waits for room.
    delivered, client = DeliveredMessages(connection, 2 * BATCH), connection.client
    inbox = client.new_inbox()
    feed = _JetStreamFeed(connection, delivered, durable, where, inbox)
    try:
        await connection.subscribe(inbox, "", delivered.put, PendingLimits(4 * BATCH))
        yield feed
    finally:
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True), suppress(SourceUnavailable):
            await connection.unsubscribe(inbox)
            await feed.give_back()
        delivered.close()
