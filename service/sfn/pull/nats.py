"""Pull sources of NATS: core NATS stores no messages, JetStream stores them until they are acknowledged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, NoReturn

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from sfn.formats.event import Headers
from sfn.pull import FinalBatch, Message, MessageFeed, SourceUnavailable
from sfn.pull.nats_connection import (
    CLOSE_TIMEOUT,
    STEP_TIMEOUT,
    DurableConsumer,
    LoginFiles,
    NatsConnection,
    NatsOptions,
    PendingLimits,
    connect_nats,
)
from sfn.pull.source import subjects_overlap

ACK_WAIT: Final = 60.0
"""Seconds until an unacknowledged message is delivered again: longer than the slowest disk takes."""
MAX_UNACKNOWLEDGED: Final = 1_000
"""Most unacknowledged messages of all replicas together."""

_ENDLESS: Final = "that delivers a message until it is acknowledged"
_NO_STREAM: Final = 10_059
"""JetStream's error code."""


class JetStreamConsumer:
    """A durable consumer of a stream.

    Args:
        connection: connection to one of the servers.
        durable: names of the stream and the consumer.
        subject: subject of the messages.
        where: section of the settings, for messages.
    """

    def __init__(self, connection: NatsConnection, durable: DurableConsumer, subject: str, where: str) -> None:
        self._connection, self._durable, self._subject, self._where = connection, durable, subject, where
        self._api = JetStreamContext(connection.client, timeout=STEP_TIMEOUT)

    async def probe(self) -> bool:
        """Return whether the consumer exists, without creating it.

        Raises:
            SourceUnavailable: the stream does not exist or does not have the subject, or the consumer has other options
                than required.
        """
        with self._connection.map_errors():
            try:
                stream = await self._api.stream_info(self._durable.stream)
                self._check_subjects(stream.config.subjects or ())
                found = await self._api.consumer_info(self._durable.stream, self._durable.name)
            except NotFoundError as error:
                if error.err_code == _NO_STREAM:
                    self._raise_no_stream()
                return False
            except APIError as error:
                raise self._to_unavailable(error) from None
        self._check_consumer(found.config)
        return True

    async def ensure(self) -> None:
        """Create the consumer if it does not exist.

        The consumer starts with the oldest message of the stream. A message about a known commit costs one check of its
        table; a skipped message could be a missed commit. Streams that are work queues allow no other start.

        Raises:
            SourceUnavailable: as for `probe`, or the consumer can't be created.
        """
        if await self.probe():
            return
        wanted = ConsumerConfig(
            durable_name=self._durable.name,
            name=self._durable.name,
            description="Iceberg SFN listener",
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT,
            max_ack_pending=MAX_UNACKNOWLEDGED,
            filter_subject=self._subject,
        )
        with self._connection.map_errors():
            try:
                await self._api.add_consumer(self._durable.stream, wanted)
            except APIError as error:
                raise self._to_unavailable(error) from None

    def _check_subjects(self, subjects: Sequence[str]) -> None:
        # A stream that is fed by other streams has no subjects of its own.
        if subjects and not any(subjects_overlap(self._subject, subject) for subject in subjects):
            raise SourceUnavailable(
                f"{self._where}.subject",
                expected=f"a subject of the stream {self._durable.stream}: {', '.join(subjects)}",
                found=self._subject,
                remedy=f"correct the subject or {self._where}.stream",
            )

    def _check_consumer(self, config: ConsumerConfig) -> None:
        subjects = [config.filter_subject] if config.filter_subject else config.filter_subjects or [">"]
        for expected, found, is_met in (
            ("of the type pull", "a consumer of the type push", config.deliver_subject is None),
            ("with explicit acknowledgements", f"{config.ack_policy}", config.ack_policy == AckPolicy.EXPLICIT),
            # Each message that the inbox does not accept is given back, and each delivery counts.
            (_ENDLESS, f"max_deliver {config.max_deliver}", config.max_deliver in {None, -1}),
            (f"of the subject {self._subject}", ", ".join(subjects), self._subject in subjects),
        ):
            if not is_met:
                raise SourceUnavailable(
                    f"{self._where}.durable",
                    expected=f"a consumer {self._durable.name} {expected}",
                    found=found,
                    remedy="set another name, and the service creates that consumer; or delete this consumer",
                )

    def _raise_no_stream(self) -> NoReturn:
        name = self._durable.stream
        raise SourceUnavailable(
            f"{self._where}.stream",
            expected=f"a stream {name}",
            found="none",
            remedy=f"create it: nats stream add {name} --subjects '{self._subject}' --defaults; or correct the name",
        )

    def _to_unavailable(self, error: APIError) -> SourceUnavailable:
        if isinstance(error, ServiceUnavailableError):
            remedy = f"enable JetStream on the server; for core NATS remove {self._where}.stream and durable"
            return SourceUnavailable(
                self._where, expected="a server with JetStream", found="a server without", remedy=remedy
            )
        expected = f"the consumer {self._durable.name} of the stream {self._durable.stream}"
        return SourceUnavailable(self._where, expected=expected, found=f"{error.description} ({error.err_code})")


