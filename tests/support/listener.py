"""A listener on a free port with an inbox in memory, a raw connection to it, senders that sign, and operators."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import anyio
import httpx
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.tls import TLSAttribute, TLSStream
from fastapi import APIRouter
from typing_extensions import override

from sfn.admin.app import routes
from sfn.admin.replicas import Replicas
from sfn.admin.routes import AdminContext, ConfiguredCatalog, ProcessInfo
from sfn.catalogs.activity import CatalogAnswers
from sfn.domain.events import InboxMessage, Notification, PutResult, UndecodableRequest
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import FatalError, Rejected
from sfn.formats.event import Sender
from sfn.http.app import ListenerApplication, build_app
from sfn.http.ingest import EventFilter, EventsEndpoint, Readiness
from sfn.http.recent_requests import RecentRequests
from sfn.http.responses import PROBLEM_MEDIA_TYPE, AsgiApplication
from sfn.http.secrets import AcceptedToken, AuthScheme, PartyTokens, WatchedTokenFile
from sfn.http.senders import OPERATORS_PARTY, Keyring, OperatorAuth, Senders
from sfn.http.server import Certificate, HttpServer
from sfn.http.signature import HmacSha256, SignatureScheme, StandardWebhooks, sign
from sfn.inbox.model import AdminCommand
from sfn.limits import BodyLimits, BodyMemory
from sfn.publish.policy import TableFilter
from sfn.telemetry.logs import RejectionLog
from sfn.telemetry.metrics import Metrics
from sfn.worker.capacity import CircuitBreakerState
from sfn.worker.catalog_now import CatalogNow, CatalogNowState
from sfn.worker.sweep import SweepReport
from tests.promises.inboxes import TERMS, Ground
from tests.support.clock import HandClock
from tests.support.memory_inbox import MemoryInbox

LIMIT = 4_096
DEADLINE = 0.4
TOKEN = "a-token-for-tests"  # noqa: S105 - it opens nothing
ETL = Sender("etl", {"theirs": "prod", "other": "dev", "again": "prod"})
EVENT = b'{"namespace":["sales"],"name":"orders","catalog":"theirs","event_id":"e1"}'
CHUNKED = "Transfer-Encoding: chunked"


class Inbox:
    """An `Intake` in memory: it can be made to wait, to fail, and it knows duplicates."""

    def __init__(self) -> None:
        self.taken: list[Notification] = []
        self.kept: list[UndecodableRequest] = []
        self.failure: Exception | None = None
        self.entered = anyio.Event()
        self.gate = anyio.Event()
        self.gate.set()

    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        self.entered.set()
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        known = {(hint.sender, hint.event_id) for hint in self.taken if hint.event_id is not None}
        hints = [note for note in messages if isinstance(note, Notification)]
        new = [hint for hint in hints if (hint.sender, hint.event_id) not in known]
        self.taken.extend(new)
        self.kept.extend(note for note in messages if isinstance(note, UndecodableRequest))
        return PutResult(len(new), len(hints) - len(new))


def enrolled(tokens: PartyTokens) -> Senders:
    """One sender, with these tokens."""
    return Senders(Keyring({"senders.etl": tokens}), {"senders.etl": ETL})


def covers_all_but_scratch(table: TableIdentifier) -> bool:
    return table.namespace[:1] != ("scratch",)


@dataclass
class Service:
    """What a test listens with."""

    inbox: Inbox = field(default_factory=Inbox)
    readiness: Readiness = field(default_factory=Readiness)
    senders: Senders = field(default_factory=lambda: enrolled(PartyTokens({"main": TOKEN})))
    deadline: float = 60.0
    limit: int = LIMIT
    broken: list[FatalError] = field(default_factory=list)
    metrics: Metrics = field(default_factory=lambda: Metrics(version="1.2.3", catalogs=["prod", "dev"]))
    told: frozenset[str] = frozenset()
    memory: BodyMemory = field(default_factory=BodyMemory)
    recent: RecentRequests = field(default_factory=RecentRequests)

    def ingest(self) -> EventsEndpoint:
        return EventsEndpoint(
            self.inbox,
            self.senders,
            self.readiness,
            limits=BodyLimits(self.limit, self.deadline),
            event_filter=EventFilter(covers_all_but_scratch, self.told),
            on_fatal=self.broken.append,
            metrics=self.metrics.events,
            memory=self.memory,
            recent=self.recent,
        )

    def application(self) -> ListenerApplication:
        return build_app(self.ingest(), self.readiness, version="1.2.3", on_fatal=self.broken.append)


@dataclass(frozen=True)
class Reply:
    """A response as it came over the wire."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.content)


