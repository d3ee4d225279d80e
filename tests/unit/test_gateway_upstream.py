"""The upstream connections of a gateway."""

# ruff: noqa: SLF001 - only what nobody outside sees tells whether a place is lost
from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from functools import partial
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from sfn.errors import Transient
from sfn.gateway import upstream
from sfn.gateway.connection import (
    PublicAddress,
    UpstreamConnection,
    first_value,
    public_address,
    request_fields,
    response_fields,
)
from sfn.gateway.proxy import _UPWARDS
from sfn.gateway.streams import MAX_SCANNED, MetadataLocationScanner, ResponseObserver
from sfn.gateway.upstream import (
    UpstreamOptions,
    UpstreamPool,
    decode_body,
    rewrite_configuration,
    rewrite_location,
    signer_addresses,
)

SEEN = PublicAddress("https", "sfn.example:8443", "/catalog/prod")

zipped = partial(gzip.compress, mtime=0)
"""The same bytes in each run, because the names of tests contain them."""


def test_hop_by_hop_fields_are_removed() -> None:
    came = [
        (b"host", b"sfn"),
        (b"connection", b"keep-alive, X-Hop"),
        (b"x-hop", b"1"),
        (b"keep-alive", b"timeout=5"),
        (b"te", b"trailers"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"proxy-authorization", b"Basic x"),
        (b"expect", b"100-continue"),
        (b"authorization", b"Bearer t"),
        (b"x-twice", b"1"),
        (b"x-twice", b"2"),
    ]
    sent = request_fields(came, SEEN, None)
    assert sent == [
        (b"authorization", b"Bearer t"),
        (b"x-twice", b"1"),
        (b"x-twice", b"2"),
        (b"X-Forwarded-Host", b"sfn.example:8443"),
        (b"X-Forwarded-Proto", b"https"),
        (b"X-Forwarded-Port", b"8443"),
        (b"X-Forwarded-Prefix", b"/catalog/prod"),
    ]


def test_client_is_appended_to_x_forwarded_for() -> None:
    sent = request_fields([(b"X-Forwarded-For", b"10.0.0.1")], SEEN, "10.0.0.2")
    assert first_value(sent, b"x-forwarded-for") == "10.0.0.1, 10.0.0.2"


@pytest.mark.parametrize(
    ("came", "url", "port"),
    [
        ([(b"host", b"sfn:8085")], "http://sfn:8085/catalog/prod", "8085"),
        ([(b"host", b"sfn")], "http://sfn/catalog/prod", "80"),
        ([(b"host", b"[::1]:8085")], "http://[::1]:8085/catalog/prod", "8085"),
        ([(b"host", b"[::1]")], "http://[::1]/catalog/prod", "80"),
        (
            [
                (b"host", b"inner"),
                (b"x-forwarded-host", b"outer, inner"),
                (b"x-forwarded-proto", b"https"),
                (b"x-forwarded-prefix", b"/lake/"),
            ],
            "https://outer/lake/catalog/prod",
            "443",
        ),
    ],
)
def test_public_address_comes_from_forwarded_fields(came: list[tuple[bytes, bytes]], url: str, port: str) -> None:
    seen = public_address(came, "http", "/catalog/prod")
    assert (seen.url, seen.port) == (url, port)


def test_bodiless_response_has_no_length() -> None:
    came = [(b"ETag", b'"1"'), (b"Content-Length", b"99"), (b"Date", b"x"), (b"Connection", b"close")]
    assert response_fields(came, bodiless=False) == [(b"ETag", b'"1"'), (b"Content-Length", b"99")]
    assert response_fields(came, bodiless=True) == [(b"ETag", b'"1"')]


@pytest.mark.parametrize(
    ("path", "upwards"),
    [
        ("/v1/../admin", True),
        ("/..", True),
        ("/v1/%2e%2E/admin", True),
        ("/v1/.%2e/", True),
        ("/v1/..%2fadmin", True),
        ("/v1/x%2F..%2Fadmin", True),
        ("/v1/..;x/admin", True),
        ("/v1/..\\admin", True),
        ("/v1/a..b/c", False),
        ("/v1/namespaces/a%2Eb/tables/%2E", False),
        ("/v1/.../x", False),
        ("/v1/./x", False),
    ],
)
def test_path_out_of_the_catalog_is_detected(path: str, *, upwards: bool) -> None:
    assert (_UPWARDS.search(path) is not None) is upwards


