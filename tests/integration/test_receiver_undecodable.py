"""What becomes of a body that nobody understood: it is kept before its sender is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from sfn.domain.events import MAX_STORED_BODY, UndecodableRequest
from sfn.errors import ErrorScope, FatalError, Rejected, Transient
from sfn.formats import decode
from sfn.formats.event import EventRequest, Sender
from sfn.http.senders import anonymous_senders
from tests.integration.listening import (
    CHUNKED,
    DEADLINE,
    ETL,
    EVENT,
    LIMIT,
    Open,
    Reply,
    Service,
    answer,
    chunk,
    listening,
    request,
)

EVENTS = "/v1/events"
ORDERS = "/v1/theirs/namespaces/a%2Fb/tables/orders/notifications"
UNKNOWN = "/v1/unknown/namespaces/a/tables/orders/notifications"
JSON = "Content-Type: application/json"
ATTRIBUTES = {"specversion": "1.0", "id": "e9", "source": "/ci", "type": "commit"}
MISNAMED = EVENT.replace(b'"orders"', b"7")


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def connect(service: Service) -> AsyncIterator[Open]:
    async with listening(service.application()) as connect:
        yield connect


def said(reply: Reply) -> str:
    """What a refusal told its sender."""
    return str(reply.json["detail"] if "detail" in reply.json else reply.json["error"]["message"])


@pytest.mark.parametrize(
    ("path", "body", "status", "pointer"),
    [
        (EVENTS, b"nonsense", 400, "#"),
        (EVENTS, b"", 400, "#"),
        (EVENTS, b'{"specversion":"1.0"}', 415, "#"),
        (EVENTS, MISNAMED, 422, "#/name"),
        (EVENTS, EVENT.replace(b"theirs", b"unknown"), 422, "#/catalog"),
        (EVENTS, b"[" + EVENT + b"," + MISNAMED + b"]", 422, "#/1/name"),
        (ORDERS, b"nonsense", 400, "#"),
        (ORDERS, b'{"notification-type":"UPDATE"}', 400, "#/payload"),
        (UNKNOWN, b"{}", 404, "path/prefix"),
    ],
)
async def test_it_is_kept_whole_and_the_sender_is_refused(
    service: Service, connect: Open, path: str, body: bytes, status: int, pointer: str
) -> None:
    reply = await answer(connect, request(JSON, path=f"{path}?a=b", body=body))
    assert reply.status == status
    (kept,) = service.inbox.kept
    assert service.inbox.taken == []
    assert kept == UndecodableRequest("etl", path, "application/json", body, len(body), kept.detail)
    assert kept.detail.startswith(f"{pointer}: expected ")
    assert said(reply) in {kept.detail, kept.detail.removeprefix(f"{pointer}: ")}


@pytest.mark.parametrize("path", [EVENTS, ORDERS, UNKNOWN])
async def test_what_is_kept_is_all_that_decoding_it_again_needs(service: Service, connect: Open, path: str) -> None:
    await answer(connect, request(path=path, body=MISNAMED))
    (kept,) = service.inbox.kept
    assert kept.content_type is None
    with pytest.raises(Rejected) as caught:
        decode(EventRequest(kept.path, [], kept.body, ETL))
    assert str(caught.value) == kept.detail


async def test_of_a_long_body_the_beginning_is_kept() -> None:
    service = Service(limit=MAX_STORED_BODY * 2)
    body = b"nonsense".ljust(MAX_STORED_BODY + 1)
    async with listening(service.application()) as connect:
        assert (await answer(connect, request(body=body))).status == 400
    (kept,) = service.inbox.kept
    assert (kept.body, kept.size) == (body[:MAX_STORED_BODY], MAX_STORED_BODY + 1)


@pytest.mark.parametrize("path", [EVENTS, ORDERS])
async def test_there_is_no_refusal_before_it_is_kept(service: Service, connect: Open, path: str) -> None:
    service.inbox.gate = anyio.Event()
    async with connect() as wire:
        await wire.send(request(path=path, body=b"nonsense"))
        with anyio.fail_after(10):
            await service.inbox.entered.wait()
        assert await wire.nothing_for(0.2)
        service.inbox.gate.set()
        assert (await wire.reply()).status == 400


@pytest.mark.parametrize("path", [EVENTS, ORDERS])
async def test_one_that_cannot_be_kept_is_to_be_sent_again(service: Service, connect: Open, path: str) -> None:
    service.inbox.failure = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=2)
    reply = await answer(connect, request(path=path, body=b"nonsense"))
    assert (reply.status, reply.headers["retry-after"]) == (503, "2")
    service.inbox.failure = FatalError("inbox.db", expected="a disk", found="none")
    assert (await answer(connect, request(path=path, body=b"nonsense"))).status == 503
    assert service.broken == [service.inbox.failure]


@pytest.mark.parametrize("path", [EVENTS, ORDERS])
async def test_what_nobody_read_or_nobody_sent_is_not_kept(service: Service, connect: Open, path: str) -> None:
    statuses = [
        (await answer(connect, sent)).status
        for sent in (
            request(path=path, body=b"nonsense", token=None),
            request(path=path, body=b"nonsense", token="wrong"),  # noqa: S106 - a wrong one
            request(path=path, method="PUT", body=b"nonsense"),
        )
    ]
    assert statuses == [401, 401, 405]
    assert not service.inbox.entered.is_set()
    assert (await answer(connect, request(path=path, body=b" " * (LIMIT + 1)))).status == 413
    assert service.inbox.kept == []


async def test_neither_is_a_part_of_a_body() -> None:
    service = Service(deadline=DEADLINE)
    async with listening(service.application()) as connect:
        assert (await answer(connect, request(CHUNKED) + chunk(b"nonsense"))).status == 408
        async with connect() as wire:
            await wire.send(request(CHUNKED), chunk(b"nonsense"))
        assert (await answer(connect, request(body=EVENT))).status == 202
    assert service.inbox.kept == []


async def test_where_everybody_is_one_sender_it_is_kept_as_that_ones() -> None:
    service = Service(senders=anonymous_senders(["prod"]))
    async with listening(service.application()) as connect:
        assert (await answer(connect, request(body=b"nonsense", token=None))).status == 400
    assert [kept.sender for kept in service.inbox.kept] == ["anonymous"]


async def test_what_a_content_type_may_hold_is_kept(service: Service, connect: Open) -> None:
    sent = request("Content-Type: TYPE", body=b"nonsense").replace(b"TYPE", b"text/plain; x=\xe9")
    assert (await answer(connect, sent)).status == 400
    assert [kept.content_type for kept in service.inbox.kept] == ["text/plain; x=\xe9"]


@pytest.mark.parametrize("prefix", ["ce-", "ce_"])
async def test_a_cloudevent_whose_attributes_are_headers_is_kept_with_them(
    service: Service, connect: Open, prefix: str
) -> None:
    attributes = [f"{prefix}{name}: {value}" for name, value in ATTRIBUTES.items()]
    data = EVENT.replace(b"theirs", b"unknown")
    assert (await answer(connect, request(*attributes, JSON, body=data))).status == 422
    (kept,) = service.inbox.kept
    assert (kept.content_type, kept.size) == ("application/cloudevents+json", len(kept.body))
    mended = Sender("etl", {"unknown": "prod"})
    said = decode(EventRequest(kept.path, [(b"content-type", b"application/cloudevents+json")], kept.body, mended))
    assert [(hint.event_id, str(hint.subject)) for hint in said.notifications] == [("/ci e9", "prod:sales.orders")]
