"""How a catalog is told who asks, and what happens when it does not believe it."""

from __future__ import annotations

import traceback

import anyio
import pytest
from aiohttp import web

from sfn.catalogs.rest.settings import RestSettings
from sfn.domain.catalog_answer import Loaded
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from tests.unit.rest_server import (
    ORDERS,
    PRIVATE,
    Mint,
    Open,
    Responder,
    Server,
    bearers,
    believing,
    complaint,
    pass_by,
    reply,
    running,
    table,
)


async def test_nothing_is_sent_where_nothing_is_configured(server: Server, opened: Open) -> None:
    await opened(server).load(ORDERS, None)
    assert bearers(server) == [None, None]


async def test_a_token_is_sent_with_every_request(server: Server, opened: Open) -> None:
    await opened(server, token=PRIVATE).load(ORDERS, None)
    assert bearers(server) == [f"Bearer {PRIVATE}"] * 2


async def test_a_user_in_the_uri_is_sent_as_basic_authorization(server: Server, opened: Open) -> None:
    server.uri = server.uri.replace("//", "//me:p%40ss@")
    await opened(server).load(ORDERS, None)
    assert bearers(server) == ["Basic bWU6cEBzcw=="] * 2


async def test_a_fixed_token_that_is_refused_is_not_sent_again(server: Server, opened: Open) -> None:
    server.other = believing("another")
    with pytest.raises(Permanent):
        await opened(server, token=PRIVATE).load(ORDERS, None)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("credential", "form"),
    [
        ("me:it", {"client_id": "me", "client_secret": "it"}),
        ("me:i:t", {"client_id": "me", "client_secret": "i:t"}),
        ("it", {"client_secret": "it"}),
    ],
)
async def test_credentials_are_exchanged_for_a_token(
    server: Server, opened: Open, credential: str, form: dict[str, str]
) -> None:
    mint = Mint(3600)
    server.token = mint.respond
    catalog = opened(server, credential=credential, scope="PRINCIPAL_ROLE:ALL")
    await catalog.load(ORDERS, None)
    await catalog.load(ORDERS, None)
    assert mint.forms == [{"grant_type": "client_credentials", "scope": "PRINCIPAL_ROLE:ALL", **form}]
    assert bearers(server) == ["Bearer token1"] * 3


@pytest.mark.parametrize("status", [401, 419])
async def test_a_refused_token_is_renewed_once_for_all_who_wait(server: Server, opened: Open, status: int) -> None:
    mint = Mint()
    server.token = mint.respond
    refusing = reply(b"", status)

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        await anyio.sleep(0.05)
        new = request.headers["authorization"] == "Bearer token2"
        return await (reply(table()) if new else refusing)(request)

    catalog = opened(server, credential=PRIVATE)
    await catalog.load(ORDERS, None)
    server.other = respond
    answers: list[object] = []

    async def load() -> None:
        answers.append(await catalog.load(ORDERS, None))

    async with anyio.create_task_group() as group:
        for _ in range(16):
            group.start_soon(load)
    assert len(mint.forms) == 2
    assert all(isinstance(answer, Loaded) for answer in answers)


async def test_a_token_that_is_refused_though_new_is_the_catalogs_trouble(server: Server, opened: Open) -> None:
    mint = Mint()
    server.token = mint.respond
    server.other = believing()
    with pytest.raises(Permanent) as caught:
        await opened(server, credential=PRIVATE).load(ORDERS, None)
    assert caught.value.scope is ErrorScope.CATALOG
    assert len(mint.forms) == 2
    assert len([path for path in server.asked if "orders" in path]) == 2


