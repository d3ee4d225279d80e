"""Authentication to a REST catalog."""

from __future__ import annotations

import traceback
from collections import Counter

import anyio
import pytest
from aiohttp import web

from sfn.catalogs import CatalogFailure, CatalogRequestFailed, Loaded
from sfn.catalogs.rest.auth import DENIED_RENEWAL_INTERVAL, RETRY_AFTER_FAILURE, Expiring, ExpiringCache
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.catalogs.rest.settings import RestSettings
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from tests.support.rest_catalog import (
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


MANY = 8


class Source:
    """Gives 1, 2, … each good for so long, or refuses."""

    def __init__(self, lasts: float | None = 100.0) -> None:
        self.asked, self.lasts, self.late, self.refuses = 0, lasts, 0.01, False

    async def ask(self) -> Expiring[int]:
        self.asked += 1
        number = self.asked
        await anyio.sleep(self.late)
        if self.refuses:
            raise CatalogRequestFailed(CatalogFailure("there", "one", f"none the {number}. time"))
        return Expiring(number, self.lasts)


@pytest.mark.parametrize(("lasts", "early"), [(1000.0, 60.0), (100.0, 20.0), (10.0, 2.0)])
async def test_it_is_had_anew_a_little_before_its_end(
    lasts: float, early: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(lasts)
    kept = ExpiringCache(source.ask)
    assert await kept.current() == await kept.current() == 1
    pass_by(lasts - early - 5, monkeypatch)
    assert await kept.current() == 1
    pass_by(lasts - early + 0.5, monkeypatch)
    assert await kept.current() == 2


@pytest.mark.parametrize(("every", "found"), [(None, 1), (50.0, 2)])
async def test_what_does_not_say_its_end_is_had_anew_as_often_as_is_wanted(
    every: float | None, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(None)
    kept = ExpiringCache(source.ask, every)
    assert await kept.current() == 1
    pass_by(10**6, monkeypatch)
    assert kept.valid_value == 1
    assert await kept.current() == found


async def test_a_good_one_is_given_while_no_new_one_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source()
    kept = ExpiringCache(source.ask)
    await kept.current()
    source.refuses = True
    pass_by(90, monkeypatch)
    assert [await kept.current() for _ in range(3)] == [1] * 3
    assert source.asked == 2, "it is not tried each time"
    pass_by(90 + RETRY_AFTER_FAILURE + 1, monkeypatch)
    assert await kept.current() == 1
    assert source.asked == 3
    pass_by(101, monkeypatch)
    assert kept.valid_value is None
    with pytest.raises(CatalogRequestFailed):
        await kept.current()


async def test_a_good_one_is_not_given_to_who_wants_another() -> None:
    source = Source()
    kept = ExpiringCache(source.ask)
    await kept.current()
    source.refuses = True
    with pytest.raises(CatalogRequestFailed):
        await kept.refresh()
    assert kept.valid_value == 1


@pytest.mark.parametrize("refuses", [False, True])
async def test_whoever_waits_shares_the_outcome(*, refuses: bool) -> None:
    source, ends = Source(), list[object]()
    source.refuses = refuses
    kept = ExpiringCache(source.ask)

    async def ask() -> None:
        try:
            ends.append(await kept.current())
        except CatalogRequestFailed as refused:
            ends.append(refused)

    async with anyio.create_task_group() as group:
        for _ in range(MANY):
            group.start_soon(ask)
    assert source.asked == 1
    if refuses:
        assert {one.failure.found for one in ends if isinstance(one, CatalogRequestFailed)} == {"none the 1. time"}
        assert len(set(map(id, ends))) == MANY, "each has an error of its own"
    else:
        assert ends == [1] * MANY


async def test_who_gives_up_leaves_the_question_to_the_next() -> None:
    source, ends = Source(), list[int]()
    source.late = 0.3
    kept = ExpiringCache(source.ask)
    impatient = anyio.CancelScope()

    async def ask(scope: anyio.CancelScope) -> None:
        with scope:
            ends.append(await kept.current())

    async with anyio.create_task_group() as group:
        for scope in (impatient, anyio.CancelScope()):
            group.start_soon(ask, scope)
        await anyio.wait_all_tasks_blocked()
        impatient.cancel()
    assert (ends, source.asked) == ([2], 2)


def test_no_value_shows() -> None:
    assert "s3cret" not in repr(Expiring("s3cret", 1.0))


CALLERS = 32
REFUSED = reply(b"", 401)
FAILED = reply(b"", 503, retry_after="9")


def after(seconds: float, answer: Responder) -> Responder:
    """The same answer, late: in steps, because a pause of the machine costs one of them."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        for _ in range(100):
            await anyio.sleep(seconds / 100)
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
        for _ in range(CALLERS):
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
    assert ends == {(Transient, ErrorScope.CATALOG): CALLERS}
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
    assert await loaded_by_many(catalog) == {(Permanent, ErrorScope.CATALOG): CALLERS}
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
        assert await loaded_by_many(catalog) == {(Transient, ErrorScope.CATALOG): CALLERS}
        with pytest.raises(Transient) as caught:
            await catalog.identity()
    assert caught.value.where == f"catalog lake: POST {server.uri}/v1/oauth/tokens"
    assert "no complete answer in time" in caught.value.found
    assert "0.3 s" in caught.value.expected
    assert asked_for_tokens(server) == 2
    assert server.configured == 0


async def test_a_token_that_is_not_answered_is_the_catalogs_trouble_at_once(server: Server, opened: Open) -> None:
    catalog = opened(server, credential=PRIVATE, config_timeout=1.5)
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
    assert await loaded_by_many(catalog) == {(Loaded, None): CALLERS}
    assert len(mint.forms) == 2


async def test_a_real_denial_asks_for_few_tokens(server: Server, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    mint = Mint()
    server.token, server.other = mint.respond, FORBIDDEN
    catalog = opened(server, credential=PRIVATE)
    for _ in range(3):
        assert await loaded_by_many(catalog) == {(Transient, ErrorScope.TABLE): CALLERS}
    assert len(mint.forms) == 2
    pass_by(DENIED_RENEWAL_INTERVAL + 1, monkeypatch)
    assert await loaded_by_many(catalog) == {(Transient, ErrorScope.TABLE): CALLERS}
    assert len(mint.forms) == 3


async def test_a_token_whose_end_is_known_is_not_renewed_after_a_403(server: Server, opened: Open) -> None:
    mint = Mint(3600)
    server.token, server.other = mint.respond, FORBIDDEN
    assert await loaded_by_many(opened(server, credential=PRIVATE)) == {(Transient, ErrorScope.TABLE): CALLERS}
    assert len(mint.forms) == 1


async def test_a_denial_stays_one_while_no_token_is_to_be_had(server: Server, opened: Open) -> None:
    catalog = opened(server, credential=PRIVATE)
    await catalog.load(ORDERS, None)
    server.token, server.other = FAILED, FORBIDDEN
    assert await loaded_by_many(catalog) == {(Transient, ErrorScope.TABLE): CALLERS}


async def test_a_lifetime_of_nothing_asks_for_no_token_with_each_request(server: Server, opened: Open) -> None:
    mint = Mint(0)
    server.token = mint.respond
    catalog = opened(server, credential=PRIVATE)
    for _ in range(3):
        await catalog.load(ORDERS, None)
    assert len(mint.forms) == 1