def config(**sections: object) -> bytes:
    return json.dumps(sections).encode()


def test_only_addresses_of_the_catalog_are_rewritten() -> None:
    theirs, ours = "http://catalog:8181/api", "https://sfn/catalog/prod"
    body = config(
        defaults={"uri": "http://catalog:8181/api/", "s3.signer.uri": theirs},
        overrides={"uri": "https://elsewhere/api", "prefix": "p"},
    )
    found = rewrite_configuration(body, theirs, ours)
    assert found is not None
    content = json.loads(found.body)
    assert content["defaults"] == {"uri": ours, "s3.signer.uri": theirs}
    assert content["overrides"] == {"uri": "https://elsewhere/api", "prefix": "p"}
    assert signer_addresses(content["defaults"]) == {"s3.signer.uri": theirs}


@pytest.mark.parametrize(
    ("uri", "upstream", "is_theirs"),
    [
        ("http://CATALOG:80/api/", "http://catalog/api", True),
        ("https://catalog:443/api", "https://catalog/api", True),
        ("https://catalog/api", "http://catalog/api", False),
        ("https://catalog/api/v2", "https://catalog/api", False),
        ("https://catalog/api?a", "https://catalog/api", False),
        # What Lakekeeper makes of X-Forwarded-Host, -Port and -Prefix.
        ("https://sfn:443/catalog/prod/catalog", "http://lakekeeper:8181/catalog", True),
        ("https://sfn/catalog/prod", "http://lakekeeper:8181", True),
        ("https://[", "https://catalog", False),
    ],
)
def test_address_is_recognised_in_any_spelling(uri: str, upstream: str, *, is_theirs: bool) -> None:
    found = rewrite_configuration(config(overrides={"uri": uri}), upstream, "https://sfn/catalog/prod")
    assert found is not None
    assert json.loads(found.body)["overrides"]["uri"] == ("https://sfn/catalog/prod" if is_theirs else uri)


def test_unchanged_configuration_is_passed_on_byte_for_byte() -> None:
    body = b'{ "overrides" : {"namespace-separator":"%2E"}, "endpoints": ["GET v1"] }'
    assert rewrite_configuration(body, "http://catalog", "http://sfn") == (body, "%2E", "")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"\xff", b'{"defaults": 1}', b"[" * 100_000])
def test_invalid_configuration_is_not_rewritten(body: bytes) -> None:
    found = rewrite_configuration(body, "http://catalog", "http://sfn")
    assert found is None or found == (body, None, "")


def deflated(body: bytes, form: int) -> bytes:
    made = zlib.compressobj(wbits=form)
    return made.compress(body) + made.flush()


@pytest.mark.parametrize(
    ("codings", "sent"),
    [
        ([], b"{}"),
        ([b"identity"], b"{}"),
        ([b"gzip"], zipped(b"{}")),
        ([b"x-gzip"], zipped(b"{") + zipped(b"}")),
        ([b"deflate"], zlib.compress(b"{}")),
        ([b"deflate"], deflated(b"{}", -15)),
        ([b"deflate", b"gzip"], zipped(zlib.compress(b"{}"))),
    ],
)
def test_a_compressed_configuration_is_read(codings: list[bytes], sent: bytes) -> None:
    assert decode_body(sent, codings, 10) == b"{}"