@pytest.mark.parametrize("expires_in", [50, "50.0"])
async def test_a_token_is_renewed_before_its_end(
    server: Server, opened: Open, expires_in: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    mint = Mint(expires_in)
    server.token = mint.respond
    catalog = opened(server, credential=PRIVATE)
    await catalog.load(ORDERS, None)
    pass_by(41, monkeypatch)
    await catalog.load(ORDERS, None)
    assert bearers(server) == ["Bearer token1", "Bearer token1", "Bearer token2"]


TOKENS: dict[str, tuple[Responder, type[ExternalError], float | None]] = {
    "400": (reply({"error": "invalid_client", "error_description": f"not {PRIVATE}"}, 400), Permanent, None),
    "401": (reply(b"", 401), Permanent, None),
    "503": (reply(b"", 503, retry_after="9"), Transient, 9.0),
    "a page": (reply(b"<html>", content_type="text/html"), Transient, None),
    "no token": (reply({"token_type": "bearer"}), Transient, None),
    "a token of two lines": (reply({"access_token": "a\r\nb: c"}), Transient, None),
}


@pytest.mark.parametrize("case", TOKENS)
async def test_no_token_is_the_catalogs_trouble(server: Server, opened: Open, case: str) -> None:
    server.token, kind, retry_after = TOKENS[case]
    with pytest.raises(ExternalError) as caught:
        await opened(server, credential=f"me:{PRIVATE}").load(ORDERS, None)
    error = caught.value
    assert (type(error), error.scope, error.retry_after) == (kind, ErrorScope.CATALOG, retry_after)
    assert f"POST {server.uri}/v1/oauth/tokens" in error.where
    assert PRIVATE not in "".join(traceback.format_exception(error))
    assert server.asked == ["/v1/oauth/tokens"]
    if case == "400":
        assert "invalid_client" in error.found


async def test_the_credential_is_not_shown_however_often_a_token_was_renewed(server: Server, opened: Open) -> None:
    mint = Mint(3600)
    server.token = mint.respond
    catalog = opened(server, credential=f"me:{PRIVATE}")

    async def tell(request: web.BaseRequest) -> web.StreamResponse:
        newest = request.headers["authorization"] == f"Bearer token{renewal}"
        return await (complaint("ForbiddenException", 403, f"not with {PRIVATE}") if newest else reply(b"", 401))(
            request
        )

    server.other = tell
    for renewal in range(1, 12):
        with pytest.raises(ExternalError) as caught:
            await catalog.load(ORDERS, None)
        assert caught.value.found.endswith("ForbiddenException: not with ***"), f"after {renewal} tokens"
    assert len(mint.forms) == 11


async def test_no_new_token_is_the_catalogs_trouble(server: Server, opened: Open) -> None:
    catalog = opened(server, credential=PRIVATE)
    await catalog.load(ORDERS, None)
    server.other = believing()
    server.token = reply(b"", 503)
    with pytest.raises(Transient) as caught:
        await catalog.load(ORDERS, None)
    assert caught.value.scope is ErrorScope.CATALOG


async def test_a_user_of_the_token_server_is_not_shown(server: Server, opened: Open) -> None:
    server.token = reply(b"", 503)
    elsewhere = f"{server.uri.replace('//', '//me:hidden@')}/v1/oauth/tokens?key=hidden"
    with pytest.raises(Transient) as caught:
        await opened(server, credential=PRIVATE, oauth2_uri=elsewhere).load(ORDERS, None)
    assert "hidden" not in str(caught.value)


async def test_tokens_may_come_from_elsewhere(server: Server, opened: Open) -> None:
    async with running() as issuer:
        mint = Mint()
        issuer.other = mint.respond
        await opened(server, credential=PRIVATE, oauth2_uri=f"{issuer.uri}/realms/x/token?v=2").load(ORDERS, None)
        assert issuer.asked == ["/realms/x/token?v=2"]
    assert bearers(server) == ["Bearer token1"] * 2


def test_no_secret_is_printed_with_the_settings() -> None:
    uri = f"https://me:{PRIVATE}@catalog"
    bearer = RestSettings(name="lake", uri=uri, headers={"x": PRIVATE}, token=PRIVATE)
    client = RestSettings(name="lake", uri=uri, oauth2_uri=uri, credential=PRIVATE)
    for settings in (bearer, client):
        assert PRIVATE not in repr(settings)
        assert PRIVATE not in str(settings)


WRONG: dict[str, dict[str, object]] = {
    "uri": {"uri": f"ftp://{PRIVATE}@catalog"},
    "uri without a host": {"uri": "https://"},
    "oauth2_uri": {"oauth2_uri": PRIVATE},
    "token and credential": {"token": PRIVATE, "credential": PRIVATE},
    "token": {"token": f"{PRIVATE}\r\nx: y"},
    "no token": {"token": ""},
    "headers": {"headers": {"x": f"{PRIVATE}\n"}},
    "page_size": {"page_size": 0},
}


@pytest.mark.parametrize("case", WRONG)
async def test_settings_that_cannot_work_are_refused(opened: Open, case: str) -> None:
    with pytest.raises(ValueError, match=r"catalogs\.lake") as caught:
        opened(Server(uri="http://catalog"), **WRONG[case])
    assert PRIVATE not in str(caught.value)