BATCH: Final = 64
"""Most messages in progress at a time."""
IDLE: Final = 5.0
"""Seconds without a message after which an empty batch is returned."""


class DeliveredMessages:
    """A bounded queue for the messages of one subscription. While it is full, nats-py buffers up to its own limits.

    Args:
        connection: connection of the subscription. Once it is lost, no more messages arrive.
        capacity: most messages in the queue.
    """

    def __init__(self, connection: NatsConnection, capacity: int) -> None:
        self._connection = connection
        self._put, self._got = anyio.create_memory_object_stream[Msg](capacity)
        connection.add_lost_callback(self._put.close)

    async def put(self, message: Msg) -> None:
        """Add a message; wait while the queue is full. nats-py calls this."""
        await self._put.send(message)

    async def next(self, within: float = IDLE) -> Sequence[Msg]:
        """Return the messages of the queue; none if no message arrives in time.

        Args:
            within: seconds to wait for the first message.

        Raises:
            SourceUnavailable: no more messages will arrive.
        """
        found: list[Msg] = []
        with anyio.move_on_after(within):
            try:
                found.append(await self._got.receive())
            except anyio.EndOfStream:
                self._connection.check()
        return [*found, *self.take_available(BATCH - 1)] if found else found

    def take_available(self, count: int) -> Sequence[Msg]:
        """Return up to `count` messages of the queue without waiting."""
        found: list[Msg] = []
        while len(found) < count:
            try:
                found.append(self._got.receive_nowait())
            except (anyio.WouldBlock, anyio.EndOfStream):
                break
        return found

    def finish(self) -> None:
        """Mark the end of the messages."""
        self._put.close()

    async def drain(self) -> Sequence[Msg]:
        """Return all messages up to the end."""
        return [message async for message in self._got]

    def close(self) -> None:
        """Close both ends of the queue."""
        self._put.close()
        self._got.close()


def headers_of(message: Msg) -> Headers:
    """Return the headers of a message in the form of a request's headers."""
    return [(name.lower().encode(), value.encode()) for name, value in (message.headers or {}).items()]


MAX_PENDING: Final = 1024
"""Most messages that wait for the inbox; further ones are dropped."""
MAX_PENDING_BYTES: Final = 16 << 20
"""Most bytes of these messages. The limit is raised to four messages of the server's maximum size if that is more."""


@dataclass(frozen=True, slots=True)
class _CoreMessage:
    """A message of core NATS, which the server does not store."""

    headers: Headers
    body: bytes

    async def acknowledge(self) -> None:
        pass

    async def redeliver(self, after: float) -> bool:
        return False