@pytest.mark.parametrize(
    ("codings", "sent"),
    [
        ([b"br"], b"{}"),
        ([b"zstd"], b"{}"),
        ([b"gzip"], b"{}"),
        ([b"gzip"], zipped(b"{}")[:-1]),
        ([b"gzip"], zipped(b"{}") + b"more"),
        ([b"gzip"], zipped(b"x" * 11)),
        ([b"gzip"], zipped(b"x" * 10) + zipped(b"x")),
        ([b"gzip", b"gzip"], zipped(zipped(b"x" * 100_000))),
    ],
)
def test_unreadable_or_too_long_configuration_is_not_decoded(codings: list[bytes], sent: bytes) -> None:
    assert decode_body(sent, codings, 10) is None


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("http://catalog:8181/api/v1/x?a=b#c", "https://sfn/catalog/prod/v1/x?a=b#c"),
        ("HTTP://CATALOG:8181/api", "https://sfn/catalog/prod"),
        ("//catalog:8181/api/v1/x", "https://sfn/catalog/prod/v1/x"),
        ("/api/v1/x/", "https://sfn/catalog/prod/v1/x/"),
        ("/catalog/prod/api/v1/x", "https://sfn/catalog/prod/v1/x"),
        ("https://sfn/catalog/prod/api/v1/x", "https://sfn/catalog/prod/v1/x"),
        ("https://sfn/catalog/prod/v1/x", "https://sfn/catalog/prod/v1/x"),
        ("https://sfn/api/v1/x", "https://sfn/catalog/prod/v1/x"),
        # Elsewhere, outside of what the gateway stands before, or relative to what was asked for.
        ("http://elsewhere/api/v1/x", None),
        ("https://catalog:8181/api/v1/x", None),
        ("http://catalog:8181/apiary", None),
        ("/login", None),
        ("x/", None),
        ("?a", None),
        ("http://[", None),
        ("http://catalog:port/api", None),
        ("\u00e9", None),
        ("", None),
    ],
)
def test_redirect_to_the_catalog_leads_to_the_gateway(value: str, seen: str | None) -> None:
    found = rewrite_location(value.encode("latin-1"), "http://catalog:8181/api", "https://sfn/catalog/prod")
    assert found.decode("latin-1") == (value if seen is None else seen)


def test_redirect_to_a_path_leads_below_the_gateway() -> None:
    assert (
        rewrite_location(b"/v1/x/", "http://catalog", "https://sfn/catalog/prod") == b"https://sfn/catalog/prod/v1/x/"
    )
    assert rewrite_location(b"/v1/x/", "http://catalog", "https://sfn") == b"https://sfn/v1/x/"


Step: TypeAlias = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["take", "take long", "take late"]), st.just(0)),
        st.tuples(st.sampled_from(["cancel", "give back"]), st.integers(0, 7)),
        st.just(("turn", 0)),
    ),
    max_size=40,
)
LATER = 60.0


class Unconnected(UpstreamPool):
    """A pool whose connections lead nowhere."""

    @override
    async def _connect(self, until: float) -> upstream._Pooled:
        await asyncio.sleep(0)
        return UpstreamConnection(1.0), None


class Crowd:
    """Requests that take places, give up, and give places back."""

    def __init__(self, most: int) -> None:
        self.pool = Unconnected("prod", UpstreamOptions("http://catalog", 1.0, most), lambda: True)
        self._asking: list[asyncio.Task[None]] = []
        self._leaving: list[asyncio.Event] = []

    async def play(self, steps: list[Step]) -> None:
        """Do all of it, then give everything back. Between two steps there is a turn of the loop where one says so."""
        for what, which in steps:
            if what == "turn":
                await asyncio.sleep(0)
            elif what.startswith("take"):
                self._take(streams=what == "take long", within=0.0 if what == "take late" else LATER)
            elif self._asking and what == "cancel":
                self._asking[which % len(self._asking)].cancel()
            elif self._leaving:
                self._leaving[which % len(self._leaving)].set()
            assert 0 <= self.pool._taken <= self.pool._options.max_connections
        for leave in self._leaving:
            leave.set()
        for _ in range(10 * len(steps) + 10):
            await asyncio.sleep(0)
        assert all(task.done() for task in self._asking), "nobody waits for a place that nobody has"
        assert [task for task in self._asking if not task.cancelled() and task.exception()] == []

    def _take(self, *, streams: bool, within: float) -> None:
        leave = asyncio.Event()
        self._leaving.append(leave)
        self._asking.append(
            asyncio.get_running_loop().create_task(self._request(streams=streams, within=within, leave=leave))
        )

    async def _request(self, *, streams: bool, within: float, leave: asyncio.Event) -> None:
        kind = upstream._RequestKind(streams, is_repeatable=False)
        upstream.CONNECT_TIMEOUT = within  # type: ignore[misc]
        try:
            pooled = await self.pool._acquire(kind)
        except Transient:
            return
        try:
            await leave.wait()
        finally:
            self.pool._release(kind, pooled)


