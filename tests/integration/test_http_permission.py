"""The handshake of CloudEvents' webhooks: whether somebody may send at all, and how often."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest
from structlog.testing import capture_logs

from sfn.formats.event import Sender
from sfn.http.senders import Keyring, Senders, anonymous_senders
from tests.support.listener import EVENT, Open, Reply, Service, answer, assert_problem, listening, request, signers

ORIGIN = "eventemitter.example.com"
POLARIS = "/v1/theirs/namespaces/sales/tables/orders/notifications"


@pytest.fixture
def service() -> Service:
    return Service(senders=signers())


@pytest.fixture
async def connect(service: Service) -> AsyncIterator[Open]:
    async with listening(service.application()) as connect:
        yield connect


async def asked(connect: Open, *fields: str, path: str = "/v1/events") -> Reply:
    return await answer(connect, request(*fields, method="OPTIONS", path=path, token=None))


@pytest.mark.parametrize("more", [(), ("WebHook-Request-Rate: 120",), ("WebHook-Request-Callback: https://x/?k=1",)])
async def test_an_origin_may_send_and_any_number_of_requests(connect: Open, more: tuple[str, ...]) -> None:
    reply = await asked(connect, f"WebHook-Request-Origin: {ORIGIN}", *more)
    assert (reply.status, reply.content) == (200, b"")
    assert reply.headers["webhook-allowed-origin"] == ORIGIN
    assert reply.headers["webhook-allowed-rate"] == "*"
    assert reply.headers["allow"] == "POST, OPTIONS"


@pytest.mark.parametrize(("rates", "rate"), [({"etl": 600}, "600"), ({"etl": 600, "hook": 60, "polaris": 90}, "60")])
async def test_the_rate_is_the_least_that_a_sender_has(rates: Mapping[str, int], rate: str) -> None:
    async with listening(Service(senders=signers(rates=rates)).application()) as connect:
        reply = await asked(connect, f"WEBHOOK-REQUEST-ORIGIN: {ORIGIN}")
    assert reply.headers["webhook-allowed-rate"] == rate


async def test_without_an_origin_it_says_what_may_be_done(connect: Open) -> None:
    reply = await asked(connect)
    assert (reply.status, reply.content, reply.headers["allow"]) == (204, b"", "POST, OPTIONS")
    assert not [name for name in reply.headers if name.startswith("webhook-")]


@pytest.mark.parametrize(
    "fields",
    [
        (f"WebHook-Request-Origin: {ORIGIN}, other.example.com",),
        (f"WebHook-Request-Origin: {ORIGIN}", "WebHook-Request-Origin: other.example.com"),
        (f"WebHook-Request-Origin: {ORIGIN}", f"WebHook-Request-Origin: {ORIGIN}"),
        (f"WebHook-Request-Origin: {ORIGIN},other",),
        ("WebHook-Request-Origin:",),
        ("WebHook-Request-Origin: two words",),
        (f"WebHook-Request-Origin: {'x' * 256}",),
        ("WebHook-Request-Origin: exämple.com",),
        ("WebHook-Request-Origin: x\tSet-Cookie: y",),
    ],
)
async def test_what_is_no_origin_is_refused_and_not_repeated(connect: Open, fields: tuple[str, ...]) -> None:
    reply = await asked(connect, *fields)
    assert_problem(reply, 400)
    assert not [name for name in reply.headers if name.startswith("webhook-")]
    assert b"example" not in reply.content


async def test_the_longest_origin_is_repeated(connect: Open) -> None:
    longest = "x" * 255
    assert (await asked(connect, f"WebHook-Request-Origin: {longest}")).headers["webhook-allowed-origin"] == longest


async def test_no_web_page_is_permitted_by_it(connect: Open) -> None:
    """A browser asks before it sends another type than plain text (Fetch, section 4.8)."""
    preflight = ("Origin: https://evil.example", "Access-Control-Request-Method: POST")
    for fields in (preflight, (*preflight, f"WebHook-Request-Origin: {ORIGIN}")):
        reply = await asked(connect, *fields)
        assert not [name for name in reply.headers if name.startswith("access-control-")]


async def test_it_costs_nothing_and_a_connection_goes_on_after_it(service: Service, connect: Open) -> None:
    handshake = request(f"WebHook-Request-Origin: {ORIGIN}", method="OPTIONS", token=None)
    with capture_logs() as logs:
        async with connect() as wire:
            await wire.send(handshake, request(method="OPTIONS"), handshake, request(body=EVENT))
            assert [(await wire.reply()).status for _ in range(4)] == [200, 204, 200, 202]
    assert (logs, len(service.inbox.taken)) == ([], 1)


async def test_elsewhere_nobody_is_asked(connect: Open) -> None:
    reply = await asked(connect, f"WebHook-Request-Origin: {ORIGIN}", path=POLARIS)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert (await asked(connect, f"WebHook-Request-Origin: {ORIGIN}", path="/livez")).status == 405


async def test_where_no_sender_is_configured_nobody_is_permitted() -> None:
    async with listening(Service(senders=anonymous_senders(["prod"])).application()) as connect:
        for fields in ((), (f"WebHook-Request-Origin: {ORIGIN}",)):
            reply = await asked(connect, *fields)
            assert_problem(reply, 405)
            assert reply.headers["allow"] == "POST"


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
async def test_a_sender_that_shows_nothing_is_no_web_page(origin: str) -> None:
    service = Service(senders=Senders(Keyring({}), {}, Sender("local", {"theirs": "prod"})))
    async with listening(service.application()) as connect:
        sent = request("Content-Type: text/plain", f"Origin: {origin}", body=EVENT, token=None)
        assert (await answer(connect, sent)).status == 403
        assert not service.inbox.entered.is_set()
        assert (await answer(connect, request(body=EVENT, token=None))).status == 202
        assert (await asked(connect, f"WebHook-Request-Origin: {ORIGIN}")).status == 200
    assert service.inbox.taken[0].sender == "local"