class Wire:
    """One connection, byte for byte."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._buffer = BufferedByteReceiveStream(stream)

    @property
    def certificate(self) -> bytes | None:
        """The one that the server showed, in DER."""
        return self._stream.extra(attribute=TLSAttribute.peer_certificate_binary)

    async def send(self, *parts: bytes) -> None:
        await self._stream.send(b"".join(parts))

    async def reply(self, *, headless: bool = False) -> Reply:
        """The next response; `headless` for one to HEAD, whose length speaks of what is not there."""
        with anyio.fail_after(10):
            head = await self._buffer.receive_until(b"\r\n\r\n", 65_536)
            line, *fields = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
            length = 0 if headless or line.split(" ")[1] == "204" else int(headers["content-length"])
            content = await self._buffer.receive_exactly(length) if length else b""
        return Reply(int(line.split(" ")[1]), headers, content)

    async def head(self) -> bytes:
        """The next head alone, with the empty line after it."""
        with anyio.fail_after(10):
            return await self._buffer.receive_until(b"\r\n\r\n", 65_536) + b"\r\n\r\n"

    async def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        received = bytearray()
        with anyio.fail_after(10):
            async for part in self._buffer:
                received += part
        return bytes(received)

    async def skip(self) -> int:
        """How many bytes come until the server closes the connection."""
        with anyio.fail_after(60):
            return sum([len(part) async for part in self._buffer])

    async def nothing_for(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds) as scope:
            await self._buffer.receive(1)
        return scope.cancelled_caught

    async def ended(self) -> bool:
        """Whether the server closes the connection, without one more byte."""
        try:
            with anyio.fail_after(10):
                await self._buffer.receive(1)
        except anyio.EndOfStream:
            return True
        return False


def request(
    *fields: str, method: str = "POST", path: str = "/v1/events", body: bytes | None = None, token: str | None = TOKEN
) -> bytes:
    """A request; with a body it has its true length."""
    lines = [f"{method} {path} HTTP/1.1", "Host: sfn", *fields]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


@asynccontextmanager
async def connected(port: int, trust: ssl.SSLContext | None = None) -> AsyncIterator[Wire]:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        yield Wire(stream if trust is None else await TLSStream.wrap(stream, hostname="localhost", ssl_context=trust))


@dataclass(frozen=True)
class Open:
    """Opens connections to a server.

    Attributes:
        port: where it listens.
        trust: for TLS.
    """

    port: int
    trust: ssl.SSLContext | None

    def __call__(self) -> AbstractAsyncContextManager[Wire]:
        return connected(self.port, self.trust)


@asynccontextmanager
async def listening(
    application: AsgiApplication,
    certificate: Certificate | None = None,
    trust: ssl.SSLContext | None = None,
    most: int | None = None,
) -> AsyncIterator[Open]:
    """A server; what is yielded opens a connection to it, over TLS where a certificate is to be shown and trusted.

    Args:
        most: connections that it takes at a time.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    events = application.events if isinstance(application, ListenerApplication) else None
    server = HttpServer(application, certificate, most, events)
    server.config.timeout_graceful_shutdown = 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(server.serve, sockets=[listener]))
        try:
            # The socket listens already: who connects before the server is there waits for it.
            yield Open(listener.getsockname()[1], trust)
        finally:
            server.stop()


async def answer(connect: Open, sent: bytes) -> Reply:
    async with connect() as wire:
        await wire.send(sent)
        return await wire.reply()


async def drip(wire: Wire, part: bytes, every: float) -> None:
    """Send a part now and then, until the other side has enough."""
    try:
        while True:
            await wire.send(part)
            await anyio.sleep(every)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


def assert_problem(reply: Reply, status: int) -> None:
    assert reply.status == status
    assert reply.headers["content-type"] == PROBLEM_MEDIA_TYPE
    assert reply.json["status"] == status
    assert reply.json["type"] == "about:blank"
    assert reply.json["title"]
    assert reply.json["detail"]


NOW: Final = datetime(2026, 11, 24, 12, tzinfo=UTC)
WEBHOOK: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ANOTHER: Final = "whsec_b2YgdHdlbnR5LWZvdXIgYnl0ZXM6IGJi"
TEXT: Final = "a text of sixteen"
MANNERS: Final[Mapping[AuthScheme, SignatureScheme]] = {
    AuthScheme.STANDARD_WEBHOOKS: StandardWebhooks(),
    AuthScheme.HMAC_SHA256: HmacSha256(b"x-polaris-signature-256"),
}
STANDARD, HMAC = MANNERS
CATALOGS: Final = {"hook": {"theirs": "prod", "other": "dev"}, "polaris": {"theirs": "dev"}, "etl": {"theirs": "prod"}}
"""Of each sender: two that sign, and one that shows a token."""


@dataclass(slots=True)
class Clock:
    """It goes when it is told to."""

    at: datetime = NOW

    def now(self) -> datetime:
        return self.at


