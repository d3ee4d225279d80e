"""What is asked of Blob Storage, to the letter, and what of its answers is taken."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from sfn.storage import ErrorKind, FetchedObject, ObjectPage
from sfn.storage.azure import IMPOSSIBLE_ETAG, AccountKey, AzureClient, SharedSignature
from tests.unit.azure_server import (
    HOME,
    KEY,
    PRIVATE,
    TAG,
    Asked,
    Responder,
    Server,
    asking,
    blob,
    complaint,
    found,
    listing,
    refusal,
    reply,
    running,
)

SIGNATURE = "sv=2024-11-04&sr=c&sp=rcwdl&se=2030-01-01T00%3A00%3A00Z&sig=czNjcmV0LW9mLW91cnM%3D"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running() as server:
        yield server


@pytest.fixture
async def objects(server: Server) -> AsyncIterator[AzureClient]:
    async with asking(server) as objects:
        yield objects


def by_method(**responders: Responder) -> Responder:
    """Answers by what is asked."""

    async def respond(asked: Asked) -> web.StreamResponse:
        return await responders[asked.method](asked)

    return respond


async def test_a_blob_is_had_with_its_tag_and_its_mark_in_one_request(server: Server, objects: AzureClient) -> None:
    server.answer = found(b"{}", x_ms_meta_sfnwrite="0a-1")
    assert await objects.get(KEY, 100) == FetchedObject(b"{}", TAG, "0a-1")
    assert server.asked == ["GET /lake/sales/metadata/_sfn/orders.ver"]
    assert server.requests[0].headers["x-ms-range"] == "bytes=0-99"


async def test_somebody_elses_blob_has_no_mark(server: Server, objects: AzureClient) -> None:
    server.answer = found(b"3", x_ms_meta_author="theirs")
    assert await objects.get(KEY, 100) == FetchedObject(b"3", TAG, None)


async def test_an_empty_blob_has_no_part_and_is_asked_what_it_is(server: Server, objects: AzureClient) -> None:
    empty = reply(b"", etag=TAG, x_ms_meta_sfnwrite="0a-1", content_length="0")
    server.answer = by_method(GET=complaint(416, "InvalidRange"), HEAD=empty)
    assert await objects.get(KEY, 100) == FetchedObject(b"", TAG, "0a-1")
    assert await objects.get_range(KEY, 0, 100) == b""
    assert [asked.method for asked in server.requests] == ["GET", "HEAD", "GET"]


async def test_a_blob_that_is_filled_meanwhile_is_not_taken_for_empty(server: Server, objects: AzureClient) -> None:
    server.answer = by_method(GET=complaint(416, "InvalidRange"), HEAD=reply(b"{}", etag=TAG))
    assert (await refusal(objects.get(KEY, 100))).kind is ErrorKind.PRECONDITION_FAILED


async def test_no_more_of_a_blob_is_taken_than_was_asked_for(server: Server, objects: AzureClient) -> None:
    server.answer = reply(b"x" * 1000, 206, etag=TAG, content_range="bytes 0-999/1000")
    assert len((await objects.get(KEY, 100)).body) == 100
    assert len(server.requests) == 1


async def test_a_part_is_a_range_and_one_request_however_long(server: Server, objects: AzureClient) -> None:
    body = bytes(33 * 2**20)
    server.answer = reply(body, 206, etag=TAG, content_range=f"bytes 5-{len(body) + 4}/{len(body) + 5}")
    assert await objects.get_range(KEY, 5, len(body)) == body
    assert server.requests[0].headers["x-ms-range"] == f"bytes=5-{len(body) + 4}"
    server.answer = complaint(416, "InvalidRange")
    assert await objects.get_range(KEY, 5, 10) == b""
    assert len(server.requests) == 2


async def test_what_was_uploaded_compressed_comes_as_it_is(server: Server, objects: AzureClient) -> None:
    server.answer = found(b"\x1f\x8bcompressed", content_encoding="gzip")
    assert (await objects.get(KEY, 100)).body == b"\x1f\x8bcompressed"
    assert await objects.get_range(KEY, 0, 100) == b"\x1f\x8bcompressed"


@pytest.mark.parametrize("mark", ["hdi_isfolder", "Hdi_isfolder"])
async def test_a_directory_is_no_file(server: Server, objects: AzureClient, mark: str) -> None:
    headers = {"etag": TAG, f"x-ms-meta-{mark}": "true"}
    folder = reply(b"", 200, **headers)
    server.answer = by_method(GET=complaint(416, "InvalidRange"), HEAD=folder)
    refused = await refusal(objects.get(KEY, 100))
    assert (refused.kind, "directory" in refused.found) == (ErrorKind.INVALID_OBJECT, True)


@pytest.mark.parametrize(
    ("key", "kind"),
    [(KEY, "application/json"), (f"{HOME}t/metadata/version-hint.text", "text/plain; charset=utf-8")],
)
@pytest.mark.parametrize("body", [b"", b"{}", bytes(range(256))])
@pytest.mark.parametrize(("tag", "condition"), [(None, ("if-none-match", "*")), (TAG, ("if-match", TAG))])
async def test_a_write_is_one_request_with_its_condition_and_its_mark(
    server: Server, objects: AzureClient, key: str, kind: str, body: bytes, tag: str | None, condition: tuple[str, str]
) -> None:
    server.answer = reply(b"", 201, etag='"0x1"')
    assert await objects.put(key, body, tag, "0a-1") == '"0x1"'
    (asked,) = server.requests
    assert (asked.method, asked.body) == ("PUT", body)
    conditions = {name.lower(): value for name, value in asked.headers.items() if name.lower().startswith("if-")}
    assert conditions == dict([condition])
    told = ("x-ms-blob-type", "x-ms-blob-cache-control", "x-ms-blob-content-type", "x-ms-meta-sfnwrite")
    assert [asked.headers[name] for name in told] == ["BlockBlob", "no-store", kind, "0a-1"]
    assert asked.headers["content-length"] == str(len(body))


async def test_a_delete_has_its_condition_and_leaves_snapshots_alone(server: Server, objects: AzureClient) -> None:
    server.answer = reply(b"", 202)
    await objects.delete(KEY, TAG)
    assert server.asked == ["DELETE /lake/sales/metadata/_sfn/orders.ver"]
    assert server.requests[0].headers["if-match"] == TAG
    assert "x-ms-delete-snapshots" not in server.requests[0].headers


@pytest.mark.parametrize("tag", ["", "*", " ", "a b", '"0x1"\r\nx-ms-lease-id: 1', '"ä"'])
async def test_what_is_no_tag_is_stale_and_nobody_is_asked(server: Server, objects: AzureClient, tag: str) -> None:
    assert (await refusal(objects.put(KEY, b"{}", tag, "0a-1"))).kind is ErrorKind.PRECONDITION_FAILED
    assert (await refusal(objects.delete(KEY, tag))).kind is ErrorKind.PRECONDITION_FAILED
    assert server.asked == []


async def test_the_made_up_tag_is_asked_for(server: Server, objects: AzureClient) -> None:
    server.answer = complaint(412, "ConditionNotMet")
    assert (await refusal(objects.put(KEY, b"{}", IMPOSSIBLE_ETAG, "0a-1"))).kind is ErrorKind.PRECONDITION_FAILED
    assert server.requests[0].headers["if-match"] == IMPOSSIBLE_ETAG


async def test_a_listing_is_asked_for_in_pages(server: Server, objects: AzureClient) -> None:
    server.answer = listing("t/a.ver", "t/ä%2F.ver", following="on/+=")
    assert await objects.list_page(f"{HOME}t/", 2, None) == ObjectPage((f"{HOME}t/a.ver", f"{HOME}t/ä%2F.ver"), "on/+=")
    server.answer = listing()
    assert await objects.list_page(f"{HOME}t/", 2, "on/+=") == ObjectPage((), None)
    first, second = server.requests
    for asked in (first, second):
        assert asked.path.startswith("/lake?")
    told = {"restype=container", "comp=list", "prefix=t%2F", "delimiter=%2F", "maxresults=2", "include=metadata"}
    assert set(first.path.partition("?")[2].split("&")) == told
    assert set(second.path.partition("?")[2].split("&")) == {*told, "marker=on%2F%2B%3D"}


async def test_folders_are_left_out_of_a_listing_whatever_marks_them(server: Server, objects: AzureClient) -> None:
    marked = (blob("t/dir", hdi_isfolder="true"), blob("t/dir2", Hdi_isfolder="True", owner="x"))
    files = (blob("t/file", hdi_isfolder="false"), blob("t/other", owner="x"))
    server.answer = listing("t/", *marked, *files, prefixes=("t/dir/", "t/more/"))
    assert (await objects.list_page(f"{HOME}t/", 10, None)).keys == (f"{HOME}t/file", f"{HOME}t/other")


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("a%5Fb.ver", "a%255Fb.ver"),
        ("a#b?c&d=e.ver", "a%23b%3Fc%26d%3De.ver"),
        ("größe 🧊+.ver", "gr%C3%B6%C3%9Fe%20%F0%9F%A7%8A%2B.ver"),
        ("{x}~-_.ver", "%7Bx%7D~-_.ver"),
    ],
)
async def test_a_key_goes_over_the_wire_to_the_letter(
    server: Server, objects: AzureClient, name: str, quoted: str
) -> None:
    key = f"{HOME}t/{name}"
    server.answer = by_method(
        GET=found(b"{}"), PUT=reply(b"", 201, etag=TAG), DELETE=reply(b"", 202), HEAD=reply(b"", etag=TAG)
    )
    await objects.get(key, 10)
    await objects.put(key, b"", TAG, "0a-1")
    await objects.delete(key, TAG)
    assert {asked.path for asked in server.requests} == {f"/lake/t/{quoted}"}
    server.answer = listing()
    await objects.list_page(key, 1, None)
    assert f"prefix=t%2F{quoted.replace('~', '%7E')}" in server.requests[-1].path.replace("~", "%7E").split("&")


async def test_who_asks_says_so(server: Server) -> None:
    server.answer = found(b"{}")
    for identity in (AccountKey(PRIVATE), SharedSignature(f"?{SIGNATURE}"), SharedSignature(SIGNATURE), None):
        async with asking(server, identity) as objects:
            await objects.get(KEY, 10)
    key, *signed, nobody = server.requests
    assert key.headers["authorization"].startswith("SharedKey acct:")
    for asked in signed:
        assert asked.path.partition("?")[2] == SIGNATURE
    for asked in (*signed, nobody):
        assert "authorization" not in asked.headers
    assert nobody.path == "/lake/sales/metadata/_sfn/orders.ver"
    assert key.headers["user-agent"].startswith("iceberg-sfn ")
    assert key.headers["x-ms-version"] == "2021-12-02"


@pytest.mark.parametrize("identity", [AccountKey(PRIVATE), SharedSignature(SIGNATURE)])
async def test_no_secret_is_ever_told(
    server: Server, identity: AccountKey | SharedSignature, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with asking(server, identity) as objects:
        told = [repr(objects), repr(identity)]
        for answer in (complaint(403, "AuthenticationFailed"), reply(b"{}"), reply(b"", 302, location="http://a/")):
            server.answer = answer
            for verb in (objects.get(KEY, 10), objects.put(KEY, b"", TAG, "0a-1"), objects.list_page(KEY, 10, None)):
                refused = await refusal(verb)
                told += [repr(refused), str(refused), repr(refused.__cause__), str(refused.__cause__)]
    assert len(server.requests) == 9
    assert not [record for record in caplog.records if "http_logging" in record.name]
    for secret in (PRIVATE, "czNjcmV0LW9mLW91cnM"):
        assert secret not in "\n".join([*told, caplog.text])


async def test_a_key_that_is_none_is_told_of_and_not_shown(server: Server) -> None:
    async with asking(server, AccountKey(PRIVATE.removesuffix("="))) as objects:
        refused = await refusal(objects.put(KEY, b"", None, "0a-1"))
    assert (refused.kind, server.asked) == (ErrorKind.UNAUTHENTICATED, [])
    assert "account key" in refused.found
    assert PRIVATE.removesuffix("=") not in repr(refused) + repr(refused.__cause__)