class _CoreFeed:
    """A `MessageFeed` of core NATS."""

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
            messages = await self._delivered.drain()
            # If the connection is lost, nats-py waits for ever for its undelivered messages.
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
    """Subscribe to a subject.

    Args:
        connection: open connection.
        subject: the subject, possibly with wildcards.
        group: queue group that shares the messages; "" for none.

    Raises:
        SourceUnavailable: the server denies the subscription.
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


EXPIRES: Final = 30
"""Seconds until a request for messages expires."""
HEARTBEAT: Final = 5
"""Seconds between heartbeats of an open request without messages."""
SILENT: Final = 3 * HEARTBEAT
"""Seconds without message and heartbeat after which the request counts as lost."""

_NANOSECONDS: Final = 1_000_000_000
_ALIVE: Final = "100"
_ENDED: Final = frozenset({"404", "408"})
"""Statuses that end a request normally."""
_NO_RESPONDERS: Final = "503"


@dataclass(frozen=True, slots=True)
class _JetStreamMessage:
    """A message of JetStream, which stores it until it is acknowledged."""

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
    """A `MessageFeed` of a JetStream consumer."""

    dropped = 0

    def __init__(
        self, connection: NatsConnection, delivered: DeliveredMessages, durable: DurableConsumer, where: str, inbox: str
    ) -> None:
        self._connection, self._delivered, self._where = connection, delivered, where
        self._durable, self._inbox = durable, inbox
        self._open = 0
        """Messages that the open request still allows; 0 if no request is open."""
        self._ended: SourceUnavailable | None = None
        """Error that ended a request. It is raised after the earlier messages are returned."""
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
                expected=f"a heartbeat of the consumer {self._durable.name} every {HEARTBEAT} s",
                found="none",
            )
        # Messages of a stream have a reply subject; status messages do not, whatever their headers contain.
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
        """Give the unprocessed messages back to the server, which delivers them to another replica at once."""
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
        status, description = headers.get("Status", ""), headers.get("Description", "").partition("\n")[0]
        if status == _ALIVE:
            return
        self._open = 0
        if status not in _ENDED:
            found = "no responders" if status == _NO_RESPONDERS else f"{status} {description}".strip()
            self._ended = SourceUnavailable(
                self._where,
                expected=f"messages of the consumer {self._durable.name} of the stream {self._durable.stream}",
                found=found,
                remedy="the service retries; if the error remains, find out what deletes the consumer",
            )


@asynccontextmanager
async def consume(connection: NatsConnection, durable: DurableConsumer, where: str) -> AsyncIterator[_JetStreamFeed]:
    """Fetch the messages of a consumer; give unprocessed messages back at the end.

    Raises:
        SourceUnavailable: the server denies access.
    """
    # Twice the batch leaves room for heartbeats between the messages.
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


class NatsServer:
    """A `PullServer` of NATS.

    Args:
        options: configuration of the source.
    """

    def __init__(self, options: NatsOptions) -> None:
        self._options, self._files = options, LoginFiles(options, STEP_TIMEOUT)

    @property
    def is_durable(self) -> bool:
        return self._options.durable is not None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[MessageFeed]:
        options = self._options
        async with connect_nats(options, await self._files.read()) as connection:
            if options.durable is None:
                async with subscribe(connection, options.subject, options.group) as feed:
                    yield feed
                return
            await JetStreamConsumer(connection, options.durable, options.subject, options.where).ensure()
            async with consume(connection, options.durable, options.where) as feed:
                yield feed

    async def probe(self) -> str:
        """Test the source without taking messages from a running service; return a description for people.

        Raises:
            SourceUnavailable: no server answers or grants access, or subject, stream or consumer is unusable.
        """
        options = self._options
        async with connect_nats(options, await self._files.read()) as connection:
            if options.durable is None:
                # Without the group, so that no message is taken from the service.
                async with subscribe(connection, options.subject, ""):
                    return f"{connection.url} answers; subscribing to {options.subject} is permitted"
            exists = await JetStreamConsumer(connection, options.durable, options.subject, options.where).probe()
            stream, name = options.durable.stream, options.durable.name
            consumer = f"its consumer {name} exists" if exists else f"the service will create its consumer {name}"
            return f"{connection.url} answers; the stream {stream} has {options.subject}, {consumer}"
