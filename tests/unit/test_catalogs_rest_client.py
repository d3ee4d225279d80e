"""What goes over the wire to a catalog, byte for byte, and what is read from its answers."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import anyio
import msgspec
import pytest
from aiohttp import web

from sfn.catalogs import CatalogFailure, Loaded, NotModified, StagedCreate
from sfn.catalogs.rest import responses
from sfn.catalogs.rest.client import route_of
from sfn.catalogs.rest.errors import CatalogReply
from sfn.catalogs.rest.settings import RestSettings
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient, UnaddressableTable
from tests.support.rest_catalog import ORDERS, PRIVATE, Open, Responder, Server, reply, running, table

FIRST = {"prefix": "first"}
SECOND = {"prefix": "second"}


def configured(overrides: dict[str, str], defaults: dict[str, str] | None = None) -> Responder:
    return reply({"defaults": defaults or {}, "overrides": overrides})


@pytest.mark.parametrize(
    ("namespace", "name", "path"),
    [
        (("sales",), "orders", "sales/tables/orders"),
        (("a", "b c"), "t", "a%1Fb%20c/tables/t"),
        (("a.b",), "c.d", "a.b/tables/c.d"),
        (("a%2Fb",), "50%", "a%252Fb/tables/50%25"),
        (("a/b",), "c/d", "a%2Fb/tables/c%2Fd"),
        (("ü",), "日本", "%C3%BC/tables/%E6%97%A5%E6%9C%AC"),
        (("a+b",), "c&d=e?f#g", "a%2Bb/tables/c%26d%3De%3Ff%23g"),
        (("..",), ".", "%2E%2E/tables/%2E"),
        (("a_b~-",), "c:d@e;f", "a_b~-/tables/c%3Ad%40e%3Bf"),
        (("a\\b",), "c\td", "a%5Cb/tables/c%09d"),
    ],
)
async def test_names_are_encoded_once(
    server: Server, opened: Open, namespace: tuple[str, ...], name: str, path: str
) -> None:
    await opened(server).load(TableIdentifier("lake", namespace, name), None)
    assert server.asked == [f"/v1/namespaces/{path}?snapshots=refs"]


@pytest.mark.parametrize(
    ("prefix", "root"),
    [
        ("", "/v1"),
        ("prod", "/v1/prod"),
        ("/a/b/", "/v1/a/b"),
        ("main%7Cs3%3A%2F%2Fb", "/v1/main%7Cs3%3A%2F%2Fb"),
        ("main|wh 1", "/v1/main%7Cwh%201"),
    ],
)
async def test_a_prefix_is_taken_as_the_catalog_wrote_it(server: Server, opened: Open, prefix: str, root: str) -> None:
    server.config = configured({"prefix": prefix})
    await opened(server).load(ORDERS, None)
    assert server.asked == [f"{root}/namespaces/sales/tables/orders?snapshots=refs"]


async def test_namespace_levels_are_joined_as_the_catalog_wants(server: Server, opened: Open) -> None:
    server.config = configured({"namespace-separator": "%2E"}, {"namespace-separator": "%1F"})
    await opened(server).load(TableIdentifier("lake", ("a", "b"), "t"), None)
    assert server.asked == ["/v1/namespaces/a%2Eb/tables/t?snapshots=refs"]


@pytest.mark.parametrize(
    ("namespace", "name"), [(("a.b",), "t"), ((), "t"), (("",), "t"), (("a",), ""), (("a",), "\ud800")]
)
async def test_what_cannot_be_said_is_not_asked(
    server: Server, opened: Open, namespace: tuple[str, ...], name: str
) -> None:
    server.config = configured({"namespace-separator": "%2E"})
    with pytest.raises(Permanent) as caught:
        await opened(server).load(TableIdentifier("lake", namespace, name), None)
    assert caught.value.scope is ErrorScope.TABLE
    assert server.asked == []


@pytest.mark.parametrize(
    ("namespace", "instead"), [(("a.b",), ("a", "b")), (("a", "b.c"), ("a", "b", "c")), (("a.",), ("a", ""))]
)
async def test_a_name_that_holds_the_separator_is_told_apart_from_the_one_that_its_path_names(
    server: Server, opened: Open, namespace: tuple[str, ...], instead: tuple[str, ...]
) -> None:
    server.config = configured({"namespace-separator": "%2E"})
    with pytest.raises(UnaddressableTable) as caught:
        await opened(server).load(TableIdentifier("lake", namespace, "t"), None)
    assert caught.value.addressed_levels == instead


@pytest.mark.parametrize(("warehouse", "query"), [(None, ""), ("s3://b/w h", "?warehouse=s3%3A%2F%2Fb%2Fw%20h")])
async def test_configuration_is_asked_for_once(server: Server, opened: Open, warehouse: str | None, query: str) -> None:
    server.uri += "/api/catalog/"
    server.config = configured({})
    server.other = reply({"defaults": {}, "overrides": {}, **table()})
    catalog = opened(server, warehouse=warehouse)
    await catalog.load(ORDERS, None)
    await catalog.load(ORDERS, None)
    orders = "/api/catalog/v1/namespaces/sales/tables/orders?snapshots=refs"
    assert server.asked == [f"/api/catalog/v1/config{query}", orders, orders]


async def test_the_catalog_may_send_us_elsewhere(server: Server, opened: Open) -> None:
    async with running() as elsewhere:
        elsewhere.other = reply(table())
        server.config = configured({"uri": f"{elsewhere.uri}/there/"})
        await opened(server).load(ORDERS, None)
        assert elsewhere.asked == ["/there/v1/namespaces/sales/tables/orders?snapshots=refs"]
    assert server.asked == []


@pytest.mark.parametrize("told", ["http://catalog", "ws://catalog", "catalog"])
def test_nobody_leads_our_token_out_of_tls(told: str) -> None:
    body = msgspec.json.encode({"overrides": {"uri": told}})
    answer = CatalogReply("catalog lake", 200, datetime(2026, 11, 21, tzinfo=UTC), {}, body)
    refusal = route_of(RestSettings(name="lake", uri="HTTPS://catalog"), answer)
    assert isinstance(refusal, CatalogFailure)
    assert (refusal.permanent, refusal.scope) == (True, ErrorScope.CATALOG)


async def test_headers_are_merged_and_those_that_frame_a_message_left_out(server: Server, opened: Open) -> None:
    server.config = configured(
        {"header.X-Over": "theirs", "header.Content-Length": "7", "header.Bad": "a\r\nb: c"},
        {"header.x-over": "default", "header.X-Ours": "default", "header.X-Default": "default"},
    )
    await opened(server, headers={"x-over": "ours", "x-ours": "ours"}).load(ORDERS, None)
    config, load = (request.headers for request in server.requests)
    assert (config["x-over"], config["x-ours"]) == ("ours", "ours")
    assert load.getall("x-over") == ["theirs"]
    assert load.getall("x-ours") == ["ours"]
    assert load["x-default"] == "default"
    assert load["accept-encoding"] == "identity"
    assert not {"content-length", "bad", "b", "cookie"} & {name.lower() for name in load}


async def test_a_cookie_is_not_kept(server: Server, opened: Open) -> None:
    server.other = reply(table(), set_cookie="session=1")
    catalog = opened(server)
    await catalog.load(ORDERS, None)
    await catalog.load(ORDERS, None)
    assert all("cookie" not in request.headers for request in server.requests)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("b7a04183", "b7a04183"),
        ("b7a04183--gzip", "b7a04183"),
        ('"b7--gzip"', '"b7"'),
        ('W/"b7"', 'W/"b7"'),
        ("b\xfc7", None),
        ('"' + "7" * 300 + '"', None),
        (None, None),
    ],
)
async def test_an_entity_tag_comes_back_as_it_will_match(
    server: Server, opened: Open, sent: str | None, kept: str | None
) -> None:
    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        known = request.headers.get("if-none-match")
        if known is not None and known == kept:
            return web.Response(status=304)
        return await reply(table(), etag=sent or "")(request)

    server.other = respond
    catalog = opened(server)
    answer = await catalog.load(ORDERS, None)
    assert isinstance(answer, Loaded)
    assert answer.etag == kept
    assert "if-none-match" not in server.requests[-1].headers
    if kept is not None:
        assert await catalog.load(ORDERS, kept) == NotModified()


async def test_without_a_location_all_snapshots_are_asked_for(server: Server, opened: Open) -> None:
    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        refs = request.query_string == "snapshots=refs"
        if not refs and request.headers.get("if-none-match") == "all":
            return web.Response(status=304)
        return await reply(table(None if refs else "s3://b/t/metadata/1.json"), etag="refs" if refs else "all")(request)

    server.other = respond
    catalog = opened(server)
    answer = await catalog.load(ORDERS, None)
    assert isinstance(answer, Loaded)
    assert (answer.table.metadata_location, answer.etag) == ("s3://b/t/metadata/1.json", "all")
    assert await catalog.load(ORDERS, "all") == NotModified()


async def test_a_table_without_metadata_is_unwritten(server: Server, opened: Open) -> None:
    server.other = reply(table(None))
    assert await opened(server).load(ORDERS, None) == StagedCreate()
    path = "/v1/namespaces/sales/tables/orders"
    assert server.asked == [f"{path}?snapshots=refs", path]


async def test_large_metadata_is_read(server: Server, opened: Open) -> None:
    log = [{"metadata-file": f"s3://b/t/metadata/{number}.json", "timestamp-ms": number} for number in range(50_000)]
    server.other = reply(table(metadata_log=log))
    answer = await opened(server).load(ORDERS, None)
    assert isinstance(answer, Loaded)
    assert len(answer.table.metadata_log) == 50_000


async def test_large_bodies_are_read_two_at_a_time(server: Server, opened: Open) -> None:
    now = most = 0

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal now, most
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"texts": ["')
        for written in range(32):
            if written == 24:  # past what the client takes before its turn, and what the sockets hold
                now += 1
                most = max(most, now)
            await response.write(b"x" * 2**20 + b'", "')
        now -= 1
        return response

    async def load() -> None:
        with pytest.raises(ExternalError):
            await catalog.load(ORDERS, None)

    server.other = respond
    catalog = opened(server)
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(load)
    assert most == 2


@pytest.mark.slow
@pytest.mark.parametrize("limit", [8, 32])
async def test_as_many_requests_are_in_flight_as_allowed(server: Server, opened: Open, limit: int) -> None:
    now = most = 0
    full = anyio.Event()

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == limit:
            full.set()
        await full.wait()
        await anyio.sleep(0.1)  # one too many would have come by now
        now -= 1
        return await reply(table())(request)

    server.other = respond
    catalog = opened(server, max_in_flight=limit)
    with anyio.fail_after(30):  # were fewer allowed, they would wait for ever
        async with anyio.create_task_group() as group:
            for _ in range(64):
                group.start_soon(catalog.load, ORDERS, None)
    assert most == limit


@pytest.mark.parametrize(
    ("uri", "normal"),
    [
        ("https://Catalog.Example/API/", "https://catalog.example/API"),
        ("HTTPS://me:x@catalog.example:443/API?q=1#f", "https://catalog.example/API"),
        ("http://catalog.example:8181//", "http://catalog.example:8181"),
        ("http://[::1]:80/", "http://[::1]"),
    ],
)
def test_the_identity_is_that_of_the_uri_however_it_is_written(uri: str, normal: str) -> None:
    assert responses.base_url(uri) == normal


async def test_the_identity_is_a_digest_of_uri_warehouse_and_prefix(server: Server, opened: Open) -> None:
    server.config = configured({"prefix": "main%7Cwh"})
    catalog = opened(server, warehouse="wh", token=PRIVATE)
    assert await catalog.identity() == hashlib.sha256(f"{server.uri}\nwh\nmain%7Cwh".encode()).hexdigest()[:32]
    server.config = configured({})
    assert await opened(server).identity() == hashlib.sha256(f"{server.uri}\n\n".encode()).hexdigest()[:32]
    assert await opened(server, catalog_id="mine").identity() == "mine"


@pytest.fixture
def prefixed(server: Server) -> Server:
    server.config = configured(FIRST)
    return server


@pytest.mark.parametrize("status", [429, 500])
async def test_another_prefix_is_trouble_that_names_both(prefixed: Server, opened: Open, status: int) -> None:
    catalog = opened(prefixed, catalog_id="ours")
    await catalog.load(ORDERS, None)
    prefixed.config, prefixed.other = configured(SECOND), reply(b"", status)
    with pytest.raises(Transient):
        await catalog.load(ORDERS, None)
    prefixed.other = reply(table())
    for _ in range(2):
        with pytest.raises(Transient) as caught:
            await catalog.load(ORDERS, None)
        trouble = caught.value
        assert trouble.scope is ErrorScope.CATALOG
        assert f"{prefixed.uri} with prefix 'first'" in trouble.expected
        assert f"{prefixed.uri} with prefix 'second'" in trouble.found
        assert "restart" in trouble.remedy
    assert not [path for path in prefixed.asked if "second" in path]


async def test_another_uri_is_trouble_that_names_both(prefixed: Server, opened: Open) -> None:
    async with running() as elsewhere:
        elsewhere.other = reply(table())
        catalog = opened(prefixed)
        await catalog.identity()
        prefixed.config, prefixed.other = configured({"uri": elsewhere.uri, **FIRST}), reply(b"", 500)
        with pytest.raises(Transient) as caught:
            await catalog.load(ORDERS, None)
        assert caught.value.scope is ErrorScope.CATALOG
        assert (
            f"{elsewhere.uri} with prefix 'first' instead of {prefixed.uri} with prefix 'first'" in caught.value.found
        )
        assert elsewhere.requests == []


async def test_a_catalog_that_leads_to_the_first_again_is_asked_there(prefixed: Server, opened: Open) -> None:
    catalog = opened(prefixed)
    await catalog.load(ORDERS, None)
    prefixed.config, prefixed.other = configured(SECOND), reply(b"", 429)
    for _ in range(2):
        with pytest.raises(Transient):
            await catalog.load(ORDERS, None)
    prefixed.config, prefixed.other = configured({"uri": f"{prefixed.uri}/", **FIRST}), reply(table())
    assert isinstance(await catalog.load(ORDERS, None), Loaded)


async def test_what_names_no_other_tables_is_followed(prefixed: Server, opened: Open) -> None:
    catalog = opened(prefixed)
    await catalog.load(ORDERS, None)
    prefixed.other = reply(b"", 429)
    with pytest.raises(Transient):
        await catalog.load(ORDERS, None)
    prefixed.config, prefixed.other = configured({"header.x-more": "1", **FIRST}), reply(table())
    await catalog.load(ORDERS, None)
    assert prefixed.requests[-1].headers["x-more"] == "1"


async def test_a_new_start_takes_the_new_way(prefixed: Server, opened: Open) -> None:
    await opened(prefixed).load(ORDERS, None)
    prefixed.config = configured(SECOND)
    assert isinstance(await opened(prefixed).load(ORDERS, None), Loaded)
    assert prefixed.asked[-1].startswith("/v1/second/")
