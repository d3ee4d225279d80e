"""No sender speaks of another's catalog, however it shows who it is and however it names the catalog."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable

import pytest

from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.formats.event import Sender
from sfn.http.secrets import PartyTokens
from sfn.http.senders import Keyring, Senders
from tests.integration.listening import LIMIT, TOKEN, Open, Reply, Service, answer, assert_problem, listening, request
from tests.integration.signing import HMAC, MANNERS, NOW, STANDARD, TEXT, WEBHOOK, fields, said
from tests.support.clock import HandClock

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
    return Service(senders=Senders(keyring, shows, known["none"], signing=signing, clock=HandClock(NOW)))


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
