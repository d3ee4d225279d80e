"""The fast path for events does the same as the way through ASGI, byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import anyio
import pytest
import uvicorn
from prometheus_client import generate_latest
from structlog.testing import capture_logs
from structlog.typing import EventDict
from typing_extensions import override
from uvicorn.server import ServerState

from sfn.domain.events import Notification, UndecodableRequest
from sfn.errors import ErrorScope, FatalError, Transient
from sfn.http.secrets import PartyTokens
from sfn.http.senders import Keyring, Senders
from sfn.http.server import VERIFIED_UVICORN, ConnectionLimit, FastPath, HttpServer, ServerConnection
from sfn.limits import BodyMemory
from tests.support.listener import ETL, EVENT, LIMIT, TOKEN, Service, chunk, hooked, request, signers

DATE = (b"date", b"Fri, 27 Nov 2026 12:00:00 GMT")
SOON = 0.05
"""Seconds of each deadline in tests of slow clients."""

Act = Callable[[ServerConnection, "Network", Service], None]
"""A step of a test: data, or whatever else happens to a connection."""


class Network(asyncio.Transport):
    """A transport that stores what a server writes."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 1), "sockname": ("192.0.2.8", 2)})
        self.sent, self.is_paused, self._closed = b"", False, False

    @override
    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    @override
    def is_closing(self) -> bool:
        return self._closed

    @override
    def close(self) -> None:
        self._closed = True

    abort = close

    @override
    def pause_reading(self) -> None:
        self.is_paused = True

    @override
    def resume_reading(self) -> None:
        self.is_paused = False


class Counted(FastPath):
    """A fast path that counts the requests that took it."""

    count = 0

    @override
    def start(self, connection: ServerConnection) -> bool:
        started = super().start(connection)
        self.count += started
        return started


@dataclass
class Outcome:
    """Everything that a client, the inbox and an operator see of a connection, after each step and in the end."""

    sent: list[tuple[bytes, bool, bool]] = field(default_factory=list)
    taken: list[Notification] = field(default_factory=list)
    kept: list[UndecodableRequest] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    memory: int = 0
    total: int = 0
    metrics: list[bytes] = field(default_factory=list)
    logs: list[EventDict] = field(default_factory=list)


def feed(data: bytes) -> Act:
    def received(connection: ServerConnection, _network: Network, _service: Service) -> None:
        if data and connection.parser is not None:
            connection.data_received(data)

    return received


def lose(connection: ServerConnection, network: Network, _service: Service) -> None:
    if connection.parser is not None:
        network.close()
        connection.connection_lost(None)


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


async def outcome(make: Callable[[], Service], steps: Sequence[Act | float], *, fast: bool) -> tuple[Outcome, int]:
    """Return the outcome of steps on one connection, and how many requests took the fast path; a number is a pause."""
    service, network, state = make(), Network(), ServerState()
    application = service.application()
    config = uvicorn.Config(application, interface="asgi3", ws="none", log_config=None, proxy_headers=False)
    config.timeout_keep_alive, config.access_log = ServerConnection.keep_alive_timeout, False
    config.load()
    state.default_headers = [DATE]
    connection = ServerConnection(config, state, {}, asyncio.get_running_loop())
    assert application.events is not None
    path = Counted(application.events)
    connection.access_log, connection.limit = False, ConnectionLimit(8)
    connection.events = path if fast else None
    found = Outcome()
    with capture_logs() as logs:
        connection.connection_made(network)
        for step in steps:
            if isinstance(step, float):
                await anyio.sleep(step)
            else:
                step(connection, network, service)
            await settle()
            found.sent.append((network.sent, network.is_closing(), network.is_paused))
        service.inbox.gate.set()
        await settle()
        lose(connection, network, service)
        await settle()
    assert not state.tasks
    found.sent.append((network.sent, network.is_closing(), network.is_paused))
    found.taken, found.kept, found.memory = service.inbox.taken, service.inbox.kept, service.memory.used
    found.broken = [str(error) for error in service.broken]
    lines = generate_latest(service.metrics.registry).splitlines()
    found.metrics, found.logs = [line for line in lines if line.startswith(b"sfn_")], logs
    found.total = state.total_requests
    return found, path.count


