"""The fast path for events does the same as the way through ASGI, byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from itertools import combinations, product
from typing import Any

import anyio
import pytest
import uvicorn
from structlog.testing import capture_logs
from typing_extensions import override
from uvicorn.server import ServerState

from sfn.errors import ErrorScope, FatalError, Transient
from sfn.http.secrets import PartyTokens
from sfn.http.senders import Keyring, Senders
from sfn.http.server import VERIFIED_UVICORN, ConnectionLimit, FastPath, HttpServer, ServerConnection
from sfn.limits import BodyMemory
from tests.simulation.loop import SimulatedLoop
from tests.support.listener import ETL, EVENT, LIMIT, TOKEN, Service, chunk, hooked, request, signers

DATE = (b"date", b"Fri, 27 Nov 2026 12:00:00 GMT")
SOON = 1.0
"""Seconds of each deadline in tests of slow clients."""

Step = str | float | bytes
"""A step of a test: an act on the connection, a pause in seconds, or data."""


class Network(asyncio.Transport):
    """A transport that stores what a server writes."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 1), "sockname": ("192.0.2.8", 2)})
        self.sent, self.closed, self.paused, self.unsent = b"", False, False, 9

    @override
    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    @override
    def is_closing(self) -> bool:
        return self.closed

    @override
    def close(self) -> None:
        self.closed = True

    @override
    def abort(self) -> None:
        self.sent, self.closed = self.sent + b"aborted", True

    @override
    def get_write_buffer_size(self) -> int:
        return self.unsent

    @override
    def pause_reading(self) -> None:
        self.paused = True

    @override
    def resume_reading(self) -> None:
        self.paused = False


class Counted(FastPath):
    """A fast path that counts the requests that took it."""

    count = 0

    @override
    def start(self, connection: ServerConnection) -> bool:
        self.count += (started := super().start(connection))
        return started


def act(step: str, connection: ServerConnection, network: Network, service: Service) -> None:
    match step:
        case "lose" if connection.parser is not None:
            network.close()
            connection.connection_lost(None)
        case "close the inbox":
            service.inbox.gate = anyio.Event()
        case "open the inbox":
            service.inbox.gate.set()
        case "drain":
            service.readiness.drain()
            connection.end()
        case "close":
            network.close()
        case "shut down":
            connection.shutdown()
        case "pause writing":
            connection.pause_writing()
        case "resume writing":
            connection.resume_writing()
        case "take data":
            network.unsent -= 1
        case _:
            assert step in {"nothing", "lose"}


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


async def outcome(make: Callable[[], Service], steps: Sequence[Step], *, fast: bool) -> tuple[list[Any], int]:
    """Return all that client, inbox and operator see, and how many requests took the fast path; a number is a pause."""
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
    seen: list[Any] = []
    with capture_logs() as logs:
        connection.connection_made(network)
        for step in (*steps, "open the inbox", "lose"):
            if isinstance(step, float):
                await asyncio.sleep(step)
            elif isinstance(step, str):
                act(step, connection, network, service)
            elif step and connection.parser is not None:
                connection.data_received(step)
            await settle()
            seen.append((network.sent, network.closed, network.paused))
    assert not state.tasks
    seen += [service.inbox.taken, service.inbox.kept, service.memory.used, state.total_requests, logs]
    seen += [str(error) for error in service.broken]
    metrics = service.metrics.registry.collect()
    seen += [sample for metric in metrics if metric.name.startswith("sfn_") for sample in metric.samples]
    return [network.sent, *seen], path.count


def compare(steps: Sequence[Step], make: Callable[[], Service] = Service) -> tuple[bytes, int]:
    """Take steps with and without the fast path; return what was sent, and how many requests took the fast path."""
    found = []
    for is_fast in (False, True):
        with closing(SimulatedLoop()) as loop:
            found.append(loop.run_until_complete(outcome(make, steps, fast=is_fast)))
    (expected, _), (seen, count) = found
    assert seen == expected, steps
    return seen[0], count


def test_fast_path_is_off_for_another_version_than_the_installed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    with capture_logs() as logs:
        HttpServer(service.application(), events=service.ingest())
        assert (logs, uvicorn.__version__) == ([], VERIFIED_UVICORN)
        monkeypatch.setattr(uvicorn, "__version__", "0.55.0")
        HttpServer(service.application(), events=service.ingest())
    assert [(entry["event"], entry["uvicorn"]) for entry in logs] == [("fast path for events is off", "0.55.0")]


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