def played(most: int, steps: list[Step]) -> UpstreamPool:
    """The pool after a history."""

    async def play() -> UpstreamPool:
        crowd = Crowd(most)
        await crowd.play(steps)
        return crowd.pool

    before = upstream.CONNECT_TIMEOUT
    try:
        return asyncio.run(play())
    finally:
        upstream.CONNECT_TIMEOUT = before  # type: ignore[misc]


@pytest.mark.slow
@settings(max_examples=200)
@given(most=st.integers(1, 3), steps=STEPS)
def test_all_places_are_free_after_any_history(most: int, steps: list[Step]) -> None:
    pool = played(most, steps)
    assert (pool._taken, pool._streams, len(pool._waiting)) == (0, 0, 0)


def test_place_is_not_given_to_a_cancelled_waiter() -> None:
    first, second = ("take", 0), ("take", 0)
    steps = [first, ("turn", 0), ("turn", 0), second, ("turn", 0), ("turn", 0), ("give back", 0), ("cancel", 1)]
    pool = played(1, [*steps, ("turn", 0), ("turn", 0), ("take", 0)])
    assert (pool._taken, len(pool._waiting)) == (0, 0)


HERE = 's3://b/t/metadata/00003-é "\\.metadata.json'
ANSWER = json.dumps({"config": {"a": "b"}, "metadata": {"x": "y" * 9_000}, "metadata-location": HERE, "z": 1}).encode()


def found(body: bytes, size: int, encoding: str = "identity") -> str | None:
    floor = MetadataLocationScanner(encoding)
    for start in range(0, len(body), size):
        floor.feed(body[start : start + size])
    return floor.found


@given(st.integers(1, 20_000))
def test_metadata_location_is_found_wherever_the_parts_are_cut(size: int) -> None:
    assert found(ANSWER, size) == HERE
    assert found(json.dumps(json.loads(ANSWER), ensure_ascii=False, indent=2).encode(), size) == HERE
    assert found(gzip.compress(ANSWER), size, "gzip") == HERE


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"", "identity"),
        (b'{"metadata-location": null}', "identity"),
        (b'{"metadata-location": ""}', "identity"),
        (b'{"metadata-location": "\xff"}', "identity"),
        (b'{"metadata-location": "\\q"}', "identity"),
        (b'{"metadata-location": "' + b"x" * 5_000 + b'"}', "identity"),
        (ANSWER, "br"),
        (ANSWER, "gzip"),
        (gzip.compress(ANSWER, mtime=0)[:40], "gzip"),
    ],
)
def test_unreadable_response_has_no_metadata_location(body: bytes, encoding: str) -> None:
    assert found(body, 1_000, encoding) is None


def test_only_the_beginning_is_scanned() -> None:
    body = b" " * (MAX_SCANNED - 10) + b'{"metadata-location": "s3://b"}'
    assert found(body, 65_536) is None
    assert found(gzip.compress(body), 65_536, "gzip") is None


def test_decompression_bomb_is_scanned_up_to_the_limit() -> None:
    floor, bomb = MetadataLocationScanner("gzip"), gzip.compress(b" " * (32 << 20))
    tracemalloc.start()
    try:
        floor.feed(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (floor.found, peak < 4 * MAX_SCANNED) == (None, True)


def test_missing_response_has_no_metadata_location() -> None:
    passing = ResponseObserver()
    passing.on_part(b"not to be seen")
    assert (passing.status, passing.metadata_location) == (None, None)
    passing.on_header(200, None)
    passing.on_part(ANSWER)
    assert (passing.status, passing.metadata_location) == (200, HERE)


@given(st.lists(st.binary()), st.sampled_from(["identity", "gzip", "deflate"]))
def test_arbitrary_responses_raise_no_error(parts: list[bytes], encoding: str) -> None:
    floor = MetadataLocationScanner(encoding)
    for part in parts:
        floor.feed(part)
