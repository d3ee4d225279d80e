"""Answers of a gateway to its clients, directly and behind a proxy."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import yaml
from aiohttp import web
from structlog.testing import capture_logs

from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.gateway.routes import recognise_change
from tests.integration.gateways import Ended, Line, Message, asked, gate, saying, sized
from tests.servers.proxies import Nginx
from tests.support.listener import chunk
from tests.support.processes import until
from tests.support.programs import IS_CI, installed
from tests.support.rest_catalog import served

# Answers.


COMMIT = "/v1/namespaces/a/tables/t"


async def told(answer: bytes, *fields: str, target: str = "/v1/x", method: str = "GET") -> Message:
    """What a client is told where the catalog answers so."""
    async with gate() as made:
        made.catalog.answer = saying(answer)
        return await made.told(asked(target, *fields, method=method))


def names(answer: Message) -> set[bytes]:
    return {name.lower() for name, _ in answer.fields}


async def test_fields_of_an_answer_pass_in_their_order_and_as_often_as_they_were_sent() -> None:
    fields = [
        (b"content-type", b"application/json;charset=UTF-8"),
        (b"etag", b'W/"a"'),
        (b"set-cookie", b"a=1; Path=/"),
        (b"set-cookie", b"b=2"),
        (b"x-twice", b"1"),
        (b"x-between", b"a  b"),
        (b"x-twice", b"2"),
        (b"x-latin", b"\xe4"),
        (b"server", b"Jetty(12)"),
        (b"vary", b"Accept-Encoding"),
        (b"content-length", b"2"),
    ]
    head = b"".join(b"%b: %b\r\n" % field for field in fields)
    answer = await told(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n{}")
    assert [field for field in answer.fields if field[0] not in {b"date", b"connection"}] == fields
    assert answer.body == b"{}"


async def test_fields_of_the_catalogs_connection_stay_there() -> None:
    head = b"Connection: close, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\nTrailer: X-Sum\r\nUpgrade: h2c\r\n"
    answer = await told(b"HTTP/1.1 200 OK\r\n" + head + b"Proxy-Authenticate: Basic\r\nContent-Length: 2\r\n\r\n{}")
    assert names(answer) == {b"date", b"connection", b"content-length"}
    assert answer.value(b"connection") == b"close"


async def test_a_body_in_chunks_comes_in_chunks() -> None:
    parts = chunk(b'{"a":') + chunk(b"1}") + b"0\r\nX-Sum: 1\r\n\r\n"
    answer = await told(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + parts)
    assert answer.all(b"transfer-encoding") == [b"chunked"]
    assert answer.all(b"content-length") == []
    assert joined(answer.body) == b'{"a":1}'


async def test_a_body_that_ends_with_the_connection_ends() -> None:
    async def say(_: Message, line: Line) -> None:
        await line.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}")
        raise Ended

    async with gate() as made:
        made.catalog.answer = say
        answer = await made.told(asked("/v1/x"))
    assert (answer.status, joined(answer.body)) == (200, b"{}")


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
async def test_a_compressed_body_stays_so(encoding: str) -> None:
    body = gzip.compress(b'{"metadata-location": "file:///a"}')
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    answer = await told(head + body, target=COMMIT, method="POST")
    assert (answer.body, answer.value(b"content-encoding")) == (body, encoding.encode())


async def test_what_has_not_changed_is_said_without_a_body() -> None:
    """Whatever length its body would have: the connection goes on."""
    async with gate() as made, made.connect() as wire:
        made.catalog.answer = saying(b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 500\r\n\r\n')
        for _ in range(2):
            await wire.send(asked("/v1/x", 'If-None-Match: "a"').replace(b"Connection: close\r\n", b""))
            answer = await wire.reply(headless=True)
            assert (answer.status, answer.headers["etag"]) == (304, '"a"')
        assert made.catalog.last.value(b"if-none-match") == b'"a"'


async def test_no_content_is_none() -> None:
    answer = await told(b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", target=COMMIT, method="DELETE")
    assert (answer.status, answer.value(b"x-a"), answer.body) == (204, b"1", b"")
    assert names(answer).isdisjoint({b"content-length", b"transfer-encoding"})


@pytest.mark.parametrize("status", [200, 204, 404])
async def test_an_answer_to_head_has_its_length_and_no_body(status: int) -> None:
    answer = await told(f"HTTP/1.1 {status} So\r\nX-A: 1\r\nContent-Length: 512\r\n\r\n".encode(), method="HEAD")
    assert (answer.status, answer.value(b"x-a"), answer.body) == (status, b"1", b"")
    assert answer.all(b"content-length") == ([] if status == 204 else [b"512"])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 419, 422, 429, 500, 501, 503, 504, 599])
async def test_an_error_is_the_catalogs_own(status: int) -> None:
    body = b'{"error":{"message":"no","type":"OneOfTheirs","code":1}, "more": 1}'
    head = f"HTTP/1.1 {status} Whatever\r\nRetry-After: 7\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    answer = await told(head + body, target=COMMIT, method="POST")
    assert (answer.status, answer.body, answer.value(b"retry-after")) == (status, body, b"7")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_the_clients_to_follow(status: int) -> None:
    location = b"http://127.0.0.1:1/elsewhere"
    async with gate() as made:
        line = f"HTTP/1.1 {status} Moved\r\n".encode()
        made.catalog.answer = saying(line + b"Location: " + location + b"\r\nContent-Length: 0\r\n\r\n")
        answer = await made.told(asked("/v1/x"))
        assert (answer.status, answer.value(b"location")) == (status, location)
        assert len(made.catalog.requests) == 1


async def test_what_is_said_before_an_answer_is_passed_over() -> None:
    early = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    )
    answer = await told(early + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", target=COMMIT, method="POST")
    assert (answer.status, answer.body) == (200, b"{}")


async def test_a_catalog_that_is_away_is_said_to_be() -> None:
    async with gate(base="http://127.0.0.1:1") as made:
        answer = await made.told(asked("/v1/x"))
    assert (answer.status, answer.value(b"retry-after")) == (503, b"1")
    assert json.loads(answer.body)["error"].keys() == {"message", "type", "code"}
    assert json.loads(answer.body)["error"]["type"] == "ServiceUnavailableException"
    assert answer.value(b"content-type") == b"application/json"


async def test_a_catalog_that_says_nothing_is_given_up() -> None:
    async def say_nothing(_: Message, line: Line) -> None:
        await line.ended()

    async with gate(silence=1.0) as made:
        made.catalog.answer = say_nothing
        answer = await made.told(asked(COMMIT, method="POST"))
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (504, 504)


async def test_a_catalog_that_ends_without_an_answer_is_said_to_have_given_none() -> None:
    async def end(_: Message, _line: Line) -> None:
        raise Ended

    async with gate() as made:
        made.catalog.answer = end
        answer = await made.told(asked(COMMIT, method="POST"))
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (502, 502)


@pytest.mark.parametrize("changed", [True, False])
async def test_of_a_configuration_that_is_changed_the_entity_tag_goes(changed: bool) -> None:
    async with gate() as made:
        body = json.dumps({"overrides": {"uri": made.catalog.uri if changed else "http://elsewhere"}}).encode()
        made.catalog.answer = saying(b'HTTP/1.1 200 OK\r\nETag: "a"\r\n' + sized(body).encode() + b"\r\n\r\n" + body)
        answer = await made.told(asked("/v1/config"))
    assert answer.value(b"etag") == (None if changed else b'"a"')
    assert answer.value(b"content-length") == b"%d" % len(answer.body)


@pytest.mark.parametrize("last", ["a", "b"])
async def test_a_commit_is_read_as_a_configuration_of_its_prefix_allows(last: str) -> None:
    """One server with two catalogs: what the other's configuration says, and when, does not matter."""
    said = {"a": {"prefix": "a", "namespace-separator": "%2F"}, "b": {"prefix": "b"}}

    async def say(request: Message, line: Line) -> None:
        body = json.dumps({"overrides": said[request.target[-1]]}).encode() if "config" in request.target else b"{}"
        await line.send(b"HTTP/1.1 200 OK\r\n" + sized(body).encode() + b"\r\n\r\n" + body)

    async with gate() as made:
        made.catalog.answer = say
        for warehouse in {"a": "ba", "b": "ab"}[last]:
            await made.told(asked(f"/v1/config?warehouse={warehouse}"))
        assert (await made.told(asked("/v1/a/namespaces/x%2Fy/tables/t", method="POST"))).status == 200
        assert [hint.subject for hint in made.inbox.taken] == [TableIdentifier("prod", ("x", "y"), "t")]