async def compare(steps: Sequence[Act | float | bytes], make: Callable[[], Service] = Service) -> tuple[bytes, int]:
    """Take steps with and without the fast path; return what was sent, and how many requests took the fast path."""
    acts = [feed(step) if isinstance(step, bytes) else step for step in steps]
    expected, none = await outcome(make, acts, fast=False)
    found, count = await outcome(make, acts, fast=True)
    assert found == expected, steps
    assert none == 0
    return found.sent[-1][0], count


def test_fast_path_is_tested_with_the_installed_uvicorn() -> None:
    assert uvicorn.__version__ == VERIFIED_UVICORN


def test_another_uvicorn_has_no_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    assert HttpServer(service.application(), events=service.ingest()).has_fast_path
    monkeypatch.setattr(uvicorn, "__version__", "0.55.0")
    assert not HttpServer(service.application(), events=service.ingest()).has_fast_path


# Single requests: each value of a dimension with each value of each other one.
BEARER = f"Authorization: Bearer {TOKEN}"
DIMENSIONS: dict[str, list[Any]] = {
    "method": ["POST", "GET", "HEAD", "PUT", "OPTIONS", "DELETE", "post"],
    "target": [
        *("/v1/events", "/v1/events?a=1", "/v1/events#a", "/v1/events/", "/v1/%65vents", "http://sfn/v1/events", "*"),
        *("/v1/theirs/namespaces/sales/tables/orders/notifications", "/livez", "//v1/events"),
    ],
    "version": ["HTTP/1.1", "HTTP/1.0", "HTTP/2.0"],
    "credentials": [
        *([BEARER], [], ["Authorization: Bearer wrong"], ["Authorization: Basic abc"], [BEARER, BEARER]),
        *([f"authorization:   bEARER  {TOKEN} "], [f"Authorization: {TOKEN}"], ["Authorization: Bearer \xe9"]),
    ],
    "fields": [
        *([], ["Connection: close"], ["Connection: keep-alive"], ["Expect: 100-continue"], ["Expect: more"]),
        *(["Content-Encoding: gzip"], ["Content-Encoding: identity"], ["Origin: https://example.com"]),
        *(["Content-Type: application/cloudevents+json"], ["Content-Type: application/cloudevents-batch+json"]),
        *(["Content-Type: application/cloudevents+avro"], ["Content-Type: application/json"], ["X-Polaris-Event: x"]),
        *(["ce-specversion: 1.0", "ce-id: 1", "ce-source: x", "ce-type: y"], ["Connection: Upgrade", "Upgrade: h2c"]),
        *(["X-Empty:"], ["X-Long: " + "x" * 70_000], ["No colon"], ["Content-Length: 5"]),
    ],
    "body": [
        *(EVENT, b"[" + EVENT + b"," + EVENT.replace(b"e1", b"e2") + b"]", b"", b"{", b"[]", b"{}", b"\xff", b"null"),
        *(EVENT.replace(b"sales", b"scratch"), EVENT.replace(b'"orders"', b"7"), EVENT.replace(b"orders", b"\\u00e9")),
        *(EVENT.replace(b"theirs", b"unknown"), b"x" * LIMIT, b"x" * (LIMIT + 1), b" " * 70_000, b"[" * 2_000),
    ],
    "framing": ["length", "chunked", "both", "none", "negative", "words", "short", "long", "twice"],
}
PLAIN = {name: values[0] for name, values in DIMENSIONS.items()}


def framed(framing: str, body: bytes) -> tuple[list[str], bytes]:
    length = f"Content-Length: {len(body)}"
    match framing:
        case "chunked" | "both":
            encoding = "Transfer-Encoding: chunked"
            return [encoding, length] if framing == "both" else [encoding], chunk(body) * bool(body) + b"0\r\n\r\n"
        case "none":
            return [], body
        case "negative" | "words":
            return [f"Content-Length: {-len(body) if framing == 'negative' else 'ten'}"], body
        case "short" | "long":
            return [f"Content-Length: {max(0, len(body) + (3 if framing == 'long' else -3))}"], body
        case _:
            return [length] * (1 + (framing == "twice")), body


