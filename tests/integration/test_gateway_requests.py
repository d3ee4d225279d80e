"""Requests from a gateway to its catalog, also from clients that stall: these keep no connection from others."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from itertools import product

import anyio
import pytest

from tests.integration.gateways import ROOT, Catalog, Gate, Line, Message, asked, catalog, gate, parted, saying, sized
from tests.support.listener import chunk, drip
from tests.support.processes import until

# Forwarded requests.


TARGETS = (
    "/v1/namespaces/a%2Eb/tables/t%5Fx",
    "/v1/namespaces/a%1Fb%1fc/tables/%7e~",
    "/v1/namespaces/a%2Fb/tables/c%2fd",
    "/v1/namespaces/%E2%82%AC%c3%a9/tables/%FF",
    "/v1/namespaces/a+b%20c/tables/d%2Be",
    "/v1/my.pre-fix_0/x;y=1,z:@!$&'()*+,;=~",
    "/v1//namespaces///tables/",
    "/v1/./namespaces",
    "/v1/%2E/namespaces",
    "/v1/namespaces?pageToken=&pageSize=2&parent=a%1Fb",
    "/v1/namespaces?a=b?c/d:@!$'()*,;%2F%3d&&=&e",
    "/v1/namespaces/%zz/100%",
    '/v1/namespaces/a|b"c^d`e{f}g[h]i\\j',
    '/v1/namespaces?a|b"c^d`e{f}g[h]i\\j',
    "/",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND")
UPWARDS = ("/v1/../x", "/..", "/v1/%2e%2E/x", "/v1/..%2fx", "/v1/..;a/x", "/v1/.%2e")


@pytest.fixture(name="gate")
async def fixture_gate() -> AsyncGenerator[Gate]:
    async with gate() as made:
        yield made


@pytest.mark.parametrize("target", TARGETS)
async def test_a_path_and_its_query_arrive_as_they_were_sent(gate: Gate, target: str) -> None:
    assert (await gate.told(asked(target))).status == 200
    assert gate.catalog.last.target == target


@pytest.mark.parametrize("path", ["/iceberg", "/a%2Fb/iceberg"])
async def test_they_are_put_behind_the_path_of_the_catalogs_address(path: str) -> None:
    async with gate(path) as made:
        for target in TARGETS:
            await made.told(asked(target))
        assert [one.target for one in made.catalog.requests] == [f"{path}{target}" for target in TARGETS]


@pytest.mark.parametrize("target", UPWARDS)
async def test_a_path_that_leads_upwards_goes_nowhere(gate: Gate, target: str) -> None:
    answer = await gate.told(asked(target))
    assert (answer.status, json.loads(answer.body)["error"]["type"]) == (400, "BadRequestException")
    assert gate.catalog.requests == []


async def test_a_gateway_that_nobody_configured_is_not_found(gate: Gate) -> None:
    answer = await gate.told(asked("/v1/config", root="/catalog/other"))
    assert (answer.status, json.loads(answer.body)["error"]["type"]) == (404, "NotFoundException")
    assert gate.catalog.requests == []


@pytest.mark.parametrize("method", METHODS)
async def test_every_method_passes(gate: Gate, method: str) -> None:
    gate.catalog.answer = saying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + (b"" if method == "HEAD" else b"{}"))
    answer = await gate.told(asked("/v1/x", method=method))
    assert gate.catalog.last.line == f"{method} /v1/x HTTP/1.1".encode()
    assert (answer.status, answer.body) == (200, b"" if method == "HEAD" else b"{}")


async def test_fields_pass_in_their_order_and_as_often_as_they_were_sent(gate: Gate) -> None:
    fields = [
        ("authorization", "Bearer a.b-c_d~e+f/g=="),
        ("x-iceberg-access-delegation", "vended-credentials,remote-signing"),
        ("idempotency-key", "018f"),
        ("cookie", "a=b; c=d"),
        ("x-twice", "1"),
        ("x-between", "   spaces  within   "),
        ("x-twice", "2"),
        ("x-twice", ""),
        ("x-utf-8", "\u00e4".encode().decode("latin-1")),
        ("accept-encoding", "gzip, br;q=0.5"),
        ("user-agent", 'a (b; "c")'),
        ("if-none-match", 'W/"a", "b"'),
        ("range", "bytes=0-1"),
    ]
    await gate.told(asked("/v1/x", *[f"{name}: {value}" for name, value in fields]))
    sent = [(name.decode(), value.decode("latin-1")) for name, value in gate.catalog.last.fields]
    expected = [(name, value.strip()) for name, value in fields]
    assert [one for one in sent if not one[0].lower().startswith(("host", "x-forwarded"))] == expected


async def test_what_nobody_sent_is_not_made_up(gate: Gate) -> None:
    await gate.told(asked("/v1/x"))
    names = {name.lower() for name, _ in gate.catalog.last.fields if not name.lower().startswith(b"x-forwarded")}
    assert names == {b"host"}


async def test_fields_of_one_connection_stay_there(gate: Gate) -> None:
    fields = (
        "Connection: X-Mine, keep-alive",
        "X-Mine: 1",
        "Keep-Alive: timeout=5",
        "Proxy-Authorization: Basic abc",
        "Proxy-Connection: keep-alive",
        "TE: trailers",
        "Trailer: X-Sum",
        "Upgrade: h2c",
        "X-Other: 2",
    )
    await gate.told(asked("/v1/x", *fields))
    names = {name.lower() for name, _ in gate.catalog.last.fields if not name.lower().startswith(b"x-forwarded")}
    assert names == {b"host", b"x-other"}


async def test_the_catalog_is_told_how_the_client_came_and_by_which_name_it_is_reached(gate: Gate) -> None:
    await gate.told(asked("/v1/x"))
    said = {name.lower(): value for name, value in gate.catalog.last.fields}
    assert said == {
        b"host": f"127.0.0.1:{gate.catalog.port}".encode(),
        b"x-forwarded-for": b"127.0.0.1",
        b"x-forwarded-host": b"gate.example:8085",
        b"x-forwarded-port": b"8085",
        b"x-forwarded-prefix": ROOT.encode(),
        b"x-forwarded-proto": b"http",
    }


async def test_what_proxies_before_it_say_is_passed_on(gate: Gate) -> None:
    fields = (
        "X-Forwarded-For: 10.0.0.1",
        "X-Forwarded-For: 10.0.0.2, 10.0.0.3",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: lake.example",
        "X-Forwarded-Prefix: /data/",
    )
    await gate.told(asked("/v1/x", *fields))
    said = {name.lower(): value for name, value in gate.catalog.last.fields}
    assert said.items() >= {
        (b"x-forwarded-for", b"10.0.0.1, 10.0.0.2, 10.0.0.3, 127.0.0.1"),
        (b"x-forwarded-host", b"lake.example"),
        (b"x-forwarded-port", b"443"),
        (b"x-forwarded-prefix", f"/data{ROOT}".encode()),
        (b"x-forwarded-proto", b"https"),
    }


@pytest.mark.parametrize("target", ["/v1/x", "/v1/namespaces/a/tables/t", "/v1/namespaces/a/tables"])
async def test_a_body_arrives_as_it_was_sent(gate: Gate, target: str) -> None:
    """Whether nobody reads it on the way, or the path says all, or the body itself names the table."""
    body = b'{"name": "t", "schema": {}}' + b" " * 100_000 + b"\r\n\x00\xff"
    assert (await gate.told(asked(target, sized(body), method="POST", body=body))).status == 200
    assert gate.catalog.last.body == body
    assert gate.catalog.last.all(b"content-length") == [str(len(body)).encode()]
    assert gate.catalog.last.all(b"transfer-encoding") == []


@pytest.mark.parametrize("target", ["/v1/x", "/v1/namespaces/a/tables"])
async def test_a_body_in_chunks_arrives_whole(gate: Gate, target: str) -> None:
    parts = [b'{"name": "t"}', b" " * 100_000, b"\x00\xff"]
    sent = b"".join(map(chunk, parts)) + b"0\r\n\r\n"
    answer = await gate.told(asked(target, "Transfer-Encoding: chunked", method="POST", body=sent))
    assert answer.status == 200
    assert gate.catalog.last.body == b"".join(parts)


async def test_a_body_of_no_bytes_is_one(gate: Gate) -> None:
    await gate.told(asked("/v1/x", "Content-Length: 0", method="POST"))
    assert gate.catalog.last.value(b"content-length") == b"0"


async def test_a_compressed_body_stays_so(gate: Gate) -> None:
    body = b"\x1f\x8b\x08 whatever that is"
    await gate.told(asked("/v1/namespaces/a/tables", "Content-Encoding: gzip", sized(body), method="POST", body=body))
    assert gate.catalog.last.body == body
    assert gate.catalog.last.value(b"content-encoding") == b"gzip"


async def test_who_waits_to_be_asked_for_its_body_is_asked_and_the_catalog_need_not(gate: Gate) -> None:
    async with gate.connect() as wire:
        await wire.send(asked("/v1/x", "Expect: 100-continue", "Content-Length: 4", method="POST"))
        assert await wire.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await wire.send(b"body")
        assert (await wire.rest()).startswith(b"HTTP/1.1 200 OK\r\n")
    assert gate.catalog.last.body == b"body"
    assert gate.catalog.last.all(b"expect") == []


async def test_large_fields_pass_both_ways(gate: Gate) -> None:
    large = "x" * 60_000
    gate.catalog.answer = saying(f"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Large: {large}\r\n\r\n".encode())
    answer = await gate.told(asked("/v1/x", f"Authorization: Bearer {large}"))
    assert gate.catalog.last.value(b"authorization") == f"Bearer {large}".encode()
    assert answer.value(b"x-large") == large.encode()


# Malicious requests.


FORMS = (
    "*",
    "*@{bystander}/secret",
    "*:x@{bystander}/",
    "*%40{bystander}/",
    "*{root}/v1/x",
    "http://{bystander}/v1/x",
    "http://{bystander}{root}/v1/x",
    "HTTP://a@{bystander}{root}/v1/x",
    "https://{bystander}{root}/v1/x",
    "http://{bystander}",
    "{bystander}",
    "{root}/v1/x#@{bystander}/",
    "{root}/v1/\xe9",
    "{root}/v1/x?\xe9",
    "{root}/../x",
    "{root}/v1/%2e%2e/x",
    "{root}/..;/x",
    "{root}/..\\x",
)
"""Targets that go nowhere."""
PATHS = (
    "//{bystander}/v1/x",
    "///{bystander}",
    "/\\{bystander}/x",
    "/@{bystander}/x",
    "/http://{bystander}/x",
    "/v1/x?@{bystander}",
    "/v1/x?http://{bystander}",
    "/%00%0d%0aHost:%20{bystander}",
    "/v1/%252e%252e/x",
    "/:80@{bystander}",
    "",
    "?a=b",
)
"""Paths that look as if they named a host, and name none."""

AMBIGUOUS = (
    ("Host: gate", "Host: other"),
    ("Host: gate", "Content-Length: 4", "Transfer-Encoding: chunked"),
    ("Host: gate", "Content-Length: 4", "Content-Length: 5"),
    ("Host: gate", "Transfer-Encoding: gzip, chunked"),
    ("Host: gate", "X-Folded: a\r\n b"),
    ("Host: gate", "X-Control: a\x01"),
    ("Host: gate", "X-Null: a\x00"),
    ("Host: gate", "X Space: a"),
    ("Host: gate", "X-Space : a"),
    ("Host: gate", "Content-Length: +4"),
)


@pytest.fixture(name="bystander")
async def fixture_bystander() -> AsyncGenerator[Catalog]:
    async with catalog() as made:
        yield made


@pytest.fixture(name="made", params=[False, True], ids=["shared listener", "own listener"])
async def fixture_made(request: pytest.FixtureRequest) -> AsyncGenerator[tuple[Gate, str]]:
    async with gate("/base", is_alone=request.param) as made:
        yield made, "" if request.param else ROOT


async def answered(made: Gate, target: str, *fields: str, method: str = "GET", body: bytes = b"") -> Message:
    lines = [f"{method} {target} HTTP/1.1", "Connection: close", *(fields or ("Host: gate",))]
    return await made.told("\r\n".join([*lines, "", ""]).encode("latin-1") + body)


async def test_a_target_that_is_no_path_goes_nowhere(made: tuple[Gate, str], bystander: Catalog) -> None:
    gateway, root = made
    for form, method in product(FORMS, ("GET", "POST", "DELETE", "OPTIONS")):
        target = form.format(bystander=f"127.0.0.1:{bystander.port}", root=root)
        answer = await answered(gateway, target, "Host: gate", "Content-Length: 0", method=method)
        # On the shared listener most name no gateway.
        assert answer.status in ({400, 404, 405} if root else {400}), target
        assert (gateway.catalog.requests, bystander.requests) == ([], []), target
    assert gateway.inbox.taken == []


async def test_path_that_looks_like_a_host_is_a_path_of_the_catalog(made: tuple[Gate, str], bystander: Catalog) -> None:
    gateway, root = made
    for path in PATHS:
        target = path.format(bystander=f"127.0.0.1:{bystander.port}")
        if not root and not target.startswith("/"):
            target = f"/{target}"
        assert (await answered(gateway, root + target)).status == 200
        assert gateway.catalog.last.target == f"/base{target}"
        assert gateway.catalog.last.value(b"host") == f"127.0.0.1:{gateway.catalog.port}".encode()
    assert bystander.requests == []


async def test_connect_is_no_method_of_a_gateway(made: tuple[Gate, str], bystander: Catalog) -> None:
    gateway, _ = made
    target = f"127.0.0.1:{bystander.port}"
    assert (await answered(gateway, target, f"Host: {target}", method="CONNECT")).status == 400
    assert (gateway.catalog.requests, bystander.requests) == ([], [])


async def test_a_header_that_could_be_read_in_two_ways_goes_nowhere(made: tuple[Gate, str]) -> None:
    gateway, root = made
    smuggled = b"0\r\n\r\nGET /v1/y HTTP/1.1\r\n\r\n"
    for fields in AMBIGUOUS:
        answer = await answered(gateway, f"{root}/v1/x", *fields, method="POST", body=smuggled)
        assert answer.status == 400, fields
    assert gateway.catalog.requests == []


async def test_how_long_a_body_is_is_said_of_what_is_sent(made: tuple[Gate, str]) -> None:
    """A client can't take the length away by naming it a field of its connection."""
    gateway, root = made
    fields = ("Host: gate", "Connection: content-length, x-forwarded-host, host", "Content-Length: 4")
    assert (await answered(gateway, f"{root}/v1/x", *fields, method="POST", body=b"body")).status == 200
    assert gateway.catalog.last.all(b"content-length") == [b"4"]
    assert gateway.catalog.last.all(b"x-forwarded-host") == [b"gate"]
    assert gateway.catalog.last.body == b"body"


