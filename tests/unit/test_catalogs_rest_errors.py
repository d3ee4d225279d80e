"""What comes instead of an answer, and whose trouble it is."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import anyio
import pytest
from aiohttp import web

from sfn.catalogs import Loaded, NoSuchTable
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from tests.support.rest_catalog import ORDERS, PRIVATE, Open, Responder, Server, complaint, reply, running, table

OK = reply({"defaults": {}, "overrides": {}})
BROKEN = reply(b"<h1>Bad Gateway</h1>", 502, content_type="text/html")


async def trouble_of(catalog: RestCatalog, asked: TableIdentifier = ORDERS, known: str | None = None) -> ExternalError:
    with pytest.raises(ExternalError) as caught:
        await catalog.load(asked, known)
    error = caught.value
    assert PRIVATE not in str(error)
    assert PRIVATE not in repr(error)
    assert str(error).isprintable()
    assert "catalog lake" in error.where
    assert "?" not in error.where
    assert error.__cause__ is None
    assert error.__context__ is None
    return error


def half(length: int = 1000) -> Responder:
    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": str(length)})
        await response.prepare(request)
        await response.write(b'{"metadata-location": "s3://b/t/meta')
        assert request.transport is not None
        request.transport.close()
        return response

    return respond


async def slow(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-length": "1000"})
    await response.prepare(request)
    await response.write(b"{")
    await anyio.sleep(30)
    return response


async def hang_up(request: web.BaseRequest) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def echo(request: web.BaseRequest) -> web.StreamResponse:
    message = f"no entry\nfor {request.headers.get('authorization')}, {request.headers.get('x-key')}"
    return web.json_response({"error": {"message": message, "type": "ForbiddenException", "code": 403}}, status=403)


HTML = b"<!doctype html><title>404</title>"
CASES: dict[str, tuple[Responder, type[ExternalError], float | None]] = {
    "500": (complaint("ServerError", 500), Transient, None),
    "500 without a body": (reply(b"", 500), Transient, None),
    "503": (reply(b"later", 503, retry_after="7"), Transient, 7.0),
    "504 of a proxy": (reply(HTML, 504, content_type="text/html"), Transient, None),
    "408": (reply(b"", 408), Transient, None),
    "403": (complaint("ForbiddenException", 403), Transient, None),
    "400": (complaint("BadRequestException", 400), Permanent, None),
    "405": (reply(b"", 405), Permanent, None),
    "404 of a web server": (reply(HTML, 404, content_type="text/html"), Transient, None),
    "404 of another API": (reply({"message": "no route"}, 404), Transient, None),
    "404 of the warehouse": (complaint("NotFoundException", 404), Transient, None),
    "404 of a view": (complaint("NoSuchViewException", 404), Transient, None),
    "404 whose body speaks of another status": (
        reply({"error": {"message": "", "type": "NoSuchTableException", "code": 500}}, 404),
        Transient,
        None,
    ),
    "the body of a 404 with another status": (
        reply({"error": {"message": "", "type": "NoSuchTableException", "code": 404}}, 200),
        Transient,
        None,
    ),
    "no JSON": (reply(b"hello"), Transient, None),
    "nothing": (reply(b""), Transient, None),
    "JSON of another shape": (reply({"metadata": []}), Transient, None),
    "JSON without a uuid": (reply(table(table_uuid=None)), Transient, None),
    "JSON nested too deeply": (reply(b'{"x":' + b"[" * 100_000), Transient, None),
    "text that is not UTF-8": (reply(b'{"metadata-location":"\xff"}'), Transient, None),
    "an unknown encoding": (reply(b"???", content_encoding="sfn"), Transient, None),
    "a broken encoding": (reply(b"no gzip", content_encoding="gzip"), Transient, None),
    "half a body": (half(), Transient, None),
    "no response": (hang_up, Transient, None),
    "a slow body": (slow, Transient, None),
    "304 unasked": (reply(b"", 304), Transient, None),
    "204": (reply(b"", 204), Transient, None),
    "a redirect": (reply(b"", 302, location=f"https://login.example/?token={PRIVATE}"), Permanent, None),
}


@pytest.mark.parametrize("case", CASES)
async def test_one_reply_is_the_tables_trouble_while_the_catalog_has_a_configuration(
    server: Server, opened: Open, case: str
) -> None:
    server.other, kind, retry_after = CASES[case]
    error = await trouble_of(opened(server, request_timeout=0.5 if case == "a slow body" else 10.0, token=PRIVATE))
    assert (type(error), error.scope, error.retry_after) == (kind, ErrorScope.TABLE, retry_after)
    assert f"{server.uri}/v1/namespaces/sales/tables/orders" in error.where
    assert (" within " in error.expected) == (case == "a slow body")
    # Of a 404 in Iceberg's shape a listing is asked for as well, and fails.
    assert server.configured == (3 if case in {"404 of the warehouse", "404 of a view"} else 2)


@pytest.mark.parametrize("case", CASES)
async def test_it_is_the_catalogs_trouble_when_its_configuration_fails_too(
    server: Server, opened: Open, case: str
) -> None:
    server.other, _, retry_after = CASES[case]
    catalog = opened(server, request_timeout=0.5 if case == "a slow body" else 10.0, token=PRIVATE)
    await catalog.identity()
    server.config = BROKEN
    error = await trouble_of(catalog)
    assert (type(error), error.scope, error.retry_after) == (Transient, ErrorScope.CATALOG, retry_after)
    assert "status 502" in error.found
    assert "/v1/config" in error.found


@pytest.mark.parametrize(("status", "kind"), [(401, Permanent), (419, Permanent), (429, Transient)])
async def test_some_statuses_are_always_the_catalogs_trouble(
    server: Server, opened: Open, status: int, kind: type[ExternalError]
) -> None:
    server.other = reply(b"", status, retry_after="3")
    catalog = opened(server, token=PRIVATE)
    error = await trouble_of(catalog)
    assert (type(error), error.scope, error.retry_after) == (kind, ErrorScope.CATALOG, 3.0)
    assert len(server.asked) == 1
    assert server.configured == 1
    await trouble_of(catalog)
    assert server.configured == 2, "it is asked again after the catalog's own trouble"


CONFIGS: dict[str, tuple[Responder, type[ExternalError]]] = {
    "401": (reply(b"", 401), Permanent),
    "403": (complaint("ForbiddenException", 403), Permanent),
    "404": (complaint("NotFoundException", 404), Transient),
    "400": (complaint("BadRequestException", 400), Permanent),
    "a page": (reply(HTML, content_type="text/html"), Transient),
    "another API": (reply({"hello": "world"}), Transient),
    "a prefix that is no text": (reply({"overrides": {"prefix": ["a"]}}), Transient),
    "a header that is no text": (reply({"overrides": {"header.x": True}}), Transient),
    "an override that leads nowhere": (reply({"overrides": {"uri": "ftp://elsewhere"}}), Permanent),
    "a slow body": (slow, Transient),
}


@pytest.mark.parametrize("case", CONFIGS)
async def test_without_a_configuration_nothing_is_asked(server: Server, opened: Open, case: str) -> None:
    server.config, kind = CONFIGS[case]
    error = await trouble_of(opened(server, config_timeout=0.3 if case == "a slow body" else 10.0))
    assert (type(error), error.scope) == (kind, ErrorScope.CATALOG)
    assert f"{server.uri}/v1/config" in error.where
    assert server.asked == []


async def test_a_refused_connection_is_the_catalogs_trouble(opened: Open) -> None:
    async with running() as gone:
        pass
    error = await trouble_of(opened(gone))
    assert (type(error), error.scope) == (Transient, ErrorScope.CATALOG)
    assert "ECONNREFUSED" in error.found


async def test_a_catalog_that_goes_away_is_the_catalogs_trouble(opened: Open) -> None:
    async with running() as server:
        catalog = opened(server)
        await trouble_of(catalog)
    error = await trouble_of(catalog)
    assert (type(error), error.scope) == (Transient, ErrorScope.CATALOG)


async def test_a_port_without_tls_is_the_catalogs_trouble(server: Server, opened: Open) -> None:
    server.uri = server.uri.replace("http:", "https:")
    error = await trouble_of(opened(server))
    assert (type(error), error.scope) == (Permanent, ErrorScope.CATALOG)
    assert "TLS" in error.found


async def test_a_missing_ca_file_is_the_catalogs_trouble(server: Server, opened: Open) -> None:
    error = await trouble_of(opened(server, ca_file=Path("/nowhere/ca.pem")))
    assert (type(error), error.scope) == (Permanent, ErrorScope.CATALOG)
    assert "/nowhere/ca.pem" in error.where


@pytest.mark.parametrize("name", ["NoSuchTableException", "NoSuchNamespaceException", "NoSuchIcebergTableException"])
async def test_only_icebergs_own_404_says_that_there_is_no_table(server: Server, opened: Open, name: str) -> None:
    server.other = complaint(name, 404)
    assert await opened(server).load(ORDERS, None) == NoSuchTable()


def gone_by(kind: str | None, status: int = 404, code: object = None, *, listed: bool) -> Responder:
    """A catalog that does not find the table `orders`, and lists it or not."""
    error = {"message": "gone", "type": kind, "code": status if code is None else code}
    missing = reply({"error": {key: value for key, value in error.items() if value is not None}}, status)
    names = [{"namespace": ["sales"], "name": name} for name in (["orders"] if listed else []) + ["other"]]

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        return await (missing if request.path.endswith("/orders") else reply({"identifiers": names}))(request)

    return respond


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("BaseException", 404, 404),
        ("EntityNotFoundException", 404, 404),
        ("NoSuchTabularException", 404, 404),
        ("NotFoundException", 404, 404),
        ("NoSuchViewException", 404, 404),
        ("RESTException", 404, "404"),
        ("", 404, 404),
        (None, 404, 404),
        ("NoSuchTableException", 400, 400),
    ],
)
async def test_a_404_of_another_type_counts_once_no_listing_names_the_table(
    server: Server, opened: Open, kind: str | None, status: int, code: object
) -> None:
    server.other = gone_by(kind, status, code, listed=False)
    assert await opened(server).load(ORDERS, None) == NoSuchTable()
    server.other = gone_by(kind, status, code, listed=True)
    trouble = await trouble_of(opened(server))
    assert trouble.scope is ErrorScope.TABLE
    assert "its namespace lists it" in trouble.found


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"message": "Table not found", "status_code": 404}, 404),
        ({"error_code": "TABLE_DOES_NOT_EXIST", "message": "no"}, 404),
        ({"error": "no"}, 404),
        ({"error": {"message": "no", "type": "BaseException", "code": 500}}, 404),
        ({"error": {"message": "no", "type": "BaseException"}}, 404),
        ({"error": {"message": "no", "type": "BaseException", "code": "gone"}}, 404),
        ({"error": {"message": "no", "type": "BadRequestException", "code": 400}}, 400),
        ({"error": {"message": "no", "type": "NoSuchTableException", "code": 403}}, 403),
        ({"error": {"message": "no", "type": "NoSuchTableException", "code": 500}}, 500),
    ],
)
async def test_what_is_no_404_of_iceberg_is_no_absence_whatever_is_listed(
    server: Server, opened: Open, body: object, status: int
) -> None:
    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        answer = reply(body, status) if request.path.endswith("/orders") else reply({"identifiers": []})
        return await answer(request)

    server.other = respond
    assert (await trouble_of(opened(server))).scope is ErrorScope.TABLE


@pytest.mark.parametrize("status", [400, 406, 422, 501])
async def test_a_catalog_that_refuses_the_query_for_refs_is_asked_once_more_without(
    server: Server, opened: Open, status: int
) -> None:
    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        refusal = complaint("BadRequestException", status, "unknown parameter snapshots")
        return await (refusal if "snapshots" in request.query_string else reply(table()))(request)

    server.other = respond
    catalog = opened(server)
    for _ in range(3):
        assert isinstance(await catalog.load(ORDERS, None), Loaded)
    orders = "/v1/namespaces/sales/tables/orders"
    assert server.asked == [f"{orders}?snapshots=refs", *[orders] * 3]


async def test_a_table_that_is_refused_with_and_without_refs_stays_refused(server: Server, opened: Open) -> None:
    server.other = complaint("BadRequestException", 400)
    assert isinstance(await trouble_of(opened(server)), Permanent)
    assert len(server.asked) == 2


@pytest.mark.parametrize("announced", [True, False])
async def test_an_answer_above_the_limit_is_the_tables_trouble(server: Server, opened: Open, announced: bool) -> None:
    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": str(2**30)} if announced else {})
        await response.prepare(request)
        while True:
            await response.write(bytes(2**16))

    server.other = respond
    catalog = opened(server, body_limit=1000, request_timeout=10.0)
    error = await trouble_of(catalog)
    assert (type(error), error.scope) == (Permanent, ErrorScope.TABLE)
    assert "1000 bytes" in error.expected
    assert server.configured == 1


async def test_what_the_catalog_says_is_repeated_without_our_secrets(server: Server, opened: Open) -> None:
    server.other = echo
    error = await trouble_of(opened(server, token=PRIVATE, headers={"x-key": "another-secret"}))
    assert "ForbiddenException: no entry for Bearer ***, ***" in error.found
    assert "another-secret" not in str(error)


async def test_a_redirect_is_named_but_not_followed(server: Server, opened: Open) -> None:
    async with running() as elsewhere:
        server.other = reply(b"", 307, location=f"{elsewhere.uri}/v1/there?code=once")
        error = await trouble_of(opened(server, token=PRIVATE))
        assert f"{elsewhere.uri}/v1/there" in error.found
        assert "once" not in str(error)
        assert elsewhere.requests == []


async def test_a_message_holds_nothing_that_a_log_cannot_write(server: Server, opened: Open) -> None:
    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 500 X\r\nContent-Type: \xff\x85\r\nContent-Length: 0\r\n\r\n")
        return await hang_up(request)

    server.other = respond
    error = await trouble_of(opened(server))
    assert "status 500" in error.found
    assert str(error).encode()


async def test_a_redirect_within_the_host_is_named(server: Server, opened: Open) -> None:
    server.other = reply(b"", 308, location="/login?x=1")
    assert "status 308 to /login with" in (await trouble_of(opened(server))).found


async def test_retry_after_may_be_a_date(server: Server, opened: Open) -> None:
    dates = {"date": "Sat, 21 Nov 2026 12:00:00 GMT", "retry_after": "Sat, 21 Nov 2026 12:01:30 GMT"}
    server.other = reply(b"", 429, **dates)
    assert (await trouble_of(opened(server))).retry_after == 90.0
    server.other = reply(b"", 429, **dates | {"retry_after": "Sat, 21 Nov 2020 12:01:30 GMT"})
    assert (await trouble_of(opened(server))).retry_after == 0.0
    server.other = reply(b"", 429, retry_after="soon")
    assert (await trouble_of(opened(server))).retry_after is None


async def test_many_that_fail_at_once_ask_for_the_configuration_together(server: Server, opened: Open) -> None:
    server.config = slow
    catalog = opened(server, config_timeout=0.3)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            for _ in range(32):
                group.start_soon(trouble_of, catalog)
    assert server.configured == 1
    assert re.search("no complete answer in time", (await trouble_of(catalog)).found)


@pytest.mark.parametrize("status", [200, 500])
async def test_a_compressed_answer_is_read_no_further_than_its_limit(server: Server, opened: Open, status: int) -> None:
    server.other = reply(gzip.compress(bytes(2**24)), status, content_encoding="gzip")
    error = await trouble_of(opened(server, body_limit=1000))
    assert error.scope is ErrorScope.TABLE
    assert ("1000 bytes" in error.expected) == (status == 200)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_no_redirect_is_followed(server: Server, opened: Open, status: int) -> None:
    async with running() as elsewhere:
        server.other = reply(b"", status, location=f"{elsewhere.uri}/v1/x")
        error = await trouble_of(opened(server, token=PRIVATE))
        assert (type(error), elsewhere.requests) == (Permanent, [])
    assert "set uri to the redirect's target" in error.remedy


async def test_an_encoding_that_no_gateway_could_read_either_is_named(server: Server, opened: Open) -> None:
    server.config = reply({"defaults": {}, "overrides": {}}, content_encoding="br")
    with pytest.raises(Transient, match="an answer in an unknown encoding") as caught:
        await opened(server).load(ORDERS, None)
    assert "bypass the gateway" in caught.value.remedy
