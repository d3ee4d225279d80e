"""Many who need a token at once: one request for all, whatever comes of it, and none that takes for ever."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
from aiohttp import web

from sfn.catalogs.rest.auth import DENIED_RENEWAL_INTERVAL
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.domain.catalog_answer import Loaded
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from tests.unit.rest_server import ORDERS, PRIVATE, Mint, Open, Responder, Server, complaint, pass_by, reply, table

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


async def loaded_by_many(catalog: RestCatalog) -> Counter[tuple[type[object], ErrorScope | None]]:
    """What came of as many loads at once: the kinds of answers, or of troubles with their scopes."""
    ends: Counter[tuple[type[object], ErrorScope | None]] = Counter()

    async def load() -> None:
        try:
            answer = await catalog.load(ORDERS, None)
        except ExternalError as trouble:
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
    assert ends == {(Transient, ErrorScope.CATALOG): MANY}
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
    assert await loaded_by_many(catalog) == {(Permanent, ErrorScope.CATALOG): MANY}
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
        assert await loaded_by_many(catalog) == {(Transient, ErrorScope.CATALOG): MANY}
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
    assert caught.value.scope is ErrorScope.CATALOG
    assert (asked_for_tokens(server), server.configured) == (2, 1)


FORBIDDEN = complaint("ForbiddenException", 403, "Invalid access token")


def knowing(*, valid: set[str], other: Responder = FORBIDDEN) -> Responder:
    """Answers a table to who brings a valid token, and something else to all others."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        token = request.headers["authorization"].removeprefix("Bearer ")
        return await (reply(table()) if token in valid else other)(request)

    return respond


@pytest.mark.parametrize(
    "refusal",
    [FORBIDDEN, reply({"error_code": "403", "message": "Invalid access token."}, 403), reply(b"", 501)],
    ids=["403", "403 of another shape", "501"],
)
async def test_a_token_of_unknown_lifetime_is_renewed_once_for_all_after_a_403(
    server: Server, opened: Open, refusal: Responder
) -> None:
    mint, valid = Mint(), {"token1"}
    server.token, server.other = after(0.1, mint.respond), knowing(valid=valid, other=refusal)
    catalog = opened(server, credential=PRIVATE)
    await catalog.load(ORDERS, None)
    valid.clear()
    valid.add("token2")
    assert await loaded_by_many(catalog) == {(Loaded, None): MANY}
    assert len(mint.forms) == 2


async def test_a_real_denial_asks_for_few_tokens(server: Server, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    mint = Mint()
    server.token, server.other = mint.respond, FORBIDDEN
    catalog = opened(server, credential=PRIVATE)
    for _ in range(3):
        assert await loaded_by_many(catalog) == {(Transient, ErrorScope.TABLE): MANY}
    assert len(mint.forms) == 2
    pass_by(DENIED_RENEWAL_INTERVAL + 1, monkeypatch)
    assert await loaded_by_many(catalog) == {(Transient, ErrorScope.TABLE): MANY}
    assert len(mint.forms) == 3


async def test_a_token_whose_end_is_known_is_not_renewed_after_a_403(server: Server, opened: Open) -> None:
    mint = Mint(3600)
    server.token, server.other = mint.respond, FORBIDDEN
    assert await loaded_by_many(opened(server, credential=PRIVATE)) == {(Transient, ErrorScope.TABLE): MANY}
    assert len(mint.forms) == 1


async def test_a_denial_stays_one_while_no_token_is_to_be_had(server: Server, opened: Open) -> None:
    catalog = opened(server, credential=PRIVATE)
    await catalog.load(ORDERS, None)
    server.token, server.other = FAILED, FORBIDDEN
    assert await loaded_by_many(catalog) == {(Transient, ErrorScope.TABLE): MANY}


async def test_a_lifetime_of_nothing_asks_for_no_token_with_each_request(server: Server, opened: Open) -> None:
    mint = Mint(0)
    server.token = mint.respond
    catalog = opened(server, credential=PRIVATE)
    for _ in range(3):
        await catalog.load(ORDERS, None)
    assert len(mint.forms) == 1
