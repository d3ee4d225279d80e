"""Many who need a token at once: one request for all, whatever comes of it, and none that takes for ever."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
from aiohttp import web

from sfn.catalog.rest import RestCatalog
from sfn.errors import Permanent, Scope, Transient, Trouble
from sfn.words import Loaded
from tests.unit.rest_server import ORDERS, PRIVATE, Open, Responder, Server, pass_by, reply, table

MANY = 32
REFUSED = reply(b"", 401)
FAILED = reply(b"", 503, retry_after="9")


def after(seconds: float, answer: Responder) -> Responder:
    """The same answer, late."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        await anyio.sleep(seconds)
        return await answer(request)

    return respond


def asked_for_tokens(server: Server) -> int:
    return sum(request.method == "POST" for request in server.requests)


async def loaded_by_many(catalog: RestCatalog) -> Counter[tuple[type[object], Scope | None]]:
    """What came of as many loads at once: the kinds of answers, or of troubles with their scopes."""
    ends: Counter[tuple[type[object], Scope | None]] = Counter()

    async def load() -> None:
        try:
            answer = await catalog.load(ORDERS, None)
        except Trouble as trouble:
            ends[type(trouble), trouble.scope] += 1
        else:
            ends[type(answer), None] += 1

    async with anyio.create_task_group() as group:
        for _ in range(MANY):
            group.start_soon(load)
    return ends


@pytest.mark.parametrize("why", ["refused", "ended"])
async def test_a_failure_is_shared_by_all_who_waited_for_it(
    server: Server, opened: Open, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.token = reply({"access_token": PRIVATE, "expires_in": 3600})
    catalog = opened(server, credential=PRIVATE)
    await catalog.load(ORDERS, None)
    server.token = after(0.3, FAILED)
    if why == "ended":
        pass_by(3600, monkeypatch)
    else:
        server.other = REFUSED
    with anyio.fail_after(30):
        ends = await loaded_by_many(catalog)
    assert ends == {(Transient, Scope.CATALOG): MANY}
    assert asked_for_tokens(server) == 2


async def test_a_failure_is_not_kept_for_those_who_come_later(server: Server, opened: Open) -> None:
    server.token = FAILED
    catalog = opened(server, credential=PRIVATE)
    for _ in range(2):
        with pytest.raises(Transient):
            await catalog.load(ORDERS, None)
    server.token = reply({"access_token": PRIVATE})
    assert isinstance(await catalog.load(ORDERS, None), Loaded)
    assert asked_for_tokens(server) == 3


async def test_a_token_that_comes_again_though_refused_is_asked_for_once(server: Server, opened: Open) -> None:
    catalog = opened(server, credential=PRIVATE)
    await catalog.load(ORDERS, None)
    server.token = after(0.3, server.token)
    server.other = REFUSED
    assert await loaded_by_many(catalog) == {(Permanent, Scope.CATALOG): MANY}
    assert asked_for_tokens(server) == 2


async def test_who_gives_up_does_not_fail_those_who_wait(server: Server, opened: Open) -> None:
    catalog = opened(server, credential=PRIVATE)
    await catalog.load(ORDERS, None)
    server.token = after(0.5, reply({"access_token": "another"}))

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        new = request.headers["authorization"] == "Bearer another"
        return await (reply(table()) if new else REFUSED)(request)

    answers: list[object] = []

    async def load(scope: anyio.CancelScope) -> None:
        with scope:
            answers.append(await catalog.load(ORDERS, None))

    server.other = respond
    impatient = anyio.CancelScope()
    async with anyio.create_task_group() as group:
        for scope in (impatient, anyio.CancelScope()):
            group.start_soon(load, scope)
            await anyio.sleep(0.1)
        impatient.cancel()
    assert [type(answer) for answer in answers] == [Loaded]
    assert asked_for_tokens(server) == 3


async def test_a_token_takes_no_longer_than_the_configuration_may(server: Server, opened: Open) -> None:
    server.token = after(30, FAILED)
    catalog = opened(server, credential=PRIVATE, config_timeout=0.3)
    with anyio.fail_after(5):
        assert await loaded_by_many(catalog) == {(Transient, Scope.CATALOG): MANY}
        with pytest.raises(Transient) as caught:
            await catalog.identity()
    assert caught.value.where == f"catalog lake: POST {server.uri}/v1/oauth/tokens"
    assert "no whole answer in time" in caught.value.found
    assert "0.3 s" in caught.value.expected
    assert asked_for_tokens(server) == 2
    assert server.configured == 0


async def test_a_token_that_is_not_answered_is_the_catalogs_trouble_at_once(server: Server, opened: Open) -> None:
    catalog = opened(server, credential=PRIVATE, config_timeout=0.3)
    await catalog.load(ORDERS, None)
    server.token, server.other = after(30, FAILED), REFUSED
    with pytest.raises(Transient) as caught:
        await catalog.load(ORDERS, None)
    assert caught.value.scope is Scope.CATALOG
    assert (asked_for_tokens(server), server.configured) == (2, 1)