def assembled(case: dict[str, Any]) -> bytes:
    fields, body = framed(case["framing"], case["body"])
    line = f"{case['method']} {case['target']} {case['version']}"
    return (
        "\r\n".join([line, "Host: sfn", *case["credentials"], *case["fields"], *fields, "", ""]).encode("latin-1")
        + body
    )


def pairs() -> Iterator[dict[str, Any]]:
    for one, other in combinations(DIMENSIONS, 2):
        for values in product(DIMENSIONS[one], DIMENSIONS[other]):
            yield PLAIN | dict(zip((one, other), values, strict=True))


@pytest.mark.slow
async def test_every_pair_of_unusual_properties_has_the_same_outcome() -> None:
    pipelined = request(body=EVENT.replace(b"e1", b"e9"))
    counts = [(await compare([assembled(case) + pipelined]))[1] for case in pairs()]
    assert len(counts) > 2_000
    assert sum(counts) > 500


NOT_PLAIN = {
    "method": DIMENSIONS["method"][1:],
    "target": DIMENSIONS["target"][1:],
    "version": DIMENSIONS["version"][1:],
    "fields": [["Connection: close"], ["Expect: 100-continue"], ["No colon"]],
    "framing": ["chunked", "both", "none", "negative", "words"],
}


async def test_only_plain_requests_take_the_fast_path() -> None:
    assert (await compare([assembled(PLAIN)]))[1] == 1
    for name, values in NOT_PLAIN.items():
        for value in values:
            assert (await compare([assembled(PLAIN | {name: value})]))[1] == 0, value


# Data in parts.
async def test_request_in_two_parts_has_the_same_outcome_wherever_it_is_split() -> None:
    sent = request("Content-Type: application/json", body=EVENT)
    for at in range(1, len(sent)):
        assert (await compare([sent[:at], sent[at:]]))[1] == 1
    assert (await compare([sent[at : at + 1] for at in range(len(sent))]))[1] == 1


async def test_pipelined_requests_have_the_same_outcome_wherever_they_are_split() -> None:
    plain, health = request(body=EVENT), b"GET /livez HTTP/1.1\r\nHost: sfn\r\n\r\n"
    for sent in (plain + health + plain, health + plain, plain + request("Connection: close", body=b"{") + plain):
        for at in range(0, len(sent), 7):
            await compare([sent[:at], sent[at:]])


@pytest.mark.parametrize("size", [9_000, 1 << 20], ids=["in parts", "at once"])
async def test_body_above_the_high_water_mark_has_the_same_outcome(size: int) -> None:
    body = b"[" + b",".join(EVENT.replace(b"e1", b"%d" % number) for number in range(900)) + b"]"
    sent = request(body=body)
    steps = [sent[at : at + size] for at in range(0, len(sent), size)]
    answer, count = await compare(steps, lambda: Service(limit=1 << 20))
    assert answer.startswith(b"HTTP/1.1 202")
    assert count == 1


# What happens to a connection meanwhile.
def close_gate(_connection: ServerConnection, _network: Network, service: Service) -> None:
    service.inbox.gate = anyio.Event()


def open_gate(_connection: ServerConnection, _network: Network, service: Service) -> None:
    service.inbox.gate.set()


def drain(connection: ServerConnection, _network: Network, service: Service) -> None:
    service.readiness.drain()
    connection.end()


