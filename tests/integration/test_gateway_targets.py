"""Whatever a request says, a gateway connects to its catalog and to nobody else, and sends it one request at most."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import product

import pytest

from tests.integration.gateways import ROOT, Catalog, Gate, Message, catalog, gate, parted
from tests.integration.listening import chunk

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


async def test_a_path_that_looks_like_a_host_is_a_path_of_the_catalog(
    made: tuple[Gate, str], bystander: Catalog
) -> None:
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