@pytest.mark.parametrize(
    ("target", "subject"),
    [
        ("/v1/p/namespaces/sales/tables/orders/notifications", TableIdentifier("prod", ("sales",), "orders")),
        ("/management/v1/warehouse/w/deleted-tabulars/undrop", CatalogName("prod")),
    ],
)
async def test_a_change_by_another_route_is_looked_at(target: str, subject: JobKey) -> None:
    async with gate() as made:
        made.catalog.answer = saying(b"HTTP/1.1 204 No Content\r\n\r\n")
        assert (await made.told(asked(target, sized(b"{}"), method="POST", body=b"{}"))).status == 204
    assert [hint.subject for hint in made.inbox.taken] == [subject]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("is_theirs", [True, False])
async def test_a_configuration_that_comes_compressed_leads_to_the_gateway(coding: str, *, is_theirs: bool) -> None:
    async with gate() as made:
        content = json.dumps({"overrides": {"uri": made.catalog.uri if is_theirs else "http://elsewhere"}}).encode()
        body = gzip.compress(content) if coding == "gzip" else zlib.compress(content)
        head = f'HTTP/1.1 200 OK\r\nETag: "a"\r\nVary: Accept-Encoding\r\nContent-Encoding: {coding}\r\n{sized(body)}'
        made.catalog.answer = saying(f"{head}\r\n\r\n".encode() + body)
        answer = await made.told(asked("/v1/config", "Accept-Encoding: gzip", "Range: bytes=0-5"))
        assert made.catalog.last.value(b"accept-encoding") == b"identity"
        assert made.catalog.last.value(b"range") is None
    assert answer.value(b"content-length") == b"%d" % len(answer.body)
    assert answer.value(b"vary") == b"Accept-Encoding"
    if is_theirs:
        assert json.loads(answer.body)["overrides"]["uri"] == "http://gate.example:8085/catalog/prod"
        assert (answer.value(b"content-encoding"), answer.value(b"etag")) == (None, None)
    else:
        assert (answer.body, answer.value(b"content-encoding"), answer.value(b"etag")) == (
            body,
            coding.encode(),
            b'"a"',
        )