def assembled(case: dict[str, Any]) -> bytes:
    framing, body = str(case["framing"]), bytes(case["body"])
    size = len(body)
    length = {"negative": -1, "words": "ten", "short": max(0, size - 3), "long": size + 3}.get(framing, size)
    fields = [f"Content-Length: {length}"] * {"chunked": 0, "none": 0, "twice": 2}.get(framing, 1)
    if framing in {"chunked", "both"}:
        fields, body = ["Transfer-Encoding: chunked", *fields], (chunk(body) if body else b"") + b"0\r\n\r\n"
    lines = [f"{case['method']} {case['target']} {case['version']}", "Host: sfn", *case["credentials"], *case["fields"]]
    return "\r\n".join([*lines, *fields, "", ""]).encode("latin-1") + body


@pytest.mark.slow
def test_every_pair_of_unusual_properties_has_the_same_outcome() -> None:
    pipelined, counts = request(body=EVENT.replace(b"e1", b"e9")), []
    count = cache(lambda sent: compare([sent])[1])  # one unusual property is in the pairs of every other one
    for one, other in combinations(DIMENSIONS, 2):
        for values in product(DIMENSIONS[one], DIMENSIONS[other]):
            case = PLAIN | dict(zip((one, other), values, strict=True))
            counts.append(count(assembled(case) + pipelined))
    assert len(counts) > 2_000
    assert sum(counts) > 500


def test_only_plain_requests_take_the_fast_path() -> None:
    assert compare([assembled(PLAIN)])[1] == 1
    unusual = {name: DIMENSIONS[name][1:] for name in ("method", "target", "version")}
    unusual["fields"] = [["Connection: close"], ["Expect: 100-continue"], ["No colon"]]
    unusual["framing"] = ["chunked", "both", "none", "negative", "words"]
    for name, values in unusual.items():
        for value in values:
            assert compare([assembled(PLAIN | {name: value})])[1] == 0, value


# Data in parts.
def test_request_in_two_parts_has_the_same_outcome_wherever_it_is_split() -> None:
    sent = request("Content-Type: application/json", body=EVENT)
    for at in range(1, len(sent)):
        assert compare([sent[:at], sent[at:]])[1] == 1
    assert compare([sent[at : at + 1] for at in range(len(sent))])[1] == 1


def test_pipelined_requests_have_the_same_outcome_wherever_they_are_split() -> None:
    plain, health = request(body=EVENT), b"GET /livez HTTP/1.1\r\nHost: sfn\r\n\r\n"
    for sent in (plain + health + plain, health + plain, plain + request("Connection: close", body=b"{") + plain):
        for at in range(0, len(sent), 7):
            compare([sent[:at], sent[at:]])


@pytest.mark.parametrize("size", [9_000, 1 << 20], ids=["in parts", "at once"])
def test_body_above_the_high_water_mark_has_the_same_outcome(size: int) -> None:
    body = b"[" + b",".join(EVENT.replace(b"e1", b"%d" % number) for number in range(900)) + b"]"
    sent = request(body=body)
    answer, count = compare([sent[at : at + size] for at in range(0, len(sent), size)], lambda: Service(limit=1 << 20))
    assert answer.startswith(b"HTTP/1.1 202")
    assert count == 1


# What happens to a connection meanwhile.
@pytest.mark.parametrize(
    "event",
    [
        *("nothing", "lose", "close", "shut down", "drain", "pause writing"),
        *(request(body=EVENT.replace(b"e1", b"e2")), b"\0nonsense\r\n\r\n", b"POST /v1/ev"),
    ],
)
@pytest.mark.parametrize("at", [0, 30, 120, 1_000])
@pytest.mark.parametrize("first", ["nothing", "close the inbox"])
def test_event_of_a_connection_has_the_same_outcome(event: Step, at: int, first: str) -> None:
    sent, later = request(body=EVENT), request(body=EVENT.replace(b"e1", b"e3"))
    compare([first, sent[:at], event, sent[at:], "open the inbox", "resume writing", later])


