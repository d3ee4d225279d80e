"""The receiver as a client meets it: who may send, what is taken, what is answered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, FatalError, Transient
from sfn.http.secrets import PartyTokens, WatchedTokenFile
from sfn.http.senders import anonymous_senders
from tests.integration.listening import (
    CHUNKED,
    EVENT,
    LIMIT,
    TOKEN,
    Open,
    Service,
    answer,
    assert_problem,
    chunk,
    enrolled,
    listening,
    request,
)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def connect(service: Service) -> AsyncIterator[Open]:
    async with listening(service.application()) as connect:
        yield connect


async def test_an_event_is_taken(service: Service, connect: Open) -> None:
    reply = await answer(connect, request(body=EVENT))
    assert (reply.status, reply.headers["content-type"]) == (202, "application/json")
    assert reply.json == {"accepted": 1, "duplicates": 0, "ignored": 0}
    assert service.inbox.taken == [Notification(TableIdentifier("prod", ("sales",), "orders"), "etl", "e1", body=EVENT)]


async def test_duplicates_and_ignored_hints_are_counted(service: Service, connect: Open) -> None:
    other = EVENT.replace(b"sales", b"scratch").replace(b"e1", b"e2")
    await answer(connect, request(body=EVENT))
    reply = await answer(connect, request(body=b"[" + EVENT + b"," + other + b"," + EVENT.replace(b"e1", b"e3") + b"]"))
    assert reply.json == {"accepted": 1, "duplicates": 1, "ignored": 1}
    assert len(service.inbox.taken) == 2


async def test_what_concerns_nobody_does_not_reach_the_inbox(service: Service, connect: Open) -> None:
    reply = await answer(connect, request(body=EVENT.replace(b"sales", b"scratch")))
    assert (reply.status, reply.json) == (202, {"accepted": 0, "duplicates": 0, "ignored": 1})
    assert (await answer(connect, request(body=b"[]"))).json == {"accepted": 0, "duplicates": 0, "ignored": 0}
    assert not service.inbox.entered.is_set()


async def test_there_is_no_202_before_the_inbox_has_it(service: Service, connect: Open) -> None:
    service.inbox.gate = anyio.Event()
    async with connect() as wire:
        await wire.send(request(body=EVENT))
        with anyio.fail_after(10):
            await service.inbox.entered.wait()
        assert await wire.nothing_for(0.2)
        service.inbox.gate.set()
        assert (await wire.reply()).status == 202


def full(wait: float | None = None) -> Transient:
    return Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=wait)


@pytest.mark.parametrize(("wait", "header"), [(2.2, "3"), (None, "1"), (0.0, "1"), (0.01, "1"), (7, "7")])
async def test_while_the_inbox_fails_it_is_503(
    service: Service, connect: Open, wait: float | None, header: str
) -> None:
    service.inbox.failure = full(wait)
    reply = await answer(connect, request(body=EVENT))
    assert_problem(reply, 503)
    assert reply.headers["retry-after"] == header
    service.inbox.failure = None
    assert (await answer(connect, request(body=EVENT))).status == 202


async def test_that_it_fails_is_logged_but_not_each_time(service: Service, connect: Open) -> None:
    service.inbox.failure = full()
    with capture_logs() as logs:
        assert [(await answer(connect, request(body=EVENT))).status for _ in range(3)] == [503] * 3
    assert [(entry["event"], entry["left_out"]) for entry in logs] == [("events not taken", 0)]


async def test_a_broken_inbox_is_503_and_told(service: Service, connect: Open) -> None:
    service.inbox.failure = FatalError("inbox.db", expected="a disk", found="none")
    reply = await answer(connect, request(body=EVENT))
    assert_problem(reply, 503)
    assert reply.headers["retry-after"] == "1"
    assert "inbox.db" not in reply.content.decode()
    assert service.broken == [service.inbox.failure]


async def test_an_error_of_ours_is_500_and_logged(service: Service, connect: Open) -> None:
    service.inbox.failure = ZeroDivisionError("a bug")
    with capture_logs() as logs:
        reply = await answer(connect, request(body=EVENT))
    assert_problem(reply, 500)
    assert b"a bug" not in reply.content
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert logs[0]["exc_info"]


async def test_a_taken_event_is_not_logged(connect: Open) -> None:
    with capture_logs() as logs:
        await answer(connect, request(body=EVENT))
    assert logs == []


async def test_without_a_valid_token_it_is_401_which_tells_nothing(service: Service, connect: Open) -> None:
    replies = [
        await answer(connect, request(body=EVENT, token=None)),
        await answer(connect, request(body=EVENT, token="wrong")),  # noqa: S106 - a wrong one
        await answer(connect, request("Authorization: Basic eDp5", body=EVENT, token=None)),
        await answer(connect, request("Authorization: Bearer wrong", body=EVENT)),
        await answer(connect, request(body=b"nonsense", token=None)),
        await answer(connect, request(CHUNKED, token=None) + chunk(b"x" * LIMIT * 2) + b"0\r\n\r\n"),
        await answer(connect, request(f"Content-Length: {LIMIT + 1}", token=None)),
    ]
    for reply in replies:
        assert_problem(reply, 401)
        assert reply.headers["www-authenticate"] == "Bearer"
        assert reply.content == replies[0].content
    assert not service.inbox.entered.is_set()


async def test_tokens_are_rotated_by_writing_their_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("first\n")
    watched = WatchedTokenFile(file)
    service = Service(senders=enrolled(PartyTokens({}, watched)))
    async with listening(service.application()) as connect:

        async def statuses(*tokens: str) -> list[int]:
            return [(await answer(connect, request(body=EVENT, token=token))).status for token in tokens]

        assert await statuses("first", "second") == [202, 401]
        for content, expected in (("first\nsecond\n", [202, 202]), ("second\n", [401, 202]), ("", [401, 202])):
            file.write_text(content)
            watched.reload_if_changed()
            assert await statuses("first", "second") == expected


async def test_without_senders_no_token_is_asked_for() -> None:
    service = Service(senders=anonymous_senders(["prod"]))
    async with listening(service.application()) as connect:
        assert (await answer(connect, request(body=EVENT.replace(b"theirs", b"prod"), token=None))).status == 202
    assert service.inbox.taken[0].sender == "anonymous"


async def test_the_body_of_who_needs_no_token_takes_memory_until_it_is_answered() -> None:
    service = Service(senders=anonymous_senders(["prod"]))
    service.inbox.gate = anyio.Event()
    sent = request(body=EVENT.replace(b"theirs", b"prod"), token=None)
    async with listening(service.application()) as connect, connect() as wire:
        await wire.send(sent)
        await service.inbox.entered.wait()
        assert service.memory.used == len(sent.partition(b"\r\n\r\n")[2])
        service.inbox.gate.set()
        assert (await wire.reply()).status == 202
        assert service.memory.used == 0


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        (b"", 400, "#"),
        (b"nonsense", 400, "#"),
        (b"[" * LIMIT, 400, "#"),
        (b'{"specversion":"1.0"}', 415, "#"),
        (b"[{}]", 415, "#/0"),
        (EVENT.replace(b'"orders"', b"7"), 422, "#/name"),
        (b"[" + EVENT + b"," + EVENT.replace(b"theirs", b"unknown") + b"]", 422, "#/1/catalog"),
        (b"[" + b",".join([b"0"] * 1001) + b"]", 422, "#"),
    ],
)
async def test_what_cannot_be_understood_is_refused_whole(
    service: Service, connect: Open, body: bytes, status: int, pointer: str
) -> None:
    reply = await answer(connect, request(body=body))
    assert_problem(reply, status)
    assert [error["pointer"] for error in reply.json["errors"]] == [pointer]
    assert service.inbox.taken == []


async def test_a_compressed_body_is_415(connect: Open) -> None:
    reply = await answer(connect, request("Content-Encoding: gzip", body=EVENT))
    assert_problem(reply, 415)
    assert reply.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_another_method_is_405(connect: Open, method: str) -> None:
    reply = await answer(connect, request(method=method, token=None))
    assert_problem(reply, 405)
    assert reply.headers["allow"] == "POST, OPTIONS"


@pytest.mark.parametrize(("path", "status"), [("/v1/events", 405), ("/livez", 200), ("/readyz", 200), ("/x", 404)])
async def test_head_is_answered_without_a_body(connect: Open, path: str, status: int) -> None:
    async with connect() as wire:
        await wire.send(request(method="HEAD", path=path))
        reply = await wire.reply(headless=True)
        assert (reply.status, int(reply.headers["content-length"]) > 0) == (status, True)
        await wire.send(request(body=EVENT))
        assert (await wire.reply()).status == 202


@pytest.mark.parametrize(
    "path", ["/", "/v1/events/", "/v1/events/x", "/docs", "/redoc", "/admin/v1/brakes/prod:release"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_unknown_paths_are_404(connect: Open, path: str, method: str) -> None:
    assert_problem(await answer(connect, request(method=method, path=path, body=b"")), 404)


async def test_draining_takes_nothing_new_and_finishes_what_is_under_way(service: Service, connect: Open) -> None:
    service.inbox.gate = anyio.Event()
    async with connect() as early, connect() as late:
        await early.send(request(body=EVENT))
        with anyio.fail_after(10):
            await service.inbox.entered.wait()
        service.readiness.drain()
        await late.send(request(body=EVENT))
        reply = await late.reply()
        assert_problem(reply, 503)
        assert (reply.headers["retry-after"], reply.headers["connection"]) == ("1", "close")
        assert await late.ended()
        service.inbox.gate.set()
        assert (await early.reply()).status == 202
    assert len(service.inbox.taken) == 1


async def test_readiness_tells_its_reasons(service: Service, connect: Open) -> None:
    assert (await answer(connect, request(method="GET", path="/readyz", token=None))).json == {"status": "ready"}
    service.readiness.add_reason("the disk is full")
    service.readiness.add_reason("the inbox is not open")
    reply = await answer(connect, request(method="GET", path="/readyz", token=None))
    assert_problem(reply, 503)
    assert reply.json["detail"] == "the disk is full, the inbox is not open"
    service.readiness.clear_reason("the disk is full")
    service.readiness.clear_reason("the inbox is not open")
    assert (await answer(connect, request(method="GET", path="/readyz", token=None))).status == 200


async def test_there_is_no_way_back_from_draining_and_it_is_alive_all_the_while(
    service: Service, connect: Open
) -> None:
    service.readiness.drain()
    service.readiness.clear_reason("draining")
    assert service.readiness.reasons == ("draining",)
    assert_problem(await answer(connect, request(method="GET", path="/readyz")), 503)
    assert (await answer(connect, request(method="GET", path="/livez", token=None))).json == {"status": "alive"}


async def test_a_refusal_is_logged_without_any_token(connect: Open) -> None:
    with capture_logs() as logs:
        await answer(connect, request(body=json.dumps({"namespace": "x", "name": "\n" * 9}).encode()))
        await answer(connect, request(body=EVENT, token="n0t-a-token"))  # noqa: S106 - a wrong one
    assert "n0t-a-token" not in str(logs)
    assert TOKEN not in str(logs)
    assert [(entry["event"], entry.get("sender"), entry["status"]) for entry in logs] == [
        ("events refused", "etl", 422),
        ("request refused", None, 401),
    ]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (request(body=EVENT, token="n0t-a-token"), 401),  # noqa: S106 - a wrong one
        (request(method="GET"), 405),
    ],
    ids=["token", "method"],
)
async def test_what_is_refused_by_its_head_is_logged_but_not_each_time(connect: Open, sent: bytes, status: int) -> None:
    with capture_logs() as logs:
        replies = [await answer(connect, sent) for _ in range(3)]
    assert [reply.status for reply in replies] == [status] * 3
    (entry,) = logs
    assert entry == {
        "event": "request refused",
        "log_level": "warning",
        "where": "events",
        "status": status,
        "why": replies[0].json["detail"],
        "client": "127.0.0.1",
        "left_out": 0,
    }