async def test_fields_behind_a_body_are_none_of_the_header(made: tuple[Gate, str]) -> None:
    """What stands before the gateway looks at the header alone."""
    gateway, root = made
    body = chunk(b"body") + b"0\r\nAuthorization: Bearer x\r\nX-Forwarded-For: y\r\n\r\n"
    fields = ("Host: gate", "Transfer-Encoding: chunked")
    assert (await answered(gateway, f"{root}/v1/x", *fields, method="POST", body=body)).status == 200
    assert gateway.catalog.last.all(b"authorization") == []
    assert gateway.catalog.last.all(b"content-length") == [b"4"]
    assert gateway.catalog.last.all(b"x-forwarded-for") == [b"127.0.0.1"]


async def test_bytes_above_ascii_pass_both_ways_as_they_are(made: tuple[Gate, str]) -> None:
    gateway, root = made
    value = "".join(map(chr, range(0x80, 0x100))).strip("\x85\xa0")
    text = f"HTTP/1.1 200 OK\r\nX-User: {value}\r\nContent-Length: 0\r\n\r\n"

    async def say(_: Message, line: object) -> None:
        await line.send(text.encode("latin-1"))  # type: ignore[attr-defined]

    gateway.catalog.answer = say
    answer = await answered(gateway, f"{root}/v1/x", "Host: gate", f"X-User: {value}")
    assert gateway.catalog.last.value(b"x-user") == value.encode("latin-1")
    assert answer.value(b"x-user") == value.encode("latin-1")


