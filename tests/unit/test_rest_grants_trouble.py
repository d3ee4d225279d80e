"""Grants that can't be had: whose trouble that is, and that no secret shows whatever a catalog says."""

from __future__ import annotations

import logging
import traceback

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from sfn.catalogs.rest.catalog import RestCatalog
from sfn.domain.catalog_answer import NoSuchTable
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from tests.unit.rest_server import ORDERS, PRIVATE, Open, Responder, Server, complaint, pass_by, reply, table
from tests.unit.vending_server import CREDENTIALS, LOAD, Vending, listing

THEIRS = "secret-access-key-number-1"


@pytest.fixture
def vending(server: Server) -> Vending:
    found = Vending()
    server.other = found.respond
    server.config = listing(LOAD, CREDENTIALS)
    return found


async def trouble_of(catalog: RestCatalog, asked: TableIdentifier = ORDERS) -> ExternalError:
    with pytest.raises(ExternalError) as caught:
        await catalog.vended_credentials(asked)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


TROUBLES: dict[str, tuple[Responder, type[ExternalError], ErrorScope]] = {
    "401": (reply(b"", 401), Permanent, ErrorScope.CATALOG),
    "403": (complaint("ForbiddenException", 403), Transient, ErrorScope.TABLE),
    "409": (reply(b"", 409), Permanent, ErrorScope.TABLE),
    "429": (reply(b"", 429), Transient, ErrorScope.CATALOG),
    "503": (reply(b"", 503), Transient, ErrorScope.TABLE),
    "no JSON": (reply(b"<html>"), Transient, ErrorScope.TABLE),
    "another shape": (reply({"storage-credentials": {"prefix": "x"}}), Transient, ErrorScope.TABLE),
}


@pytest.mark.parametrize("by_load", [False, True])
@pytest.mark.parametrize("case", TROUBLES)
async def test_trouble_is_that_of_a_load(
    server: Server, opened: Open, vending: Vending, case: str, by_load: bool
) -> None:
    answer, kind, scope = TROUBLES[case]
    vending.endpoint, vending.load = (None, answer) if by_load else (answer, None)
    server.config = listing(LOAD, *([] if by_load else [CREDENTIALS]))
    trouble = await trouble_of(opened(server))
    assert (type(trouble), trouble.scope) == (kind, scope)
    assert vending.given == 0


@pytest.mark.parametrize("status", [400, 404, 405, 501])
async def test_an_endpoint_that_is_listed_is_believed_to_be_there(
    server: Server, opened: Open, vending: Vending, status: int
) -> None:
    vending.endpoint = reply(b"", status)
    await trouble_of(opened(server))
    assert vending.given == 0


@pytest.mark.usefixtures("vending")
async def test_a_name_that_cannot_be_said_is_not_asked_for(server: Server, opened: Open) -> None:
    trouble = await trouble_of(opened(server), TableIdentifier("lake", (), "t"))
    assert (type(trouble), trouble.scope) == (Permanent, ErrorScope.TABLE)


async def test_good_grants_are_given_while_the_catalog_has_trouble(
    server: Server, opened: Open, vending: Vending, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = opened(server)
    kept = await catalog.vended_credentials(ORDERS)
    assert not isinstance(kept, NoSuchTable)
    vending.endpoint = reply(b"", 503)
    pass_by(3600 - 50, monkeypatch)
    assert await catalog.vended_credentials(ORDERS) == kept
    asked = len(server.asked)
    assert await catalog.vended_credentials(ORDERS) == kept
    assert len(server.asked) == asked, "it is not asked each time"
    with pytest.raises(Transient):
        await catalog.renew_credentials(ORDERS, kept)
    pass_by(3601, monkeypatch)
    await trouble_of(catalog)


WITH_SECRETS: dict[str, Responder] = {
    "an error": complaint("ForbiddenException", 403, f"not with {THEIRS} and {PRIVATE}"),
    "another status": reply({"storage-credentials": [{"prefix": "", "config": {"s3.secret-access-key": THEIRS}}]}, 207),
    "a status of an error": reply({"config": {"s3.secret-access-key": THEIRS}}, 500),
    "another shape": reply({"storage-credentials": [{"config": {"s3.secret-access-key": THEIRS}}]}),
    "half of it": reply(f'{{"config": {{"s3.secret-access-key": "{THEIRS}'.encode()),
}


@pytest.mark.parametrize("by_load", [False, True])
@pytest.mark.parametrize("case", WITH_SECRETS)
async def test_no_secret_shows_in_any_message_or_log(
    server: Server, opened: Open, vending: Vending, case: str, by_load: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server.config = listing(LOAD, *([] if by_load else [CREDENTIALS]))
    catalog, errors = opened(server, token=PRIVATE), list[ExternalError]()
    caplog.set_level(logging.DEBUG)
    with capture_logs() as logs:
        kept = await catalog.vended_credentials(ORDERS)
        assert not isinstance(kept, NoSuchTable)
        assert kept[0].config["s3.secret-access-key"] == THEIRS
        vending.endpoint = vending.load = WITH_SECRETS[case]
        with pytest.raises(ExternalError) as renewing:
            await catalog.renew_credentials(ORDERS, kept)
        errors.append(renewing.value)
        errors.append(
            await trouble_of(catalog, TableIdentifier("lake", ("sales",), "another"))
            if case != "an error"
            else renewing.value
        )
    shown = [str(logs), caplog.text, repr(kept), repr(catalog), str(vars(catalog))]
    shown += [text for error in errors for text in (str(error), repr(error), *traceback.format_exception(error))]
    for text in shown:
        assert THEIRS not in text
        assert PRIVATE not in text


async def test_a_load_of_a_large_table_gives_its_grants_alone(server: Server, opened: Open, vending: Vending) -> None:
    server.config = listing(LOAD)
    snapshots = [{"snapshot-id": number, "summary": {"x": "y" * 1000}} for number in range(12_000)]
    vending.load = reply({**table(snapshots=snapshots), **vending.shape(vending.keys())})
    grants = await opened(server).vended_credentials(ORDERS)
    assert not isinstance(grants, NoSuchTable)
    assert [grant.prefix for grant in grants] == ["s3://lake/orders"]


@pytest.mark.parametrize("is_listed", [False, True])
async def test_a_table_that_is_gone_by_another_type_of_error_gives_no_grants_once_nothing_lists_it(
    server: Server, opened: Open, is_listed: bool
) -> None:
    names = [{"namespace": ["sales"], "name": "orders"}] if is_listed else []
    gone = complaint("BaseException", 404)

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        return await (reply({"identifiers": names}) if request.path.endswith("/tables") else gone)(request)

    server.other = respond
    server.config = listing(LOAD)
    catalog = opened(server)
    if is_listed:
        assert (await trouble_of(catalog)).scope is ErrorScope.TABLE
    else:
        assert await catalog.vended_credentials(ORDERS) == NoSuchTable()


async def test_grants_are_asked_for_without_a_query_that_the_catalog_refuses(
    server: Server, opened: Open, vending: Vending
) -> None:
    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        refusal = complaint("BadRequestException", 400)
        return await (refusal if "snapshots" in request.query_string else vending.respond)(request)

    server.other = respond
    server.config = listing(LOAD)
    assert await opened(server).vended_credentials(ORDERS)
