"""What a sender may say, and the handshake of CloudEvents' webhooks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from structlog.testing import capture_logs

from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.formats.event import Sender
from sfn.http.secrets import PartyTokens
from sfn.http.senders import Keyring, Senders, anonymous_senders
from tests.integration.listening import (
    EVENT,
    LIMIT,
    TOKEN,
    Open,
    Reply,
    Service,
    answer,
    assert_problem,
    listening,
    request,
)
from tests.integration.signing import HMAC, MANNERS, STANDARD, TEXT, WEBHOOK, Clock, fields, said, signers

# ── No sender speaks of another's catalog, however it shows who it is and however it names the catalog.


NOTE = {
    "notification-type": "UPDATE",
    "payload": {"table-name": "t", "timestamp": 1, "table-uuid": "u", "metadata-location": "s3://lake/t/1.json"},
}
OWN = {"bearer": "red", "standard": "green", "hmac": "blue", "none": "grey"}
"""The catalog of each sender, which is `theirs` to all of them."""
Says = Callable[[bytes, str], bytes]


def by_token(body: bytes, path: str) -> bytes:
    return request(path=path, body=body)


def by_message(body: bytes, path: str) -> bytes:
    return request(*said(fields(body)), path=path, body=body, token=None)


def by_text(body: bytes, path: str) -> bytes:
    return request(*said(fields(body, TEXT, HMAC)), path=path, body=body, token=None)


def by_nothing(body: bytes, path: str) -> bytes:
    return request(path=path, body=body, token=None)


SAYS: dict[str, Says] = {"bearer": by_token, "standard": by_message, "hmac": by_text, "none": by_nothing}


@pytest.fixture(name="service")
def fixture_service() -> Service:
    known = {name: Sender(name, {"theirs": own}) for name, own in OWN.items()}
    keyring = Keyring(
        {
            "bearer": PartyTokens({"main": TOKEN}),
            "standard": PartyTokens({"main": WEBHOOK}, scheme=STANDARD),
            "hmac": PartyTokens({"main": TEXT}, scheme=HMAC),
        }
    )
    shows = {name: one for name, one in known.items() if name != "none"}
    signing = {"standard": MANNERS[STANDARD], "hmac": MANNERS[HMAC]}
    return Service(senders=Senders(keyring, shows, known["none"], signing=signing, clock=Clock()))


@pytest.fixture
async def connect(service: Service) -> AsyncIterator[Open]:
    async with listening(service.application()) as connect:
        yield connect


async def told(connect: Open, name: str, events: object, path: str = "/v1/events") -> Reply:
    return await answer(connect, SAYS[name](json.dumps(events).encode(), path))


def event(**more: object) -> dict[str, object]:
    return {"namespace": ["sales"], "name": "orders", **more}


def notified(prefix: str) -> str:
    return f"/v1/{prefix}/namespaces/sales/tables/orders/notifications"


@pytest.mark.parametrize("name", OWN)
async def test_each_sender_speaks_for_its_own_catalog_by_its_own_name_of_it(
    service: Service, connect: Open, name: str
) -> None:
    for events in (event(), event(catalog="theirs"), [event(catalog=None)]):
        assert (await told(connect, name, events)).status == 202
    assert (await told(connect, name, NOTE, notified("theirs"))).status == 204
    assert {hint.sender for hint in service.inbox.taken} == {name}
    assert {hint.subject for hint in service.inbox.taken} == {TableIdentifier(OWN[name], ("sales",), "orders")}


OTHERS = ("red", "green", "blue", "grey", "prod", "THEIRS", "theirs ", "../theirs", "theirs/", "th\u0435irs", "*", "0")
"""Our names of the catalogs, among them each sender's own, and what looks like the sender's name of it."""


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("theirs", OTHERS)
async def test_no_key_of_an_event_names_another(service: Service, connect: Open, name: str, theirs: str) -> None:
    reply = await told(connect, name, event(catalog=theirs))
    assert_problem(reply, 422)
    assert reply.json["errors"] == [{"detail": "expected one of theirs, found another one", "pointer": "#/catalog"}]
    assert (await told(connect, name, [event(), event(catalog=theirs)])).status == 422
    rename = event(operation="rename", destination={"namespace": ["sales"], "name": "new", "catalog": theirs})
    assert (await told(connect, name, rename)).status == 202
    assert {hint.subject.catalog for hint in service.inbox.taken} == {OWN[name]}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(
    "prefix", ["red", "green", "blue", "grey", "THEIRS", "theirs%20", "..%2Ftheirs", "%2A", "", "."]
)
async def test_no_path_names_another(service: Service, connect: Open, name: str, prefix: str) -> None:
    reply = await told(connect, name, NOTE, notified(prefix))
    assert (reply.status, reply.json["error"]["code"]) == (404, 404)
    assert service.inbox.taken == []


@pytest.mark.parametrize("name", ["bearer", "none"])
async def test_what_is_looked_at_instead_of_a_body_is_the_senders_own(
    service: Service, connect: Open, name: str
) -> None:
    token = TOKEN if name == "bearer" else None
    large = f"Content-Length: {LIMIT + 1}"
    assert (await answer(connect, request(large, token=token))).status == 413
    assert (await answer(connect, request("Content-Encoding: gzip", body=b"x", token=token))).status == 415
    for prefix in ("green", "theirs"):
        assert (await answer(connect, request(large, path=notified(prefix), token=token))).status == 413
    assert [hint.subject for hint in service.inbox.taken] == [
        CatalogName(OWN[name]),
        CatalogName(OWN[name]),
        TableIdentifier(OWN[name], ("sales",), "orders"),
    ]


# ── The handshake of CloudEvents' webhooks: whether somebody may send at all, and how often.


ORIGIN = "eventemitter.example.com"
POLARIS = "/v1/theirs/namespaces/sales/tables/orders/notifications"


@pytest.fixture
def service_receiver_permission() -> Service:
    return Service(senders=signers())


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
    for sent in (preflight, (*preflight, f"WebHook-Request-Origin: {ORIGIN}")):
        reply = await asked(connect, *sent)
        assert not [name for name in reply.headers if name.startswith("access-control-")]


async def test_it_costs_nothing_and_a_connection_goes_on_after_it(
    service_receiver_permission: Service, connect: Open
) -> None:
    handshake = request(f"WebHook-Request-Origin: {ORIGIN}", method="OPTIONS", token=None)
    with capture_logs() as logs:
        async with connect() as wire:
            await wire.send(handshake, request(method="OPTIONS"), handshake, request(body=EVENT))
            assert [(await wire.reply()).status for _ in range(4)] == [200, 204, 200, 202]
    assert (logs, len(service_receiver_permission.inbox.taken)) == ([], 1)


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