def signers(
    file: WatchedTokenFile | None = None,
    *,
    clock: Clock | None = None,
    rates: Mapping[str, int] | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Senders:
    """All three.

    Args:
        file: instead of the secret of `hook`.
    """
    keyring = Keyring(
        {
            "hook": PartyTokens({"main": WEBHOOK} if file is None else {}, file, STANDARD),
            "polaris": PartyTokens({"main": TEXT}, scheme=HMAC),
            "etl": PartyTokens({"main": TOKEN}),
        }
    )
    enrolled = {name: Sender(name, catalogs) for name, catalogs in CATALOGS.items()}
    signing = {"hook": MANNERS[STANDARD], "polaris": MANNERS[HMAC]}
    return Senders(keyring, enrolled, signing=signing, rates=rates, clock=clock or Clock(), monotonic=monotonic)


def fields(
    body: bytes = EVENT,
    secret: str = WEBHOOK,
    scheme: AuthScheme = STANDARD,
    *,
    message: str = "msg_1",
    off: float = 0,
    now: datetime = NOW,
) -> dict[str, str]:
    """The headers that sign a body.

    Args:
        off: seconds that the signing side's clock is ahead.
    """
    key = AcceptedToken.from_secret("", secret, scheme).key
    assert key is not None
    return sign(MANNERS[scheme], key, body, message, now + timedelta(seconds=off))


def said(headers: Mapping[str, str]) -> list[str]:
    """Headers as they are written."""
    return [f"{name}: {value}" for name, value in headers.items()]


def hooked(body: bytes = EVENT, *more: str, path: str = "/v1/events", message: str = "msg_1") -> bytes:
    """A request that `hook` signed."""
    return request(*said(fields(body, message=message)), *more, path=path, body=body, token=None)


OPERATOR = {"Authorization": "Bearer an-operators-token"}


class Desk(MemoryInbox):
    """An inbox that can be made to fail an operator."""

    failure: Exception | None = None

    @override
    async def release(self, catalog: str, command: AdminCommand) -> int:
        if self.failure is not None:
            raise self.failure
        return await super().release(catalog, command)


@dataclass
class Office:
    """A process as its operators see it."""

    clock: HandClock = field(default_factory=HandClock)
    sweeps: dict[str, SweepReport] = field(default_factory=dict)
    breakers: list[CircuitBreakerState] = field(default_factory=list)
    reasons: tuple[str, ...] = ()
    answers: dict[str, CatalogAnswers] = field(default_factory=dict)
    understood: list[Notification] | None = None
    interest: TableFilter = field(default_factory=TableFilter)
    answer: CatalogNow = CatalogNow(CatalogNowState.NOT_FOUND)

    def __post_init__(self) -> None:
        self.inbox = Desk(TERMS, self.clock)
        self.ground = Ground(self.inbox, self.clock)
        self.process = ProcessInfo(
            version="1.2.3",
            started_at=self.clock.now(),
            not_ready_reasons=lambda: self.reasons,
            catalog_ids=lambda: {"prod": "c1"},
            catalog_answers=lambda: self.answers,
            breakers=lambda: self.breakers,
            sweep_reports=lambda: self.sweeps,
            catalog_now=self._catalog_now,
            recent=RecentRequests(self.clock, ["etl"]),
        )
        self.operators = OperatorAuth(
            Keyring({OPERATORS_PARTY: PartyTokens({"main": "an-operators-token"})}), RejectionLog(OPERATORS_PARTY)
        )

    def context(self) -> AdminContext:
        """What the routes and pages of operators work with."""
        catalogs = {
            "prod": ConfiguredCatalog("rest", interest=self.interest),
            "dev.eu": ConfiguredCatalog("rest"),
            "mute": ConfiguredCatalog("events", is_sweepable=False),
        }
        replicas = Replicas(self.inbox, self.process, self.clock, is_shared=False)
        return AdminContext(self.inbox, replicas, catalogs, self._understand, self.clock)

    def router(self, keyring: Keyring | None = None) -> APIRouter:
        """The routes, for whoever holds the operators' token."""
        operators = self.operators if keyring is None else OperatorAuth(keyring, RejectionLog(OPERATORS_PARTY))
        return routes(self.context(), operators.authenticate)

    async def _catalog_now(self, _: TableIdentifier) -> CatalogNow:
        return self.answer

    def _understand(self, event: UndecodableRequest) -> Sequence[Notification]:
        if self.understood is None:
            raise Rejected("#", status=415, expected="an event in a known format", found="something else")
        return self.understood


@asynccontextmanager
async def client(service: Service, *routers: APIRouter) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the listener's application with more routes."""
    app = build_app(
        service.ingest(), service.readiness, version="1.2.3", on_fatal=service.broken.append, routers=routers
    )
    # As a server does: an error that was answered is raised again, to be logged.
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://sfn") as client:
        yield client


@asynccontextmanager
async def operating(office: Office) -> AsyncIterator[httpx.AsyncClient]:
    """An operator's client."""
    async with client(Service(), office.router()) as operator:
        operator.headers.update(OPERATOR)
        yield operator


async def got(client: httpx.AsyncClient, path: str, **params: str | int | list[str]) -> Any:  # noqa: ANN401 - JSON
    """The answer to a question."""
    reply = await client.get(path, params=params)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def posted(client: httpx.AsyncClient, path: str, content: object = None) -> Any:  # noqa: ANN401 - JSON
    """The answer to an order."""
    reply = await client.post(path, json=content)
    assert reply.status_code in {200, 202}, reply.text
    return reply.json()
