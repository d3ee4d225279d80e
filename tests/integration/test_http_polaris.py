"""The receiver as a sender of Polaris' notifications meets it: one pipeline, answered as an Iceberg catalog does."""

from __future__ import annotations

import json

import anyio
import pytest
from structlog.testing import capture_logs

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ICEBERG_ERROR_TYPES, ErrorScope, FatalError, Transient
from tests.support.listener import (
    CHUNKED,
    DEADLINE,
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

PATH = "/v1/theirs/namespaces/ns1/tables/orders/notifications"
LOCATION = "s3://wh/ns1/orders/metadata/00003-5b1c.metadata.json"
ORDERS = TableIdentifier("prod", ("ns1",), "orders")


def notification(kind: str = "UPDATE", timestamp: object = 1788000000123) -> bytes:
    uuid = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
    payload = {"table-name": "orders", "timestamp": timestamp, "table-uuid": uuid, "metadata-location": LOCATION}
    return json.dumps({"notification-type": kind, "payload": payload}).encode()


UPDATE = notification()


def assert_taken(reply: Reply) -> None:
    assert (reply.status, reply.content) == (204, b"")
    assert not {"content-length", "content-type", "transfer-encoding"} & set(reply.headers)


def assert_iceberg_error(reply: Reply, status: int) -> str:
    """What is said is returned."""
    assert (reply.status, reply.headers["content-type"]) == (status, "application/json")
    error = reply.json["error"]
    assert (error["code"], error["type"]) == (status, ICEBERG_ERROR_TYPES[status])
    assert error["message"]
    assert set(reply.json) == {"error"}
    assert set(error) == {"message", "type", "code"}
    return str(error["message"])


@pytest.mark.parametrize("kind", ["CREATE", "UPDATE"])
async def test_a_notification_is_taken(service: Service, connect: Open, kind: str) -> None:
    body = notification(kind)
    assert_taken(await answer(connect, request(path=PATH, body=body)))
    (hint,) = service.inbox.taken
    birth = TableOrigin.CREATE if kind == "CREATE" else None
    assert hint == Notification(ORDERS, "etl", hint.event_id, LOCATION, uuid=hint.uuid, origin=birth, body=body)
    assert hint.uuid is not None


async def test_a_repeat_and_an_older_one_are_taken_too(service: Service, connect: Open) -> None:
    for body in (UPDATE, UPDATE, notification(timestamp=0), notification("DROP", timestamp=-1)):
        assert_taken(await answer(connect, request(path=PATH, body=body)))
    assert [(hint.subject, hint.drop) for hint in service.inbox.taken] == [
        (ORDERS, False),
        (ORDERS, False),
        (ORDERS, True),
    ]


async def test_there_is_no_204_before_the_inbox_has_it(service: Service, connect: Open) -> None:
    service.inbox.gate = anyio.Event()
    async with connect() as wire:
        await wire.send(request(path=PATH, body=UPDATE))
        with anyio.fail_after(10):
            await service.inbox.entered.wait()
        assert await wire.nothing_for(0.2)
        service.inbox.gate.set()
        assert_taken(await wire.reply())


async def test_what_concerns_nobody_does_not_reach_the_inbox(service: Service, connect: Open) -> None:
    excluded = PATH.replace("ns1", "scratch")
    for path, kind in ((PATH, "VALIDATE"), (PATH, "UNKNOWN"), (excluded, "UPDATE"), (excluded, "DROP")):
        assert_taken(await answer(connect, request(path=path, body=notification(kind))))
    assert not service.inbox.entered.is_set()


async def test_a_connection_goes_on_after_an_answer_without_a_body(service: Service, connect: Open) -> None:
    async with connect() as wire:
        await wire.send(
            request(path=PATH, body=UPDATE),
            request(body=EVENT),
            request(path=PATH, body=b"nonsense"),
            request(CHUNKED, path=PATH) + chunk(notification("DROP")) + b"0\r\n\r\n",
        )
        assert [(await wire.reply()).status for _ in range(4)] == [204, 202, 400, 204]
    assert len(service.inbox.taken) == 3


@pytest.mark.parametrize(
    ("sent", "table"),
    [
        ("/v1/theirs/namespaces/a%1Fb.c/tables/t%2Fu/notifications", TableIdentifier("prod", ("a", "b.c"), "t/u")),
        ("/v1/other/namespaces/%C3%A4/tables/t%252F/notifications?a=b", TableIdentifier("dev", ("ä",), "t%2F")),
        (f"http://sfn{PATH}", ORDERS),
    ],
)
async def test_the_table_is_what_the_path_says_byte_for_byte(
    service: Service, connect: Open, sent: str, table: TableIdentifier
) -> None:
    assert_taken(await answer(connect, request(path=sent, body=UPDATE)))
    assert [hint.subject for hint in service.inbox.taken] == [table]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/theirs/namespaces/ns1/tables/a/b/notifications",
        "/v1/theirs/namespaces/ns1/tables/orders%2Fnotifications",
        "/v1/theirs/namespaces/ns1/tables/orders",
        "/v1/theirs%2Fnamespaces/ns1/tables/orders/notifications",
    ],
)
async def test_paths_beside_it_are_nobodys(service: Service, connect: Open, path: str) -> None:
    reply = await answer(connect, request(path=path, body=UPDATE))
    assert (reply.status, reply.json["title"]) == (404, "Not Found")
    assert not service.inbox.entered.is_set()


