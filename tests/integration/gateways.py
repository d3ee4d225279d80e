"""A gateway on a real server, before a catalog that speaks raw sockets and writes down every byte that it is sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream

from sfn.gateway.commits import CommitRecorder, IntentOptions, OnInboxFailure, OwedSweeps
from sfn.gateway.proxy import GatewayOptions, Proxy, mount_gateways, standalone_gateway
from sfn.gateway.routes import CatalogMapping
from sfn.gateway.upstream import UpstreamOptions as UpstreamTerms
from sfn.gateway.upstream import UpstreamPool
from sfn.limits import BodyMemory
from sfn.telemetry.metrics import Metrics
from tests.support.listener import Inbox, Open, Service, listening

ROOT = "/catalog/prod"
_HEAD = 1 << 17
_ENDED = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)


@dataclass(frozen=True)
class Message:
    """A request or an answer as it came over the wire.

    Attributes:
        line: the first one.
        fields: in their order, as they were spelled.
        body: as it came: chunks are not put together.
    """

    line: bytes
    fields: Sequence[tuple[bytes, bytes]]
    body: bytes

    @property
    def status(self) -> int:
        """Of an answer."""
        return int(self.line.split(b" ")[1])

    @property
    def target(self) -> str:
        """Of a request."""
        return self.line.split(b" ")[1].decode("latin-1")

    def all(self, name: bytes) -> list[bytes]:
        """The values of a field."""
        return [value for found, value in self.fields if found.lower() == name.lower()]

    def value(self, name: bytes) -> bytes | None:
        """Of a field that is there once at most."""
        found = self.all(name)
        assert len(found) < 2, found
        return found[0] if found else None


def message(head: bytes, body: bytes = b"") -> Message:
    """A message by its head, which may have its empty line, and its body."""
    line, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    fields = [(name, value.strip(b" ")) for name, _, value in (one.partition(b":") for one in lines)]
    return Message(line, fields, body)


def parted(raw: bytes) -> Message:
    """An answer by all that was received."""
    head, _, body = raw.partition(b"\r\n\r\n")
    return message(head, body)


class Ended(Exception):
    """The other side closed the connection."""


@dataclass
class Line:
    """The catalog's end of a connection."""

    stream: ByteStream
    buffer: BufferedByteReceiveStream

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def head(self) -> Message:
        """The head of the next request.

        Raises:
            Ended: there is none.
        """
        try:
            return message(await self.buffer.receive_until(b"\r\n\r\n", _HEAD))
        except _ENDED as error:
            raise Ended from error

    async def whole(self, found: Message) -> Message:
        """A request with its body.

        Args:
            found: its head, which came last.

        Raises:
            Ended: it is not whole.
        """
        try:
            if found.value(b"transfer-encoding") == b"chunked":
                return Message(found.line, found.fields, await self._chunks())
            body = await self.buffer.receive_exactly(int(found.value(b"content-length") or 0))
        except _ENDED as error:
            raise Ended from error
        return Message(found.line, found.fields, body)

    async def ended(self) -> None:
        """Return once the other side has closed it."""
        try:
            while True:
                await self.buffer.receive()
        except _ENDED:
            return

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.buffer.receive_until(b"\r\n", _HEAD), 16):
            body += await self.buffer.receive_exactly(size)
            await self.buffer.receive_exactly(2)
        await self.buffer.receive_exactly(2)
        return body


Answering = Callable[[Message, Line], Awaitable[None]]


def saying(answer: bytes) -> Answering:
    """Answers each request with the same bytes."""

    async def say(_request: Message, line: Line) -> None:
        await line.send(answer)

    return say


OK = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


@dataclass
class Catalog:
    """The catalog.

    Attributes:
        answer: to each request.
        requests: all that came, whole.
        reads: bodies are read before a request is answered; else only its head.
        lines: connections that are open.
        port: where it listens.
    """

    answer: Answering = OK
    requests: list[Message] = field(default_factory=list)
    reads: bool = True
    lines: int = 0
    port: int = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def carry(self, stream: ByteStream) -> None:
        """One connection."""
        line = Line(stream, BufferedByteReceiveStream(stream))
        self.lines += 1
        async with stream:
            try:
                while True:
                    head = await line.head()
                    self.requests.append(await line.whole(head) if self.reads else head)
                    await self.answer(self.requests[-1], line)
            except (Ended, *_ENDED):
                return
            finally:
                self.lines -= 1

    @property
    def last(self) -> Message:
        """The request that came last."""
        return self.requests[-1]


@asynccontextmanager
async def catalog() -> AsyncGenerator[Catalog]:
    """A catalog that answers."""
    made = Catalog()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    made.port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - it is anyio's, not Django's
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, made.carry)
        try:
            yield made
        finally:
            tasks.cancel_scope.cancel()


@dataclass
class Gate:
    """A gateway, and the catalog behind it.

    Attributes:
        connect: opens a connection to the gateway.
        inbox: what is noted of commits.
    """

    catalog: Catalog
    connect: Open
    inbox: Inbox

    async def told(self, raw: bytes) -> Message:
        """What is answered to a request that has its connection closed."""
        async with self.connect() as wire:
            await wire.send(raw)
            return parted(await wire.rest())


@asynccontextmanager
async def gate(
    path: str = "",
    silence: float = 60.0,
    base: str | None = None,
    *,
    connections: int = 256,
    idle: float = 0.5,
    is_alone: bool = False,
    memory: BodyMemory | None = None,
) -> AsyncGenerator[Gate]:
    """A gateway that answers below `ROOT`.

    Args:
        path: of the catalog's address.
        silence: seconds that the catalog has for an answer.
        base: the catalog's address, if it is another one.
        connections: to the catalog at once.
        idle: seconds for which a connection may have been idle that a commit takes.
        is_alone: it has a listener of its own, where it begins at `/`.
        memory: for bodies.
    """
    numbers, inbox = count(), Inbox()
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(catalog())
        base = base or f"{behind.uri}{path}"
        counted = Metrics(version="1", catalogs=["prod"], gateways=["prod"]).gateways.get("prod")
        noting = IntentOptions("gateway.prod", OnInboxFailure.PASS, lambda: str(next(numbers)))
        proxy = Proxy(
            UpstreamPool("prod", UpstreamTerms(base, silence, connections, idle), lambda: True),
            CommitRecorder(noting, inbox, OwedSweeps(inbox), lambda _: None, counted),
            CatalogMapping("prod", {}, lambda _: True, requires_credentials=False),
            GatewayOptions(base, None, 1 << 20),
            counted,
            memory,
        )
        stack.push_async_callback(proxy.close)
        answers = standalone_gateway(proxy) if is_alone else mount_gateways({"prod": proxy}, Service().application())
        yield Gate(behind, await stack.enter_async_context(listening(answers)), inbox)


def asked(target: str, *fields: str, method: str = "GET", body: bytes = b"", root: str = ROOT) -> bytes:
    """A request whose connection is closed after its answer; its body is sent as it is."""
    lines = [f"{method} {root}{target} HTTP/1.1", "Host: gate.example:8085", "Connection: close", *fields]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def sized(body: bytes) -> str:
    """The field that says how long a body is."""
    return f"Content-Length: {len(body)}"