async def test_a_configuration_that_can_not_be_read_is_logged_and_passes_as_it_came() -> None:
    async with gate() as made:
        made.catalog.answer = saying(b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\nabc")
        with capture_logs() as logs:
            answer = await made.told(asked("/v1/config"))
    assert (answer.body, answer.value(b"content-encoding")) == (b"abc", b"br")
    assert [(one["event"], one["coding"]) for one in logs] == [("configuration unreadable", "br")]


async def test_a_redirect_to_the_catalog_itself_leads_to_the_gateway() -> None:
    async with gate("/base") as made:
        there = f"{made.catalog.uri}/base/v1/x/"
        made.catalog.answer = saying(f"HTTP/1.1 308 -\r\nLocation: {there}\r\nContent-Length: 0\r\n\r\n".encode())
        for target in ("/v1/x", "/v1/config"):
            answer = await made.told(asked(target))
            assert answer.value(b"location") == b"http://gate.example:8085/catalog/prod/v1/x/"


@pytest.mark.parametrize("name", ["Content-Length x", "Transfer-Encoding\ty", "X{"])
async def test_a_field_whose_name_is_no_name_is_refused(name: str) -> None:
    """A client that cuts it would see another end of the answer."""
    answer = await told(f"HTTP/1.1 200 OK\r\n{name}: 3\r\nContent-Length: 6\r\n\r\nabcdef".encode())
    assert (answer.status, b"no valid HTTP: " in answer.body) == (502, True)
    assert b"invalid name" in answer.body or b"Invalid header" in answer.body


@pytest.mark.parametrize("status", [204, 304])
async def test_a_configuration_that_is_none_has_no_length(status: int) -> None:
    answer = await told(b"HTTP/1.1 %d -\r\n\r\n" % status, target="/v1/config")
    assert (answer.status, answer.all(b"content-length")) == (status, [])


@pytest.mark.parametrize("method", ["DELETE", "PUT", "POST"])
@pytest.mark.parametrize("fresh", [True, False])
async def test_what_may_change_something_is_sent_once(method: str, fresh: bool) -> None:
    """A drop that is made and sent again is answered with 404."""

    async def end(request: Message, line: Line) -> None:
        if request.target == "/v1/x":
            await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        else:
            raise Ended

    async with gate() as made:
        made.catalog.answer = end
        if not fresh:
            await made.told(asked("/v1/x"))
        answer = await made.told(asked(COMMIT, method=method))
    assert answer.status == 502
    assert [one.target for one in made.catalog.requests].count(COMMIT) == 1


@pytest.mark.parametrize(
    "begun",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"{"),
    ],
)
@pytest.mark.parametrize("silent", [True, False])
async def test_an_answer_that_breaks_off_is_one_that_breaks_off(begun: bytes, silent: bool) -> None:
    """Whether the catalog closes the connection or falls silent."""

    async def break_off(_: Message, line: Line) -> None:
        await line.send(begun)
        if silent:
            await line.ended()
        raise Ended

    async with gate(silence=1.0 if silent else 60.0) as made:
        made.catalog.answer = break_off
        answer = await made.told(asked(COMMIT, method="POST").replace(b"Connection: close\r\n", b""))
    assert answer.status == 200
    # Shorter than it says, or without its last chunk.
    assert answer.body == begun.partition(b"\r\n\r\n")[2]