@pytest.mark.parametrize(
    ("path", "body", "status", "named"),
    [
        (PATH, b"", 400, "expected JSON in UTF-8, found an empty body"),
        (PATH, b'{"a":"\xff"}', 400, "expected JSON in UTF-8, found bytes that are not UTF-8"),
        (PATH, b"[" * LIMIT, 400, "expected JSON"),
        (PATH, b"[]", 400, "expected an object, found an array"),
        (PATH, notification("RENAME"), 400, "#/notification-type: expected one of CREATE"),
        (PATH, notification(timestamp="now"), 400, "#/payload/timestamp: expected a whole number, found a string"),
        (PATH, notification(timestamp=1.5), 400, "#/payload/timestamp: expected a whole number of 64 bits, without a"),
        (PATH, notification(timestamp=10**30), 400, "#/payload/timestamp: expected a whole number of 64 bits, with"),
        (PATH.replace("ns1", "%FF"), UPDATE, 400, "path/namespace: expected percent-encoded UTF-8"),
        (PATH.replace("theirs", "prod"), UPDATE, 404, "path/prefix: expected one of theirs, other, again"),
    ],
)
async def test_what_is_wrong_is_named(
    service: Service, connect: Open, path: str, body: bytes, status: int, named: str
) -> None:
    message = assert_iceberg_error(await answer(connect, request(path=path, body=body)), status)
    assert message.startswith(named)
    assert service.inbox.taken == []


async def test_catalogs_of_others_and_of_nobody_are_answered_alike(connect: Open) -> None:
    ours, nobodys = [
        await answer(connect, request(path=PATH.replace("theirs", prefix), body=UPDATE)) for prefix in ("dev", "x")
    ]
    assert ours.status == nobodys.status == 404
    assert ours.content.replace(b"'dev'", b"'x'") == nobodys.content


async def test_without_a_valid_token_it_is_401_which_tells_nothing(service: Service, connect: Open) -> None:
    replies = [
        await answer(connect, request(path=path, body=body, token=token))
        for path in (PATH, PATH.replace("theirs", "unknown"))
        for body in (UPDATE, b"nonsense")
        for token in (None, "wrong")
    ]
    for reply in replies:
        assert_iceberg_error(reply, 401)
        assert reply.headers["www-authenticate"] == "Bearer"
        assert reply.content == replies[0].content
    assert not service.inbox.entered.is_set()


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
async def test_another_method_is_405(connect: Open, method: str) -> None:
    reply = await answer(connect, request(path=PATH, method=method, token=None))
    assert_iceberg_error(reply, 405)
    assert reply.headers["allow"] == "POST"


async def test_a_compressed_body_is_415(connect: Open) -> None:
    reply = await answer(connect, request("Content-Encoding: gzip", path=PATH, body=UPDATE))
    assert_iceberg_error(reply, 415)
    assert reply.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("path", "hints"),
    [
        (PATH, [Notification(ORDERS, "etl")]),
        (PATH.replace("ns1", "scratch"), []),
        (PATH.replace("theirs", "unknown"), []),
    ],
    ids=["ours", "excluded", "unknown"],
)
async def test_of_a_body_that_is_too_large_or_compressed_the_table_is_looked_at(
    service: Service, connect: Open, path: str, hints: list[Notification]
) -> None:
    assert_iceberg_error(await answer(connect, request(f"Content-Length: {LIMIT + 1}", path=path)), 413)
    assert service.inbox.taken == hints
    service.inbox.taken.clear()
    assert_iceberg_error(await answer(connect, request("Content-Encoding: gzip", path=path, body=b"x")), 415)
    assert service.inbox.taken == hints


async def test_a_body_that_comes_too_slowly_is_408(service: Service) -> None:
    async with listening(Service(inbox=service.inbox, deadline=DEADLINE).application()) as hasty, hasty() as wire:
        await wire.send(request(CHUNKED, path=PATH))
        reply = await wire.reply()
        assert_iceberg_error(reply, 408)
        assert reply.headers["connection"] == "close"
        assert await wire.ended()


async def test_failing_inbox_is_503(service: Service, connect: Open) -> None:
    service.inbox.failure = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=2.2)
    reply = await answer(connect, request(path=PATH, body=UPDATE))
    assert_iceberg_error(reply, 503)
    assert reply.headers["retry-after"] == "3"
    service.inbox.failure = None
    assert_taken(await answer(connect, request(path=PATH, body=UPDATE)))


async def test_a_broken_inbox_is_503_and_told(service: Service, connect: Open) -> None:
    service.inbox.failure = FatalError("inbox.db", expected="a disk", found="none")
    reply = await answer(connect, request(path=PATH, body=UPDATE))
    assert "inbox.db" not in assert_iceberg_error(reply, 503)
    assert reply.headers["retry-after"] == "1"
    assert service.broken == [service.inbox.failure]


async def test_draining_takes_nothing_new(service: Service, connect: Open) -> None:
    async with connect() as wire:
        service.readiness.drain()
        await wire.send(request(path=PATH, body=UPDATE))
        reply = await wire.reply()
        assert_iceberg_error(reply, 503)
        assert (reply.headers["retry-after"], reply.headers["connection"]) == ("1", "close")
        assert await wire.ended()


async def test_an_error_of_ours_is_500_and_logged(service: Service, connect: Open) -> None:
    service.inbox.failure = ZeroDivisionError("a bug")
    with capture_logs() as logs:
        reply = await answer(connect, request(path=PATH, body=UPDATE))
    assert "a bug" not in assert_iceberg_error(reply, 500)
    assert [entry["log_level"] for entry in logs] == ["error"]


@pytest.mark.parametrize("path", [PATH.encode().replace(b"ns1", b"\xe9"), PATH.encode().replace(b"ns1", b"a b")])
async def test_a_path_that_was_not_encoded_is_no_request(service: Service, connect: Open, path: bytes) -> None:
    async with connect() as wire:
        await wire.send(request(path="PATH", body=UPDATE).replace(b"PATH", path))
        assert (await wire.reply()).status == 400
    assert not service.inbox.entered.is_set()