async def test_a_pipelined_request_is_a_request_of_its_own(made: tuple[Gate, str]) -> None:
    gateway, root = made
    async with gateway.connect() as wire:
        one = f"POST {root}/v1/1 HTTP/1.1\r\nHost: gate\r\nContent-Length: 4\r\n\r\nbody"
        two = f"GET {root}/v1/2 HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n"
        await wire.send(f"{one}{two}".encode())
        assert parted(await wire.rest()).status == 200
    assert [found.target for found in gateway.catalog.requests] == ["/base/v1/1", "/base/v1/2"]
    assert gateway.catalog.requests[0].body == b"body"


NAMESPACE = "/v1/namespaces/a"
COMMIT = f"{NAMESPACE}/tables/t"


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfn.gateway.streams.STALL_LIMIT", 0.3)


async def pour(_: Message, line: Line) -> None:
    """Answer without end."""
    await line.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await line.send(chunk(b"x" * 100_000))


async def say_nothing(_: Message, line: Line) -> None:
    """Wait until the connection ends."""
    await line.ended()


def begun(target: str, body: bytes) -> bytes:
    """A request whose body is longer than what is sent of it."""
    return asked(target, "Content-Length: 1000", method="POST") + body


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("target", "body"), [("/v1/x", b""), (f"{NAMESPACE}/tables", b"{")], ids=["stream", "whole"])
async def test_a_body_that_does_not_begin_or_has_to_be_read_first_is_given_up(target: str, body: bytes) -> None:
    async with gate() as made, made.connect() as wire:
        await wire.send(begun(target, body))
        with anyio.fail_after(5):
            assert (await wire.reply()).status == 408
        assert made.catalog.requests == []