async def test_it_goes_on_with_the_next_request_of_a_connection() -> None:
    async with gate() as made, made.connect() as wire:
        for number in range(3):
            body = f"{number}".encode() * 3
            made.catalog.answer = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + body)
            await wire.send(asked(f"/v1/{number}").replace(b"Connection: close\r\n", b""))
            assert (await wire.reply()).content == body
        assert [one.target for one in made.catalog.requests] == ["/v1/0", "/v1/1", "/v1/2"]


async def test_a_catalog_that_closed_an_idle_connection_is_asked_over_another() -> None:
    async def close(_: Message, line: Line) -> None:
        await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        raise Ended

    async with gate() as made:
        made.catalog.answer = close
        for _ in range(3):
            assert (await made.told(asked(COMMIT, method="POST"))).status == 200
            await anyio.sleep(0.05)


async def test_a_client_that_leaves_in_the_middle_of_a_long_answer_is_not_downloaded_for() -> None:
    ended = anyio.Event()

    async def pour(_: Message, line: Line) -> None:
        await line.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                await line.send(chunk(b"x" * 65_536))
        finally:
            ended.set()

    async with gate() as made:
        made.catalog.answer = pour
        async with made.connect() as wire:
            await wire.send(asked("/v1/x"))
            await wire.head()
        with anyio.fail_after(10):
            await ended.wait()


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_not_waited_for() -> None:
    async with gate() as made:
        async with made.connect() as wire:
            # More than what is read before a connection is taken for it.
            await wire.send(asked("/v1/x", "Content-Length: 3000000", method="PUT", body=b"x" * 1_500_000))
            await until(lambda: made.catalog.lines)
        await until(lambda: not made.catalog.lines, 10)
        assert made.catalog.requests == []


def joined(chunks: bytes) -> bytes:
    """What chunks are made of."""
    body = b""
    while True:
        size, _, chunks = chunks.partition(b"\r\n")
        if not int(size, 16):
            return body
        body, chunks = body + chunks[: int(size, 16)], chunks[int(size, 16) + 2 :]


# Proxies in `deploy/proxies`.