EVENTS: dict[str, Act] = {
    "nothing": lambda _connection, _network, _service: None,
    "lost": lose,
    "end of file": lambda connection, network, _service: connection.eof_received() or network.close(),
    "shutdown": lambda connection, _network, _service: connection.shutdown(),
    "drain": drain,
    "writing paused": lambda connection, _network, _service: connection.pause_writing(),
    "another request": feed(request(body=EVENT.replace(b"e1", b"e2"))),
    "nonsense": feed(b"\0nonsense\r\n\r\n"),
    "part of a head": feed(b"POST /v1/ev"),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("moment", ["before", "in the head", "in the body", "in the inbox", "after"])
async def test_event_of_a_connection_has_the_same_outcome(event: str, moment: str) -> None:
    sent = request(body=EVENT)
    at = {"before": 0, "in the head": 30, "in the body": len(sent) - 5}.get(moment, len(sent))
    steps: list[Act | float | bytes] = [sent[:at], EVENTS[event], sent[at:]]
    if moment == "in the inbox":
        steps = [close_gate, *steps, open_gate]
    steps.append(lambda connection, _network, _service: connection.resume_writing())
    await compare([*steps, request(body=EVENT.replace(b"e1", b"e3"))])


@pytest.mark.parametrize("head", [1, 60, 125], ids=["line", "fields", "body"])
@pytest.mark.parametrize("earlier", [b"", request(body=EVENT)], ids=["first", "second"])
async def test_slow_client_has_the_same_outcome(monkeypatch: pytest.MonkeyPatch, head: int, earlier: bytes) -> None:
    monkeypatch.setattr(ServerConnection, "head_timeout", SOON)
    sent = request(body=EVENT.replace(b"e1", b"e2"))
    steps = [*([earlier] if earlier else []), sent[:head], SOON / 2, sent[head : head + 1], 2 * SOON, sent[head + 1 :]]
    answer, _ = await compare(steps, lambda: Service(deadline=SOON))
    assert b"HTTP/1.1 408" in answer


async def test_head_that_began_before_a_response_has_the_same_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerConnection, "head_timeout", SOON)
    sent = request(body=EVENT)
    answer, count = await compare([close_gate, sent + sent[:30], open_gate, 3 * SOON])
    assert (answer.count(b"HTTP/1.1 202"), answer.count(b"HTTP/1.1 408"), count) == (1, 1, 1)


async def test_idle_connection_is_closed_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerConnection, "keep_alive_timeout", 4 * SOON)
    sent = request(body=EVENT)
    await compare([sent, 3 * SOON, sent, 3 * SOON, 2 * SOON])
    monkeypatch.setattr(ServerConnection, "head_timeout", 2 * SOON)
    await compare([sent, 3 * SOON, sent[:9], 3 * SOON])


# Other senders and states.
def open_service(memory: int) -> Callable[[], Service]:
    return lambda: Service(senders=Senders(Keyring({}), {}, ETL), memory=BodyMemory(memory))


def failing(error: Exception) -> Callable[[], Service]:
    def make() -> Service:
        service = Service()
        service.inbox.failure = error
        return service

    return make


def limited() -> Service:
    keyring = Keyring({"senders.etl": PartyTokens({"main": TOKEN})})
    return Service(senders=Senders(keyring, {"senders.etl": ETL}, rates={"etl": 10}, monotonic=lambda: 0.0))


SERVICES: dict[str, Callable[[], Service]] = {
    "open": open_service(1 << 20),
    "open, without memory": open_service(50),
    "signed": lambda: Service(senders=signers()),
    "rate limit": limited,
    "event-only": lambda: Service(told=frozenset({"prod"})),
    "unavailable": failing(Transient("db", scope=ErrorScope.INBOX, expected="a", found="b", retry_after=2.2)),
    "fatal": failing(FatalError("db", expected="a", found="b")),
    "defect": failing(ZeroDivisionError("a defect")),
    "cancelled": failing(asyncio.CancelledError()),  # type: ignore[arg-type]
}
REQUESTS = {
    "token": request(body=EVENT),
    "none": request(body=EVENT, token=None),
    "page": request("Origin: https://example.com", body=EVENT, token=None),
    "signed": hooked(),
    "wrong signature": request("webhook-id: a", "webhook-timestamp: 1", body=EVENT, token=None),
    "compressed": request("Content-Encoding: gzip", body=EVENT, token=None),
    "invalid": request(body=b"{"),
    "large": request(body=b"x" * (LIMIT + 1), token=None),
}


@pytest.mark.parametrize("state", SERVICES)
@pytest.mark.parametrize("kind", REQUESTS)
async def test_each_sender_and_each_failure_has_the_same_outcome(state: str, kind: str) -> None:
    sent = REQUESTS[kind]
    await compare([sent, sent, sent[:-4], sent[-4:]], SERVICES[state])