@pytest.mark.parametrize("head", [1, 60, 125], ids=["line", "fields", "body"])
@pytest.mark.parametrize("earlier", [b"", request(body=EVENT)], ids=["first", "second"])
def test_slow_client_has_the_same_outcome(monkeypatch: pytest.MonkeyPatch, head: int, earlier: bytes) -> None:
    monkeypatch.setattr(ServerConnection, "head_timeout", SOON)
    sent = request(body=EVENT.replace(b"e1", b"e2"))
    steps: list[Step] = [earlier, sent[:head], SOON / 2, sent[head : head + 1], 2 * SOON, sent[head + 1 :]]
    answer, _ = compare(steps, lambda: Service(deadline=SOON))
    assert b"HTTP/1.1 408" in answer


def test_head_that_began_before_a_response_has_the_same_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerConnection, "head_timeout", SOON)
    sent = request(body=EVENT)
    answer, count = compare(["close the inbox", sent + sent[:30], "open the inbox", 3 * SOON])
    assert (answer.count(b"HTTP/1.1 202"), answer.count(b"HTTP/1.1 408"), count) == (1, 1, 1)


ALMOST = ServerConnection.write_timeout - 1
STALLED: dict[str, list[Step]] = {
    "open": ["pause writing", ALMOST, "resume writing", 2 * ALMOST, "pause writing", ALMOST, "take data", ALMOST],
    "closed": ["open the inbox", ALMOST, "take data", ALMOST],
    "closed after a pause": ["open the inbox", "pause writing", "resume writing", ALMOST],
}


@pytest.mark.parametrize("steps", STALLED.values(), ids=STALLED)
def test_connection_is_aborted_after_a_client_takes_no_data_for_the_write_timeout(steps: list[Step]) -> None:
    steps = ["close the inbox", request("Connection: close", body=EVENT), *steps, 3.0]
    with closing(SimulatedLoop()) as loop:
        (_, *seen), _ = loop.run_until_complete(outcome(Service, steps, fast=True))
    assert [b"aborted" in sent for sent, *_ in seen[: len(steps)]] == [False] * (len(steps) - 1) + [True]


def test_request_with_a_malformed_body_ends_at_once() -> None:
    steps: list[Step] = [request("Transfer-Encoding: chunked"), b"zz\r\n", 2 * SOON]
    with closing(SimulatedLoop()) as loop:
        (sent, *seen), _ = loop.run_until_complete(outcome(lambda: Service(deadline=SOON), steps, fast=True))
    assert sent.startswith(b"HTTP/1.1 400")
    assert "events rejected" not in str(seen)


def test_idle_connection_is_closed_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerConnection, "keep_alive_timeout", 4 * SOON)
    sent = request(body=EVENT)
    compare([sent, 3 * SOON, sent, 3 * SOON, 2 * SOON])
    monkeypatch.setattr(ServerConnection, "head_timeout", 2 * SOON)
    compare([sent, 3 * SOON, sent[:9], 3 * SOON])


# Other senders and states.
def service(failure: BaseException | None = None, **more: Any) -> Service:  # noqa: ANN401 - arguments of `Service`
    made = Service(**more)
    made.inbox.failure = failure  # type: ignore[assignment]
    return made


def limited() -> Senders:
    keyring = Keyring({"senders.etl": PartyTokens({"main": TOKEN})})
    return Senders(keyring, {"senders.etl": ETL}, rates={"etl": 10}, monotonic=lambda: 0.0)


SERVICES: dict[str, Callable[[], Service]] = {
    "open": lambda: service(senders=Senders(Keyring({}), {}, ETL)),
    "without memory": lambda: service(senders=Senders(Keyring({}), {}, ETL), memory=BodyMemory(50)),
    "signed": lambda: service(senders=signers()),
    "rate limit": lambda: service(senders=limited()),
    "event-only": lambda: service(told=frozenset({"prod"})),
    "unavailable": lambda: service(Transient("", scope=ErrorScope.INBOX, expected="", found="", retry_after=2.2)),
    "fatal": lambda: service(FatalError("db", expected="a", found="b")),
    "defect": lambda: service(ZeroDivisionError("a defect")),
    "cancelled": lambda: service(asyncio.CancelledError()),
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
def test_each_sender_and_each_failure_has_the_same_outcome(state: str, kind: str) -> None:
    sent = REQUESTS[kind]
    compare([sent, sent, sent[:-4], sent[-4:]], SERVICES[state])
