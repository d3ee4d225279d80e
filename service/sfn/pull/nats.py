"""NATS: core, which keeps nothing, and JetStream, which keeps what was not acknowledged."""

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

# ── JetStream consumer

ACK_WAIT: Final = 60.0
"""Seconds after which a message that was delivered comes again: longer than the slowest disk takes."""
MAX_UNACKNOWLEDGED: Final = 1_000
"""Messages that all replicas together may have in hand."""

_ENDLESS: Final = "that delivers for as long as nobody acknowledges"
_NO_STREAM: Final = 10_059
"""JetStream's error code."""


class JetStreamConsumer:
    """One consumer of one stream.

    Args:
        connection: to one of its servers.
        durable: which one.
        subject: what is wanted of the stream.
        where: the section of the settings, for messages.
    """

    def __init__(self, connection: NatsConnection, durable: DurableConsumer, subject: str, where: str) -> None:
        self._connection, self._durable, self._subject, self._where = connection, durable, subject, where
        self._api = JetStreamContext(connection.client, timeout=STEP_TIMEOUT)

    async def probe(self) -> bool:
        """Return whether the consumer is there; nothing is made.

        Raises:
            SourceUnavailable: there is no such stream, or the subject is none of its, or the consumer is another one than is needed.
        """
        with self._connection.map_errors():
            try:
                stream = await self._api.stream_info(self._durable.stream)
                self._check_subjects(stream.config.subjects or ())
                found = await self._api.consumer_info(self._durable.stream, self._durable.name)
            except NotFoundError as error:
                if error.err_code == _NO_STREAM:
                    self._lacks_stream()
                return False
            except APIError as error:
                raise self._refused(error) from None
        self._check(found.config)
        return True

    async def ensure(self) -> None:
        """Make it where there is none.

        It begins with all that the stream holds: of what was published before anybody listened, a commit that is known
        already costs a look, and one that is not would be missed. A stream that is a work queue allows nothing else.

        Raises:
            SourceUnavailable: as `proven`, or it can't be made.
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
                raise self._refused(error) from None

    def _check_subjects(self, subjects: Sequence[str]) -> None:
        # One that is fed by other streams has none of its own.
        if subjects and not any(subjects_overlap(self._subject, subject) for subject in subjects):
            raise SourceUnavailable(
                f"{self._where}.subject",
                expected=f"one that the stream {self._durable.stream} keeps: {', '.join(subjects)}",
                found=self._subject,
                remedy=f"correct it, or {self._where}.stream",
            )

    def _check(self, config: ConsumerConfig) -> None:
        subjects = [config.filter_subject] if config.filter_subject else config.filter_subjects or [">"]
        for expected, found, is_right in (
            ("that is pulled from", "one that pushes", config.deliver_subject is None),
            ("with explicit acknowledgements", f"{config.ack_policy}", config.ack_policy == AckPolicy.EXPLICIT),
            # What the inbox does not take is given back each time, and each time counts.
            (_ENDLESS, f"max_deliver {config.max_deliver}", config.max_deliver in {None, -1}),
            (f"of the subject {self._subject}", ", ".join(subjects), self._subject in subjects),
        ):
            if not is_right:
                raise SourceUnavailable(
                    f"{self._where}.durable",
                    expected=f"a consumer {self._durable.name} {expected}",
                    found=found,
                    remedy="name another one, which is made, or delete that one",
                )

    def _lacks_stream(self) -> NoReturn:
        name = self._durable.stream
        raise SourceUnavailable(
            f"{self._where}.stream",
            expected=f"a stream {name}",
            found="none",
            remedy=f"make it: nats stream add {name} --subjects '{self._subject}' --defaults; or correct the name",
        )

    def _refused(self, error: APIError) -> SourceUnavailable:
        if isinstance(error, ServiceUnavailableError):
            remedy = f"set up JetStream there; for core NATS remove {self._where}.stream and durable"
            return SourceUnavailable(
                self._where, expected="a server with JetStream", found="one without", remedy=remedy
            )
        expected = f"the consumer {self._durable.name} of the stream {self._durable.stream}"
        return SourceUnavailable(self._where, expected=expected, found=f"{error.description} ({error.err_code})")


# ── Delivered messages

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
            SourceUnavailable: none will come any more.
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
        """Return all until nothing more will come."""
        return [message async for message in self._got]

    def close(self) -> None:
        """Nobody takes any more of them."""
        self._put.close()
        self._got.close()


def headers_of(message: Msg) -> Headers:
    """As those of a request."""
    return [(name.lower().encode(), value.encode()) for name, value in (message.headers or {}).items()]


# ── Core NATS

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
        SourceUnavailable: we may not have it.
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


# ── JetStream

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
        SourceUnavailable: we may not have it.
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


# ── Server


class NatsServer:
    """Implements `Server`.

    Args:
        options: where it is, and what is fetched.
    """

    def __init__(self, options: NatsOptions) -> None:
        self._options, self._files = options, LoginFiles(options, STEP_TIMEOUT)

    @property
    def is_durable(self) -> bool:
        return self._options.durable is not None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[MessageFeed]:
        terms = self._options
        async with connect_nats(terms, await self._files.read()) as connection:
            if terms.durable is None:
                async with subscribe(connection, terms.subject, terms.group) as feed:
                    yield feed
                return
            await JetStreamConsumer(connection, terms.durable, terms.subject, terms.where).ensure()
            async with consume(connection, terms.durable, terms.where) as feed:
                yield feed

    async def probe(self) -> str:
        """What is there, tried without taking anything away from whoever fetches.

        Raises:
            SourceUnavailable: no server answers or lets us in, or the subject, the stream or its consumer can't be had.
        """
        terms = self._options
        async with connect_nats(terms, await self._files.read()) as connection:
            if terms.durable is None:
                # In no group: its messages are the service's.
                async with subscribe(connection, terms.subject, ""):
                    return f"{connection.url} answers; we may subscribe to {terms.subject}"
            is_there = await JetStreamConsumer(connection, terms.durable, terms.subject, terms.where).probe()
            stream, name = terms.durable.stream, terms.durable.name
            said = f"its consumer {name} is there" if is_there else f"the service will make its consumer {name}"
            return f"{connection.url} answers; the stream {stream} has {terms.subject}, {said}"
