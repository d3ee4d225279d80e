"""What an operator's order may cost, and that it costs nothing before anybody knows that an operator sent it."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sfn.http.app import build_app
from sfn.http.body import ADMIN_BODY_LIMITS, BodyLimitMiddleware, BodyLimits
from tests.integration.listening import CHUNKED, Service, answer, assert_problem, chunk, listening, request
from tests.integration.operating import Office

REPLAY = "/admin/v1/dead-letters:replay"
OPERATOR = "an-operators-token"


def served() -> Any:  # noqa: ANN401 - an application
    service = Service()
    return build_app(
        service.ingest(),
        service.readiness,
        version="1",
        on_fatal=service.broken.append,
        routers=[Office().router()],
    )


async def test_a_body_that_says_how_large_it_is_is_not_read() -> None:
    async with listening(served()) as connect:
        head = request(f"Content-Length: {ADMIN_BODY_LIMITS.size + 1}", path=REPLAY, token=OPERATOR)
        assert_problem(await answer(connect, head), 413)


async def test_a_body_that_grows_is_read_no_further() -> None:
    async with listening(served()) as connect, connect() as wire:
        await wire.send(request(CHUNKED, path=REPLAY, token=OPERATOR))
        for _ in range(ADMIN_BODY_LIMITS.size // 65_536 + 1):
            await wire.send(chunk(b" " * 65_536))
        assert_problem(await wire.reply(), 413)


async def test_an_order_of_an_allowed_size_arrives_whole() -> None:
    async with listening(served()) as connect:
        body = b" " * (ADMIN_BODY_LIMITS.size - 20) + b'{"ids": [1]}'
        assert (
            await answer(connect, request("Content-Type: application/json", path=REPLAY, body=body, token=OPERATOR))
        ).status == 200


async def test_a_body_that_never_ends_is_given_up() -> None:
    async def reads(asked: Request) -> Response:
        return Response(await asked.body())

    patient = Starlette(routes=[Route(REPLAY, reads, methods=["POST"])])
    async with (
        listening(BodyLimitMiddleware(patient, BodyLimits(size=100, deadline=0.2))) as connect,
        connect() as wire,
    ):
        await wire.send(request("Content-Length: 50", path=REPLAY, token=None), b"{")
        reply = await wire.reply()
        assert (reply.status, reply.headers["connection"]) == (408, "close")


@pytest.mark.parametrize("size", [50, ADMIN_BODY_LIMITS.size + 1])
async def test_the_body_of_who_is_no_operator_is_not_read(size: int) -> None:
    async with listening(served()) as connect, connect() as wire:
        await wire.send(request(f"Content-Length: {size}", path=REPLAY, token=None), b"{")
        assert_problem(await wire.reply(), 401)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_what_has_no_body_is_answered_without_one(method: str) -> None:
    async with listening(served()) as connect, connect() as wire:
        await wire.send(request("Content-Length: 5", path="/livez", method=method, token=None))
        assert (await wire.reply(headless=method == "HEAD")).status == 200
