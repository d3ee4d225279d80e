"""Request bodies: size, speed, chunks and signatures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import anyio
import pytest
from structlog.testing import capture_logs

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.errors import ErrorScope, Transient
from sfn.http.server import ServerConnection
from tests.support.listener import (
    CHUNKED,
    DEADLINE,
    EVENT,
    HMAC,
    LIMIT,
    TEXT,
    Open,
    Service,
    answer,
    assert_problem,
    chunk,
    drip,
    fields,
    hooked,
    listening,
    request,
    said,
    signers,
)

# Sizes, speeds and lengths.


@pytest.fixture
async def hasty(service: Service) -> AsyncIterator[Open]:
    async with listening(Service(inbox=service.inbox, deadline=DEADLINE).application()) as connect:
        yield connect


async def test_a_body_in_pieces_is_one_body(service: Service, connect: Open) -> None:
    async with connect() as wire:
        await wire.send(request(CHUNKED), chunk(EVENT[:10]))
        await anyio.sleep(0.05)
        await wire.send(chunk(EVENT[10:]), b"0\r\n\r\n")
        assert (await wire.reply()).status == 202
    assert service.inbox.taken[0].body == EVENT


async def test_a_body_of_exactly_the_limit_is_read(connect: Open) -> None:
    padded = EVENT.ljust(LIMIT)
    assert (await answer(connect, request(body=padded))).status == 202
    assert (await answer(connect, request(CHUNKED) + chunk(padded) + b"0\r\n\r\n")).status == 202
    assert_problem(await answer(connect, request(body=padded + b" ")), 413)


async def test_a_request_that_the_end_of_the_process_cuts_off_is_503(connect: Open) -> None:
    with capture_logs() as records:
        async with connect() as wire:
            await wire.send(request(CHUNKED), chunk(EVENT[:10]))
            await anyio.sleep(0.05)
            for task in asyncio.all_tasks():
                if "run_asgi" in repr(task.get_coro()):
                    task.cancel()
            reply = await wire.reply()
    assert_problem(reply, 503)
    assert reply.headers["connection"] == "close"
    assert not records


SWEEPS = [Notification(CatalogName("prod"), "etl"), Notification(CatalogName("dev"), "etl")]


async def test_a_body_that_grows_over_the_limit_is_413_and_leaves_sweeps(service: Service, connect: Open) -> None:
    async with connect() as wire:
        await wire.send(request(CHUNKED), *[chunk(b" " * 512)] * (LIMIT // 512))
        assert await wire.nothing_for(0.05)
        await wire.send(chunk(b" "))
        assert_problem(await wire.reply(), 413)
        assert service.inbox.taken == SWEEPS
        await wire.send(chunk(b"more"), b"0\r\n\r\n", request(body=EVENT))
        assert (await wire.reply()).status == 202


async def test_a_413_leaves_no_sweep_of_what_nobody_can_list_and_its_loss_is_an_error() -> None:
    service = Service(told=frozenset({"prod", "another"}))
    with capture_logs() as records:
        async with listening(service.application()) as connect, connect() as wire:
            await wire.send(request(f"Content-Length: {LIMIT + 1}"))
            reply = await wire.reply()
            assert_problem(reply, 413)
    assert "send fewer events in one request" in reply.json["detail"]
    assert service.inbox.taken == [Notification(CatalogName("dev"), "etl")]
    (record,) = [record for record in records if record["log_level"] == "error"]
    assert (record["event"], record["sender"], record["catalogs"]) == ("events lost", "etl", ["prod"])
    assert "listener.body_limit" in record["remedy"]


async def test_a_length_over_the_limit_is_413_at_once(service: Service, connect: Open) -> None:
    async with connect() as wire:
        await wire.send(request(f"Content-Length: {LIMIT + 1}"))
        assert_problem(await wire.reply(), 413)
    assert service.inbox.taken == SWEEPS


async def test_a_413_whose_sweeps_are_not_on_disk_is_503(service: Service, connect: Open) -> None:
    service.inbox.failure = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=2)
    reply = await answer(connect, request(f"Content-Length: {LIMIT + 1}"))
    assert_problem(reply, 503)
    assert reply.headers["retry-after"] == "2"


async def test_a_compressed_body_leaves_sweeps_and_its_sender_is_told_of(service: Service, connect: Open) -> None:
    with capture_logs() as records:
        reply = await answer(connect, request("Content-Encoding: gzip", body=EVENT))
    assert_problem(reply, 415)
    assert service.inbox.taken == SWEEPS
    assert service.inbox.kept == []
    (record,) = [record for record in records if record["event"] == "events rejected"]
    assert (record["sender"], record["status"]) == ("etl", 415)


async def test_a_compressed_body_of_what_nobody_can_list_is_lost_which_is_an_error() -> None:
    service = Service(told=frozenset({"prod"}))
    with capture_logs() as records:
        async with listening(service.application()) as connect:
            await answer(connect, request("Content-Encoding: gzip", body=EVENT))
    assert service.inbox.taken == [Notification(CatalogName("dev"), "etl")]
    (record,) = [record for record in records if record["log_level"] == "error"]
    assert (record["event"], record["catalogs"], "compressed" in record["remedy"]) == ("events lost", ["prod"], True)


async def test_a_compressed_body_whose_sweeps_are_not_on_disk_is_503(service: Service, connect: Open) -> None:
    service.inbox.failure = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=2)
    assert_problem(await answer(connect, request("Content-Encoding: gzip", body=EVENT)), 503)


async def test_a_length_that_is_too_great_waits_for_the_deadline_only(service: Service, hasty: Open) -> None:
    async with hasty() as wire:
        started = anyio.current_time()
        await wire.send(request(f"Content-Length: {len(EVENT) + 1}"), EVENT)
        reply = await wire.reply()
        assert_problem(reply, 408)
        assert reply.headers["connection"] == "close"
        assert DEADLINE * 0.9 < anyio.current_time() - started < DEADLINE + 5
        assert await wire.ended()
    assert not service.inbox.entered.is_set()


async def test_a_length_that_is_too_small_ends_the_body_there(service: Service, connect: Open) -> None:
    async with connect() as wire:
        await wire.send(request(f"Content-Length: {len(EVENT)}"), EVENT)
        assert (await wire.reply()).status == 202
        await wire.send(b"the rest\r\n\r\n")
        assert_problem(await wire.reply(), 400)
        assert await wire.ended()
    assert [hint.body for hint in service.inbox.taken] == [EVENT]


async def test_a_body_that_drips_is_cut_off(service: Service, hasty: Open) -> None:
    async with hasty() as wire:
        started = anyio.current_time()
        await wire.send(request(CHUNKED))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drip, wire, chunk(b" "), DEADLINE / 10)
            reply = await wire.reply()
            tasks.cancel_scope.cancel()
        assert_problem(reply, 408)
        assert anyio.current_time() - started < DEADLINE + 5
    assert not service.inbox.entered.is_set()


async def test_a_client_that_leaves_in_the_middle_leaves_nothing(service: Service, connect: Open) -> None:
    with capture_logs() as logs:
        async with connect() as wire:
            await wire.send(request(CHUNKED), chunk(EVENT))
            await anyio.sleep(0.05)
        await anyio.sleep(0.05)
        assert not service.inbox.entered.is_set()
        assert (await answer(connect, request(body=EVENT))).status == 202
    assert logs == []


async def test_pipelined_requests_are_answered_in_order(service: Service, connect: Open) -> None:
    names = [b"n%d" % number for number in range(5)]
    bodies = [EVENT.replace(b"orders", name).replace(b"e1", name) for name in names]
    bodies[2] = b"nonsense"
    async with connect() as wire:
        await wire.send(*[request(body=body) for body in bodies])
        assert [(await wire.reply()).status for _ in bodies] == [202, 202, 400, 202, 202]
    assert [hint.body for hint in service.inbox.taken] == [*bodies[:2], *bodies[3:]]


async def test_no_log_and_no_text_of_a_note_shows_a_body(service: Service, connect: Open) -> None:
    told = EVENT.replace(b"{", b'{"password": "s3cret-in-a-body", ', 1)
    with capture_logs() as logs:
        assert (await answer(connect, request(body=told))).status == 202
        for odd in (told[:-1], told.replace(b"sales", b""), told.replace(b"namespace", b"space"), b"[" + told):
            assert (await answer(connect, request(body=odd))).status in {400, 415, 422}
    assert len(service.inbox.taken) == 1
    assert len(logs) >= 4
    assert "s3cret" not in f"{logs}{service.inbox.taken}{service.inbox.kept}"


# Signed bodies.


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
def signed_service() -> Service:
    return Service(senders=signers())


@pytest.fixture
async def signed_connect(signed_service: Service) -> AsyncIterator[Open]:
    async with listening(signed_service.application()) as connect:
        yield connect


@pytest.fixture
async def signed_hasty(signed_service: Service) -> AsyncIterator[Open]:
    signed_service.deadline = DEADLINE
    async with listening(signed_service.application()) as connect:
        yield connect


async def test_a_body_of_the_size_that_is_allowed_is_verified(signed_service: Service, signed_connect: Open) -> None:
    largest = EVENT[:-1] + b" " * (LIMIT - len(EVENT)) + EVENT[-1:]
    assert (await answer(signed_connect, hooked(largest))).status == 202
    assert len(signed_service.inbox.taken) == 1


async def test_a_giant_body_is_413_and_leaves_nothing_to_look_at(signed_service: Service, signed_connect: Open) -> None:
    with capture_logs() as logs:
        replies = [
            await answer(signed_connect, request(*said(fields()), f"Content-Length: {LIMIT + 1}", token=None)),
            await answer(signed_connect, request(*said(fields()), f"Content-Length: {10**17}", token=None)),
            await answer(signed_connect, HEAD + chunk(b" " * LIMIT) + chunk(EVENT)),
            await answer(signed_connect, hooked(EVENT + b" " * LIMIT)),
        ]
    for reply in replies:
        assert_problem(reply, 413)
    assert not signed_service.inbox.entered.is_set()
    (told,) = logs
    assert (told["event"], told["status"], told["client"]) == ("request refused", 413, "127.0.0.1")


async def test_compressed_body_is_415_and_schedules_nothing(signed_service: Service, signed_connect: Open) -> None:
    with capture_logs() as logs:
        reply = await answer(signed_connect, hooked(EVENT, "Content-Encoding: gzip"))
    assert_problem(reply, 415)
    assert reply.headers["accept-encoding"] == "identity"
    assert not signed_service.inbox.entered.is_set()
    assert [(entry["event"], entry["status"]) for entry in logs] == [("request refused", 415)]


async def test_a_wrong_head_needs_no_body(signed_connect: Open) -> None:
    """It is refused before one byte of its body is here."""
    for headers in (fields(off=-400), {}, {**fields(), "webhook-signature": "v1,x"}):
        async with signed_connect() as wire:
            await wire.send(request(*said(headers), f"Content-Length: {LIMIT + 1}", token=None))
            assert_problem(await wire.reply(), 401)


async def test_a_signed_body_that_drips_is_cut_off(signed_service: Service, signed_hasty: Open) -> None:
    async with signed_hasty() as wire:
        started = anyio.current_time()
        await wire.send(HEAD)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drip, wire, chunk(b" "), DEADLINE / 10)
            reply = await wire.reply()
            tasks.cancel_scope.cancel()
        assert_problem(reply, 408)
        assert DEADLINE * 0.9 < anyio.current_time() - started < DEADLINE + 5
    assert not signed_service.inbox.entered.is_set()


@pytest.mark.parametrize("part", [b"", EVENT[:-1]])
async def test_a_body_that_stops_is_cut_off_and_its_connection_with_it(
    signed_service: Service, signed_hasty: Open, part: bytes
) -> None:
    async with signed_hasty() as wire:
        started = anyio.current_time()
        await wire.send(request(*said(fields()), f"Content-Length: {len(EVENT)}", token=None), part)
        reply = await wire.reply()
        assert_problem(reply, 408)
        assert reply.headers["connection"] == "close"
        assert DEADLINE * 0.9 < anyio.current_time() - started < DEADLINE + 5
        assert await wire.ended()
    assert not signed_service.inbox.entered.is_set()


async def test_a_head_that_drips_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, signed_service: Service, signed_connect: Open
) -> None:
    monkeypatch.setattr(ServerConnection, "head_timeout", PATIENCE)
    async with signed_connect() as wire:
        started = anyio.current_time()
        await wire.send(HEAD[:-4])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drip, wire, b"\r\nwebhook-id: x", PATIENCE / 10)
            assert_problem(await wire.reply(), 408)
            tasks.cancel_scope.cancel()
        assert PATIENCE * 0.9 < anyio.current_time() - started < PATIENCE + 5
    assert not signed_service.inbox.entered.is_set()


async def test_who_is_slow_holds_up_nobody_else(signed_service: Service, signed_hasty: Open) -> None:
    async with signed_hasty() as slow, signed_hasty() as quick:
        await slow.send(HEAD)
        await quick.send(hooked())
        assert (await quick.reply()).status == 202
        assert_problem(await slow.reply(), 408)
    assert len(signed_service.inbox.taken) == 1


async def test_a_notification_may_be_signed_where_the_catalog_is_asked(
    signed_service: Service, signed_connect: Open
) -> None:
    assert (await answer(signed_connect, hooked(NOTE, path=POLARIS))).status == 204
    assert [(hint.sender, hint.subject) for hint in signed_service.inbox.taken] == [
        ("hook", TableIdentifier("prod", ("sales",), "orders"))
    ]
    reply = await answer(signed_connect, hooked(NOTE + b" ", path=POLARIS, message="x"))
    assert reply.status == 204
    reply = await answer(signed_connect, request(*said(fields(NOTE)), path=POLARIS, body=NOTE + b" ", token=None))
    assert (reply.status, reply.json["error"]["type"]) == (401, "NotAuthorizedException")


async def test_no_path_is_believed_that_nobody_signed() -> None:
    """Who changes it would have the location of one table told of another."""
    service = Service(senders=signers(), told=frozenset({"prod"}))
    async with listening(service.application()) as connect:
        reply = await answer(connect, hooked(NOTE, path=POLARIS))
        assert (reply.status, reply.json["error"]["type"]) == (400, "BadRequestException")
        assert (
            "expected a sender with a token, because the catalogs prod are event-only" in reply.json["error"]["message"]
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
    assert [(entry["event"], entry["sender"]) for entry in logs] == [("events rejected", "hook")]
