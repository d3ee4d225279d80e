"""Header fields on their way through a gateway, and the catalog's configuration in our place."""

from __future__ import annotations

import gzip
import json
import zlib
from functools import partial

import pytest

from sfn.gateway.connection import PublicAddress, first_value, public_address, request_fields, response_fields
from sfn.gateway.proxy import _UPWARDS
from sfn.gateway.upstream import decode_body, rewrite_configuration, rewrite_location, signer_addresses

SEEN = PublicAddress("https", "sfn.example:8443", "/catalog/prod")

zipped = partial(gzip.compress, mtime=0)
"""The same bytes in each run: the names of tests have them."""


def test_what_speaks_of_one_connection_ends_with_it() -> None:
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


def test_who_asked_is_added_to_who_asked_before() -> None:
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
def test_links_lead_to_where_the_client_came_in(came: list[tuple[bytes, bytes]], url: str, port: str) -> None:
    seen = public_address(came, "http", "/catalog/prod")
    assert (seen.url, seen.port) == (url, port)


def test_an_answer_without_a_body_tells_no_length() -> None:
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
def test_a_path_that_leads_out_is_seen(path: str, *, upwards: bool) -> None:
    assert (_UPWARDS.search(path) is not None) is upwards


def config(**sections: object) -> bytes:
    return json.dumps(sections).encode()


def test_only_what_leads_to_the_catalog_leads_to_us() -> None:
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
def test_an_address_is_the_catalogs_however_it_is_spelled(uri: str, upstream: str, *, is_theirs: bool) -> None:
    found = rewrite_configuration(config(overrides={"uri": uri}), upstream, "https://sfn/catalog/prod")
    assert found is not None
    assert json.loads(found.body)["overrides"]["uri"] == ("https://sfn/catalog/prod" if is_theirs else uri)


def test_what_needs_no_change_is_passed_on_to_the_letter() -> None:
    body = b'{ "overrides" : {"namespace-separator":"%2E"}, "endpoints": ["GET v1"] }'
    assert rewrite_configuration(body, "http://catalog", "http://sfn") == (body, "%2E", "")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"\xff", b'{"defaults": 1}', b"[" * 100_000])
def test_what_is_no_configuration_is_no_configuration(body: bytes) -> None:
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
def test_one_that_can_not_be_read_or_is_too_long_is_not(codings: list[bytes], sent: bytes) -> None:
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
def test_a_redirect_to_the_catalog_leads_to_us(value: str, seen: str | None) -> None:
    found = rewrite_location(value.encode("latin-1"), "http://catalog:8181/api", "https://sfn/catalog/prod")
    assert found.decode("latin-1") == (value if seen is None else seen)


def test_a_redirect_to_a_path_leads_below_ours() -> None:
    assert (
        rewrite_location(b"/v1/x/", "http://catalog", "https://sfn/catalog/prod") == b"https://sfn/catalog/prod/v1/x/"
    )
    assert rewrite_location(b"/v1/x/", "http://catalog", "https://sfn") == b"https://sfn/v1/x/"