PROXIES = Path(__file__).parents[2] / "deploy" / "proxies"
CHANGES = [
    ("POST", "/api/v1/p/namespaces/a%1Fb/tables"),
    ("POST", "/v1/namespaces/a%2Eb/tables/t%2Fu"),
    ("POST", "/v1/catalogs/main/namespaces/n/tables/t"),
    ("DELETE", "/v1/p/namespaces/n/tables/t?purgeRequested=true"),
    ("POST", "/v1/p/namespaces/n/tables/t/unregister"),
    ("POST", "/v1/p/namespaces/n/register"),
    ("POST", "/v1/p/tables/rename"),
    ("POST", "/v1/p/transactions/commit"),
    ("DELETE", "/v1/p/namespaces/n"),
    ("POST", "/api/v1//namespaces/n//tables/t"),
    ("POST", "/v1//transactions//commit"),
    ("DELETE", "/v1//namespaces//n"),
    ("POST", "/v1/p/namespaces/n/tables/t/notifications"),
    ("POST", "/management/v1/warehouse/w/deleted-tabulars/undrop"),
]
OTHERS = [
    ("GET", "/v1/p/namespaces/n/tables/t?snapshots=refs"),
    ("HEAD", "/v1/p/namespaces/n/tables/t"),
    ("GET", "/v1/p/namespaces"),
    ("POST", "/v1/p/namespaces"),
    ("POST", "/v1/p/namespaces/n/properties"),
    ("POST", "/v1/p/namespaces/n/tables/t/metrics"),
    ("POST", "/v1/p/namespaces/n/tables/t/plan"),
    ("POST", "/v1/p/namespaces/n/views"),
    ("POST", "/v1/p/views/rename"),
    ("POST", "/v1/oauth/tokens"),
    ("GET", "/v1/p/namespaces/n/tables/t?x=/v1/config"),
]
CONFIG = ("GET", "/api/v1/config?warehouse=w")


def test_what_is_tried_here_is_what_the_gateway_recognises() -> None:
    def recognised(method: str, target: str) -> bool:
        path, _, query = target.partition("?")
        return recognise_change(method, path[path.index("/v1/") :], query) is not None

    assert all(recognised(*request) for request in CHANGES)
    assert not any(recognised(*request) for request in OTHERS)


@asynccontextmanager
async def answering(name: str) -> AsyncIterator[int]:
    """A server that says who it is, and what it was asked for; its port."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(headers={"X-Here": name, "X-Path": request.raw_path, "X-Told": request.host})

    async with served(answer) as address:
        yield int(address.rpartition(":")[2])


def nginx() -> str:
    """The program; without it the test is skipped, but fails on a build server."""
    path = installed("nginx")
    if path is None:
        if IS_CI:
            pytest.fail("nginx is missing: on Debian and Ubuntu, apt-get install nginx-light")
        pytest.skip("nginx is missing")
    return path


async def test_nginx_sends_changes_through_the_gateway_and_reads_to_the_catalog() -> None:
    program = nginx()
    async with AsyncExitStack() as stack:
        catalog = await stack.enter_async_context(answering("catalog"))
        gateway = await stack.enter_async_context(answering("gateway"))
        told = (PROXIES / "nginx-gateway.conf").read_text()
        for shown, ours in (("127.0.0.1:8181", f"127.0.0.1:{catalog}"), ("127.0.0.1:8086", f"127.0.0.1:{gateway}")):
            assert told.count(shown) == 1
            told = told.replace(shown, ours)
        server = stack.enter_context(Nginx(program, told))
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, trust_env=False))
        for who, requests in (("gateway", [*CHANGES, CONFIG]), ("catalog", OTHERS)):
            for method, target in requests:
                answer = await client.request(method, target)
                assert (target, answer.headers["x-here"]) == (target, who)
                assert answer.headers["x-path"] == target
                assert answer.headers["x-told"] == f"127.0.0.1:{server.port}"


def test_envoy_is_told_the_same() -> None:
    told = yaml.safe_load((PROXIES / "envoy-gateway.yaml").read_text())
    (listener,) = told["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    assert {cluster["name"] for cluster in told["static_resources"]["clusters"]} == {"gateway", "catalog"}
    assert (manager["normalize_path"], manager["path_with_escaped_slashes_action"]) == (False, "KEEP_UNCHANGED")

    def led(method: str, target: str) -> str:
        return str(next(route["route"]["cluster"] for route in routes if _matches(route["match"], method, target)))

    assert {led(*request) for request in [*CHANGES, CONFIG]} == {"gateway"}
    assert {led(*request) for request in OTHERS} == {"catalog"}


def _matches(match: dict[str, Any], method: str, target: str) -> bool:
    """As Envoy has it: a regular expression is for the whole path, without the query."""
    if "prefix" in match:
        return target.startswith(match["prefix"])
    (header,) = match["headers"]
    wanted = header["string_match"]
    methods = re.escape(wanted["exact"]) if "exact" in wanted else wanted["safe_regex"]["regex"]
    path = target.partition("?")[0]
    return bool(re.fullmatch(methods, method) and re.fullmatch(match["safe_regex"]["regex"], path))
