"""Bodies of senders that sign, giant, slow or compressed: nobody knows whose one is until all of it was read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import anyio
import pytest
from structlog.testing import capture_logs

from sfn.domain.identifiers import TableIdentifier
from sfn.http.server import ServerConnection
from tests.integration.listening import (
    CHUNKED,
    DEADLINE,
    EVENT,
    LIMIT,
    Open,
    Service,
    answer,
    assert_problem,
    chunk,
    drip,
    listening,
    request,
)
from tests.integration.signing import HMAC, TEXT, fields, hooked, said, signers

PATIENCE = 0.3
HEAD = request(*said(fields()), CHUNKED, token=None)
POLARIS = "/v1/theirs/namespaces/sales/tables/orders/notifications"
NOTE = json.dumps(
    {
        "notification-type": "UPDATE",
        "payload": {
            "table-name": "orders",
            "timestamp": 1,
            "table-uuid": "u1",
            "metadata-location": "s3://lake/orders/metadata/00001-x.metadata.json",
        },
    }
).encode()
TOLD = EVENT[:-1] + b',"metadata_location":"s3://lake/orders/metadata/00001-x.metadata.json"}'


@pytest.fixture
def service() -> Service:
    return Service(senders=signers())


@pytest.fixture
async def connect(service: Service) -> AsyncIterator[Open]:
    async with listening(service.application()) as connect:
        yield connect


@pytest.fixture
async def hasty(service: Service) -> AsyncIterator[Open]:
    service.deadline = DEADLINE
    async with listening(service.application()) as connect:
        yield connect


async def test_a_body_of_the_size_that_is_allowed_is_verified(service: Service, connect: Open) -> None:
    largest = EVENT[:-1] + b" " * (LIMIT - len(EVENT)) + EVENT[-1:]
    assert (await answer(connect, hooked(largest))).status == 202
    assert len(service.inbox.taken) == 1


async def test_a_giant_body_is_413_and_leaves_nothing_to_look_at(service: Service, connect: Open) -> None:
    with capture_logs() as logs:
        replies = [
            await answer(connect, request(*said(fields()), f"Content-Length: {LIMIT + 1}", token=None)),
            await answer(connect, request(*said(fields()), f"Content-Length: {10**17}", token=None)),
            await answer(connect, HEAD + chunk(b" " * LIMIT) + chunk(EVENT)),
            await answer(connect, hooked(EVENT + b" " * LIMIT)),
        ]
    for reply in replies:
        assert_problem(reply, 413)
    assert not service.inbox.entered.is_set()
    (told,) = logs
    assert (told["event"], told["status"], told["client"]) == ("request refused", 413, "127.0.0.1")


async def test_a_compressed_body_is_415_and_leaves_nothing_to_look_at(service: Service, connect: Open) -> None:
    with capture_logs() as logs:
        reply = await answer(connect, hooked(EVENT, "Content-Encoding: gzip"))
    assert_problem(reply, 415)
    assert reply.headers["accept-encoding"] == "identity"
    assert not service.inbox.entered.is_set()
    assert [(entry["event"], entry["status"]) for entry in logs] == [("request refused", 415)]


async def test_a_wrong_head_needs_no_body(connect: Open) -> None:
    """It is refused before one byte of its body is here."""
    for headers in (fields(off=-400), {}, {**fields(), "webhook-signature": "v1,x"}):
        async with connect() as wire:
            await wire.send(request(*said(headers), f"Content-Length: {LIMIT + 1}", token=None))
            assert_problem(await wire.reply(), 401)


async def test_a_body_that_drips_is_cut_off(service: Service, hasty: Open) -> None:
    async with hasty() as wire:
        started = anyio.current_time()
        await wire.send(HEAD)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drip, wire, chunk(b" "), DEADLINE / 10)
            reply = await wire.reply()
            tasks.cancel_scope.cancel()
        assert_problem(reply, 408)
        assert DEADLINE * 0.9 < anyio.current_time() - started < DEADLINE + 5
    assert not service.inbox.entered.is_set()


@pytest.mark.parametrize("part", [b"", EVENT[:-1]])
async def test_a_body_that_stops_is_cut_off_and_its_connection_with_it(
    service: Service, hasty: Open, part: bytes
) -> None:
    async with hasty() as wire:
        started = anyio.current_time()
        await wire.send(request(*said(fields()), f"Content-Length: {len(EVENT)}", token=None), part)
        reply = await wire.reply()
        assert_problem(reply, 408)
        assert reply.headers["connection"] == "close"
        assert DEADLINE * 0.9 < anyio.current_time() - started < DEADLINE + 5
        assert await wire.ended()
    assert not service.inbox.entered.is_set()


async def test_a_head_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch, service: Service, connect: Open) -> None:
    monkeypatch.setattr(ServerConnection, "head_timeout", PATIENCE)
    async with connect() as wire:
        started = anyio.current_time()
        await wire.send(HEAD[:-4])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drip, wire, b"\r\nwebhook-id: x", PATIENCE / 10)
            assert_problem(await wire.reply(), 408)
            tasks.cancel_scope.cancel()
        assert PATIENCE * 0.9 < anyio.current_time() - started < PATIENCE + 5
    assert not service.inbox.entered.is_set()


async def test_who_is_slow_holds_up_nobody_else(service: Service, hasty: Open) -> None:
    async with hasty() as slow, hasty() as quick:
        await slow.send(HEAD)
        await quick.send(hooked())
        assert (await quick.reply()).status == 202
        assert_problem(await slow.reply(), 408)
    assert len(service.inbox.taken) == 1


async def test_a_notification_may_be_signed_where_the_catalog_is_asked(service: Service, connect: Open) -> None:
    assert (await answer(connect, hooked(NOTE, path=POLARIS))).status == 204
    assert [(hint.sender, hint.subject) for hint in service.inbox.taken] == [
        ("hook", TableIdentifier("prod", ("sales",), "orders"))
    ]
    reply = await answer(connect, hooked(NOTE + b" ", path=POLARIS, message="x"))
    assert reply.status == 204
    reply = await answer(connect, request(*said(fields(NOTE)), path=POLARIS, body=NOTE + b" ", token=None))
    assert (reply.status, reply.json["error"]["type"]) == (401, "NotAuthorizedException")


async def test_no_path_is_believed_that_nobody_signed() -> None:
    """Who changes it would have the location of one table told of another."""
    service = Service(senders=signers(), told=frozenset({"prod"}))
    async with listening(service.application()) as connect:
        reply = await answer(connect, hooked(NOTE, path=POLARIS))
        assert (reply.status, reply.json["error"]["type"]) == (400, "BadRequestException")
        assert (
            "expected a sender that shows a token, as what is told of prod is believed"
            in reply.json["error"]["message"]
        )
        assert (await answer(connect, hooked(TOLD))).status == 202
        assert (await answer(connect, request(path=POLARIS, body=NOTE))).status == 204
        other = said(fields(NOTE, TEXT, HMAC))
        assert (await answer(connect, request(*other, path=POLARIS, body=NOTE, token=None))).status == 204
    assert [hint.sender for hint in service.inbox.taken] == ["hook", "etl", "polaris"]


async def test_a_notification_whose_path_nobody_signed_is_told_and_kept() -> None:
    service = Service(senders=signers(), told=frozenset({"prod"}))
    async with listening(service.application()) as connect:
        with capture_logs() as logs:
            assert (await answer(connect, hooked(NOTE, path=POLARIS))).status == 400
    (kept,) = service.inbox.kept
    assert (kept.sender, kept.body, service.inbox.taken) == ("hook", NOTE, [])
    assert kept.detail.endswith("found a signature, which does not cover the path")
    assert [(entry["event"], entry["sender"]) for entry in logs] == [("events refused", "hook")]