@pytest.mark.usefixtures("hurried")
async def test_one_that_the_catalog_has_the_begin_of_is_given_up_there_too() -> None:
    async with gate() as made, made.connect() as wire:
        made.catalog.reads = False
        made.catalog.answer = say_nothing
        # More than what is read before a connection is taken for it.
        await wire.send(asked(COMMIT, "Content-Length: 3000000", method="POST") + b"{" * 1_500_000)
        await until(lambda: made.catalog.lines == 1)
        await until(lambda: made.catalog.lines == 0)
        with anyio.fail_after(5):
            assert (await wire.reply()).status == 408


async def test_a_slow_body_that_goes_on_is_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfn.gateway.streams.STALL_LIMIT", 2.0)
    monkeypatch.setattr("sfn.gateway.streams.MIN_RATE", 1)
    async with gate() as made, made.connect() as wire:
        await wire.send(asked("/v1/x", "Content-Length: 6", method="POST"))
        for _ in range(6):
            await anyio.sleep(0.4)
            await wire.send(b"x")
        assert (await wire.reply()).status == 200
        assert made.catalog.last.body == b"xxxxxx"


@pytest.mark.usefixtures("hurried")
async def test_a_client_that_takes_nothing_of_its_answer_is_not_downloaded_for() -> None:
    async with gate() as made, made.connect() as wire:
        made.catalog.answer = pour
        await wire.send(asked("/v1/x"))
        await until(lambda: made.catalog.lines == 1)
        await until(lambda: made.catalog.lines == 0)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("length", [1_000, 3_000_000])
async def test_a_body_that_trickles_is_given_up_though_it_never_pauses(length: int) -> None:
    """Whether it is read first, or the catalog has the begin of it."""
    async with gate() as made, made.connect() as wire:
        made.catalog.reads = False
        made.catalog.answer = say_nothing
        await wire.send(asked(COMMIT, f"Content-Length: {length}", method="POST") + b"{" * (length // 2))
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drip, wire, b" ", 0.05)
                assert (await wire.reply()).status == 408
                tasks.cancel_scope.cancel()
        await until(lambda: made.catalog.lines == 0)


@pytest.mark.usefixtures("hurried")
async def test_a_client_that_takes_a_byte_now_and_then_is_not_downloaded_for() -> None:
    async with gate() as made, made.connect() as wire:
        made.catalog.answer = pour
        await wire.send(asked("/v1/x"))
        await until(lambda: made.catalog.lines == 1)
        with anyio.fail_after(10):
            while made.catalog.lines:
                await wire.nothing_for(0.02)
