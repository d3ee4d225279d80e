"""The Azure Blob Storage store: errors, addresses, requests and access tokens."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs

import anyio
import msgspec
import pytest
from aiohttp import web

from sfn.errors import SfnError
from sfn.storage import ErrorKind, FetchedObject, ObjectPage, RequestFailed
from sfn.storage.azure import (
    IMPOSSIBLE_ETAG,
    RETRY_AFTER_FAILURE,
    AccessToken,
    AccountKey,
    AzureClient,
    AzureIdentity,
    AzureOptions,
    DefaultCredentialChain,
    EntraApplication,
    EntraTokens,
    SharedSignature,
    blob_address,
    options_from_connection_string,
)
from sfn.storage.remote_store import HttpPool
from tests.support.certificates import Authority
from tests.support.object_store import SIGN_IN_PAGE, Asked, Responder, Server, never, refusal, reply, running
from tests.support.rest_catalog import pass_by
from tests.unit.azure_server import ACCOUNT_KEY, HOME, KEY, TAG, asking, blob, complaint, found, listing

REFUSED: dict[tuple[int, str], tuple[ErrorKind, str]] = {
    (404, "BlobNotFound"): (ErrorKind.MISSING, ""),
    (404, "ContainerNotFound"): (ErrorKind.NO_BUCKET, ""),
    (409, "ContainerBeingDeleted"): (ErrorKind.NO_BUCKET, ""),
    (409, "ContainerDisabled"): (ErrorKind.NO_BUCKET, ""),
    (403, "AccountIsDisabled"): (ErrorKind.NO_BUCKET, ""),
    (404, "NeverHeardOf"): (ErrorKind.NO_BUCKET, ""),
    (412, "ConditionNotMet"): (ErrorKind.PRECONDITION_FAILED, ""),
    (412, "TargetConditionNotMet"): (ErrorKind.PRECONDITION_FAILED, ""),
    (412, "NeverHeardOf"): (ErrorKind.PRECONDITION_FAILED, ""),
    (409, "BlobAlreadyExists"): (ErrorKind.PRECONDITION_FAILED, ""),
    (412, "LeaseIdMissing"): (ErrorKind.CHANGED_TOO_OFTEN, "lease"),
    (412, "LeaseIdMismatchWithBlobOperation"): (ErrorKind.CHANGED_TOO_OFTEN, "lease"),
    (409, "PendingCopyOperation"): (ErrorKind.CHANGED_TOO_OFTEN, "copy"),
    (409, "NeverHeardOf"): (ErrorKind.CHANGED_TOO_OFTEN, "documentation"),
    (409, "BlobImmutableDueToPolicy"): (ErrorKind.DENIED, "immutability"),
    (409, "BlobImmutableDueToLegalHold"): (ErrorKind.DENIED, "legal hold"),
    (403, "AuthorizationFailure"): (ErrorKind.DENIED, "firewall"),
    (403, "AuthorizationPermissionMismatch"): (ErrorKind.DENIED, ""),
    (403, "AuthorizationProtocolMismatch"): (ErrorKind.DENIED, "https:"),
    (403, "AuthorizationSourceIPMismatch"): (ErrorKind.DENIED, "address"),
    (403, "UnauthorizedBlobOverwrite"): (ErrorKind.DENIED, ""),
    (403, "InsufficientAccountPermissions"): (ErrorKind.DENIED, ""),
    (409, "PublicAccessNotPermitted"): (ErrorKind.DENIED, "credentials"),
    (404, "ResourceNotFound"): (ErrorKind.DENIED, "credentials"),
    (403, "AuthenticationFailed"): (ErrorKind.UNAUTHENTICATED, "clock"),
    (400, "InvalidAuthenticationInfo"): (ErrorKind.UNAUTHENTICATED, ""),
    (401, "InvalidAuthenticationInfo"): (ErrorKind.UNAUTHENTICATED, ""),
    (401, "NoAuthenticationInformation"): (ErrorKind.UNAUTHENTICATED, "credentials"),
    (403, "KeyBasedAuthenticationNotPermitted"): (ErrorKind.UNAUTHENTICATED, "Entra"),
    (503, "ServerBusy"): (ErrorKind.THROTTLED, ""),
    (429, "TooManyRequests"): (ErrorKind.THROTTLED, ""),
    (500, "InternalError"): (ErrorKind.NO_ANSWER, ""),
    (500, "OperationTimedOut"): (ErrorKind.NO_ANSWER, ""),
    (503, "NeverHeardOf"): (ErrorKind.NO_ANSWER, ""),
    (408, "NeverHeardOf"): (ErrorKind.NO_ANSWER, ""),
    (501, "NotImplemented"): (ErrorKind.UNSUPPORTED, ""),
    (400, "UnsupportedHeader"): (ErrorKind.UNSUPPORTED, ""),
    (400, "ConditionHeadersNotSupported"): (ErrorKind.UNSUPPORTED, ""),
    (400, "InvalidResourceName"): (ErrorKind.INVALID_OBJECT, ""),
    (400, "InvalidUri"): (ErrorKind.INVALID_OBJECT, ""),
    (400, "OutOfRangeInput"): (ErrorKind.INVALID_OBJECT, ""),
    (413, "RequestBodyTooLarge"): (ErrorKind.INVALID_OBJECT, ""),
    (409, "InvalidBlobType"): (ErrorKind.INVALID_OBJECT, "type"),
    (409, "ResourceTypeMismatch"): (ErrorKind.INVALID_OBJECT, "directory"),
    (409, "SnapshotsPresent"): (ErrorKind.INVALID_OBJECT, "snapshots"),
    (409, "BlobArchived"): (ErrorKind.INVALID_OBJECT, "tier"),
}
ODD: dict[str, tuple[Responder, ErrorKind]] = {
    "a page": (reply(SIGN_IN_PAGE, 403, content_type="text/html"), ErrorKind.DENIED),
    "a page that is called XML": (reply(SIGN_IN_PAGE, 404, content_type="application/xml"), ErrorKind.NO_BUCKET),
    "a proxy's trouble": (reply(SIGN_IN_PAGE, 502), ErrorKind.NO_ANSWER),
    "a redirect": (reply(b"", 302, location="https://login.example/?once=1"), ErrorKind.NO_BUCKET),
    "a redirect for good": (reply(b"", 308, location="http://127.0.0.1:1/"), ErrorKind.NO_BUCKET),
    "nothing": (reply(b"", 400), ErrorKind.REJECTED),
    "a status that nobody knows": (reply(b"", 499), ErrorKind.REJECTED),
    "JSON nested too deeply": (
        reply(b'{"x":' + b"[" * 100_000, 403, content_type="application/json"),
        ErrorKind.DENIED,
    ),
    "no UTF-8": (reply(b"<a>\xff</a>", 403, content_type="application/xml"), ErrorKind.DENIED),
    "a code that is none": (reply(b"", 403, x_ms_error_code="for a log: x=1"), ErrorKind.DENIED),
    "a code in the body alone": (reply(b"<Error><Code>BlobNotFound</Code></Error>", 403), ErrorKind.DENIED),
}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running(Server()) as server:
        yield server


@pytest.fixture
async def objects(server: Server) -> AsyncIterator[AzureClient]:
    async with asking(server) as objects:
        yield objects


@pytest.mark.parametrize(("status", "code"), REFUSED)
async def test_every_verb_is_refused_alike(server: Server, objects: AzureClient, status: int, code: str) -> None:
    kind, remedy = REFUSED[status, code]
    server.answer = complaint(status, code)
    for verb in (
        objects.get(KEY, 10),
        objects.get_range(KEY, 0, 10),
        objects.put(KEY, b"", TAG, "0a-1"),
        objects.put(KEY, b"{}", None, "0a-1"),
        objects.delete(KEY, TAG),
        objects.list_page(KEY, 10, None),
    ):
        refused = await refusal(verb)
        assert refused.kind is kind
        assert refused.found == f"status {status}, {code}"
        assert remedy in refused.remedy
        assert bool(remedy) is bool(refused.remedy)
    assert len(server.requests) == 6


@pytest.mark.parametrize("case", ODD)
async def test_what_is_no_error_of_the_service_counts_by_its_status(
    server: Server, objects: AzureClient, case: str
) -> None:
    server.answer, kind = ODD[case]
    for verb in (objects.get(KEY, 10), objects.put(KEY, b"", TAG, "0a-1"), objects.list_page(KEY, 10, None)):
        refused = await refusal(verb)
        assert refused.kind is kind
        assert refused.found.endswith("without an error of Blob Storage")
    assert len(server.requests) == 3


async def test_the_service_says_how_long_to_wait(server: Server, objects: AzureClient) -> None:
    server.answer = complaint(503, "ServerBusy", retry_after="7")
    assert (await refusal(objects.get(KEY, 10))).retry_after == 7.0
    server.answer = complaint(503, "ServerBusy", retry_after="Sat, 21 Nov 2026 12:01:30 GMT")
    assert (await refusal(objects.get(KEY, 10))).retry_after is None


SENSELESS: dict[str, Responder] = {
    "a page": reply(SIGN_IN_PAGE, content_type="text/html"),
    "nothing": reply(b""),
    "a part that does not say of what": reply(b"{}", 206, etag=TAG),
    "a part of nonsense": reply(b"{}", 206, etag=TAG, content_range="bytes of something"),
    "other XML": reply(b"<a><b/></a>", content_type="application/xml"),
    "XML that breaks off": reply(b"<EnumerationResults><Blobs>", content_type="application/xml"),
    "no UTF-8": reply(b"<a>\xff</a>", content_type="application/xml"),
    "JSON": reply(b'{"blobs": []}', content_type="application/json"),
    "JSON that breaks off": reply(b'{"blobs": [', content_type="application/json"),
}


@pytest.mark.parametrize("case", SENSELESS)
async def test_an_answer_that_makes_no_sense_is_none(server: Server, objects: AzureClient, case: str) -> None:
    server.answer = SENSELESS[case]
    for verb in (objects.get(KEY, 10), objects.get_range(KEY, 0, 10), objects.put(KEY, b"{}", TAG, "0a-1")):
        assert (await refusal(verb)).kind is ErrorKind.NO_ANSWER
    assert (await refusal(objects.list_page(KEY, 10, None))).kind is ErrorKind.NO_ANSWER
    assert len(server.requests) == 4


async def test_what_has_no_tag_was_not_written(server: Server, objects: AzureClient) -> None:
    server.answer = reply(b"", 201)
    assert (await refusal(objects.put(KEY, b"{}", None, "0a-1"))).kind is ErrorKind.NO_ETAG
    server.answer = reply(b"{}", 206, content_range="bytes 0-1/2")
    assert (await refusal(objects.get(KEY, 10))).kind is ErrorKind.NO_ETAG


async def test_no_connection_is_none() -> None:
    async with running(Server()) as gone:
        pass
    async with asking(gone) as nowhere:
        for verb in (nowhere.put(KEY, b"", None, "0a-1"), nowhere.list_page(KEY, 10, None)):
            assert (await refusal(verb)).kind is ErrorKind.UNREACHABLE


async def test_an_answer_that_takes_too_long_is_none(server: Server) -> None:
    server.answer = never
    async with asking(server, limit=0.5) as objects:
        for verb in (objects.put(KEY, b"", None, "0a-1"), objects.get(KEY, 10), objects.list_page(KEY, 10, None)):
            refused = await refusal(verb)
            assert refused.kind is ErrorKind.NO_ANSWER
            assert "within 0.5 s" in refused.found
    assert len(server.requests) == 3


URLS = {
    "abfss://lake@acct.dfs.core.windows.net/t/a.ver": "https://acct.blob.core.windows.net",
    "abfss://lake@acct.blob.core.windows.net/t/a.ver": "https://acct.blob.core.windows.net",
    "abfss://lake@Acct.DFS.core.windows.net/t/a.ver": "https://acct.blob.core.windows.net",
    "abfss://lake@acct.z42.dfs.storage.azure.net/t/a.ver": "https://acct.z42.blob.storage.azure.net",
    "abfss://lake@acct.dfs.core.chinacloudapi.cn/t/a.ver": "https://acct.blob.core.chinacloudapi.cn",
    "abfss://lake@acct.dfs.core.usgovcloudapi.net/t/a.ver": "https://acct.blob.core.usgovcloudapi.net",
    "abfss://workspace@onelake.dfs.fabric.microsoft.com/t/a.ver": "https://onelake.blob.fabric.microsoft.com",
}
STRANGE = [
    "acct.dfs.core.windows.net.example.com",
    "acct.dfs.example.com",
    "example.com",
    "dfs.core.windows.net",
    "acct.queue.core.windows.net",
    "acct.dfs.core.windows.net:8443",
    "127.0.0.1",
    "acct.dfs.core.windows.net\n",
]
KEYED = f"AccountName=acct;AccountKey={ACCOUNT_KEY}"
CONNECTIONS = {
    f"DefaultEndpointsProtocol=https;{KEYED};EndpointSuffix=core.windows.net": AzureOptions(
        identity=AccountKey(ACCOUNT_KEY), endpoint="https://acct.blob.core.windows.net", account="acct"
    ),
    f"{KEYED.replace('acct', 'ACCT')};": AzureOptions(
        identity=AccountKey(ACCOUNT_KEY), endpoint="https://acct.blob.core.windows.net", account="acct"
    ),
    f"BlobEndpoint=http://127.0.0.1:10000/acct;{KEYED}": AzureOptions(
        identity=AccountKey(ACCOUNT_KEY), endpoint="http://127.0.0.1:10000/acct", account="acct"
    ),
    "BlobEndpoint=https://acct.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=a%3D": AzureOptions(
        identity=SharedSignature("sv=1&sig=a%3D"), endpoint="https://acct.blob.core.windows.net/"
    ),
    "blobendpoint=https://acct.blob.core.windows.net": AzureOptions(
        identity=None, endpoint="https://acct.blob.core.windows.net"
    ),
}


@pytest.mark.parametrize("key", URLS)
def test_a_key_leads_to_the_blobs_of_its_account(key: str) -> None:
    place = blob_address(key, AzureOptions())
    assert place.url == URLS[key]
    assert place.account == place.url.removeprefix("https://").partition(".")[0]
    assert (place.prefix + place.path, place.path) == (key, "t/a.ver")
    assert place.container == key.partition("://")[2].partition("@")[0]


@pytest.mark.parametrize("host", STRANGE)
def test_no_credentials_are_shown_to_hosts_that_are_not_azures(host: str) -> None:
    with pytest.raises(RequestFailed) as refused:
        blob_address(f"abfss://lake@{host}/t/a.ver", AzureOptions())
    assert refused.value.kind is ErrorKind.NO_BUCKET
    assert "endpoint" in refused.value.remedy


def test_an_endpoint_stands_for_every_host() -> None:
    place = blob_address(
        "abfss://lake@Devstoreaccount1.anything/t/a.ver", AzureOptions(endpoint="http://127.0.0.1:1/acct/")
    )
    assert (place.url, place.account) == ("http://127.0.0.1:1/acct", "devstoreaccount1")


@pytest.mark.parametrize("key", ["abfss://acct.dfs.core.windows.net/t/a.ver", "abfss://@acct.dfs.core.windows.net/t"])
def test_a_key_without_a_container_leads_nowhere(key: str) -> None:
    with pytest.raises(RequestFailed) as refused:
        blob_address(key, AzureOptions())
    assert refused.value.kind is ErrorKind.INVALID_OBJECT


async def test_credentials_of_one_account_are_for_no_other() -> None:
    objects = AzureClient(options_from_connection_string(KEYED), HttpPool())
    refused = await refusal(objects.get("abfss://lake@other.dfs.core.windows.net/t/a.ver", 10))
    assert refused.kind is ErrorKind.NO_BUCKET
    assert "'other'" in refused.found


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_a_connection_string_says_where_and_as_whom(connection: str) -> None:
    assert options_from_connection_string(connection) == CONNECTIONS[connection]


@pytest.mark.parametrize("connection", ["", "AccountKey=s3cret", "s3cret", "AccountName=;AccountKey=s3cret"])
def test_a_connection_string_that_says_nothing_is_told_of_and_not_shown(connection: str) -> None:
    with pytest.raises(SfnError) as refused:
        options_from_connection_string(connection)
    assert "s3cret" not in str(refused.value)


def test_what_opens_an_account_does_not_show() -> None:
    others = (
        EntraApplication("tenant", "client", ACCOUNT_KEY),
        AccessToken(ACCOUNT_KEY),
        DefaultCredentialChain("client"),
    )
    for terms in (*CONNECTIONS.values(), *(AzureOptions(identity=identity) for identity in others)):
        assert ACCOUNT_KEY not in repr(terms)
        assert "sig=" not in repr(terms)


SIGNATURE = "sv=2024-11-04&sr=c&sp=rcwdl&se=2030-01-01T00%3A00%3A00Z&sig=czNjcmV0LW9mLW91cnM%3D"


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
    ("key", "kind"), [(KEY, "application/json"), (f"{HOME}t/metadata/version-hint.text", "text/plain; charset=utf-8")]
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
async def test_key_goes_over_the_wire_unchanged(server: Server, objects: AzureClient, name: str, quoted: str) -> None:
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
    for identity in (AccountKey(ACCOUNT_KEY), SharedSignature(f"?{SIGNATURE}"), SharedSignature(SIGNATURE), None):
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


@pytest.mark.parametrize("identity", [AccountKey(ACCOUNT_KEY), SharedSignature(SIGNATURE)])
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
    for secret in (ACCOUNT_KEY, "czNjcmV0LW9mLW91cnM"):
        assert secret not in "\n".join([*told, caplog.text])


async def test_a_key_that_is_none_is_told_of_and_not_shown(server: Server) -> None:
    async with asking(server, AccountKey(ACCOUNT_KEY.removesuffix("="))) as objects:
        refused = await refusal(objects.put(KEY, b"", None, "0a-1"))
    assert (refused.kind, server.asked) == (ErrorKind.UNAUTHENTICATED, [])
    assert "account key" in refused.found
    assert ACCOUNT_KEY.removesuffix("=") not in repr(refused) + repr(refused.__cause__)


SCOPE = "https://storage.azure.com/.default"


def given() -> Responder:
    """What a managed identity's endpoint answers."""
    body = {
        "access_token": "token1",
        "expires_on": "4000000000",
        "resource": "https://storage.azure.com",
        "token_type": "Bearer",
    }
    return reply(msgspec.json.encode(body), content_type="application/json")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority()
    (tmp_path / "ca.pem").write_bytes(made.pem)
    return made


@pytest.fixture
async def tls_server(authority: Authority, tmp_path: Path) -> AsyncIterator[Server]:
    """Blobs, over TLS."""
    pair = authority.sign()
    (tmp_path / "chain.pem").write_bytes(pair.chain + pair.key)
    certificate = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.load_cert_chain(tmp_path / "chain.pem")
    async with running(Server(), certificate) as server:
        server.answer = found(b"{}")
        yield server


@pytest.fixture
async def issuer(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """Gives tokens, as App Service does to what runs there."""
    async with running(Server()) as server:
        server.answer = given()
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "header")
        # Else Azure's command line and its like are asked too.
        monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "prod")
        yield server


def shown(server: Server) -> list[str | None]:
    return [asked.headers.get("authorization") for asked in server.requests]


async def test_a_token_that_somebody_else_renews_is_shown(tls_server: Server, tmp_path: Path) -> None:
    async with asking(tls_server, AccessToken("theirs"), ca_file=tmp_path / "ca.pem") as objects:
        assert await objects.get(KEY, 10) == FetchedObject(b"{}", TAG, None)
        await objects.get_range(KEY, 0, 10)
    assert shown(tls_server) == ["Bearer theirs"] * 2


@pytest.mark.parametrize(
    "identity", [AccessToken("theirs"), DefaultCredentialChain(), EntraApplication("t", "c", "s3cret")]
)
async def test_no_token_is_shown_without_tls(identity: AzureIdentity) -> None:
    async with running(Server()) as plain, asking(plain, identity) as objects:
        refused = await refusal(objects.get(KEY, 10))
    assert (refused.kind, plain.asked) == (ErrorKind.UNAUTHENTICATED, [])
    assert "https:" in refused.remedy


async def test_a_token_that_is_not_accepted_is_told_of(tls_server: Server, tmp_path: Path) -> None:
    tls_server.answer = complaint(401, "InvalidAuthenticationInfo", www_authenticate="Bearer realm=here")
    async with asking(tls_server, AccessToken("theirs"), ca_file=tmp_path / "ca.pem") as objects:
        for verb in (objects.get(KEY, 10), objects.put(KEY, b"", None, "0a-1"), objects.list_page(KEY, 10, None)):
            refused = await refusal(verb)
            assert (refused.kind, "theirs" in repr(refused)) == (ErrorKind.UNAUTHENTICATED, False)


async def test_the_workloads_own_identity_is_found_and_asked_once(
    tls_server: Server, issuer: Server, tmp_path: Path
) -> None:
    async with (
        asking(tls_server, DefaultCredentialChain("client-1"), ca_file=tmp_path / "ca.pem") as objects,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(8):
            tasks.start_soon(objects.get, KEY, 10)
    assert shown(tls_server) == ["Bearer token1"] * 8
    (asked,) = issuer.requests
    query = parse_qs(asked.path.partition("?")[2])
    assert (query["resource"], query["client_id"]) == (["https://storage.azure.com"], ["client-1"])


async def test_what_a_service_wants_tokens_to_be_good_for_is_not_asked_for(
    tls_server: Server, issuer: Server, tmp_path: Path
) -> None:
    challenge = "Bearer authorization_uri=https://login.example/t/oauth2/authorize resource_id=https://else.example"
    tls_server.answer = complaint(401, "InvalidAuthenticationInfo", www_authenticate=challenge)
    async with asking(tls_server, DefaultCredentialChain(), ca_file=tmp_path / "ca.pem") as objects:
        assert (await refusal(objects.get(KEY, 10))).kind is ErrorKind.UNAUTHENTICATED
    assert {parse_qs(asked.path.partition("?")[2])["resource"][0] for asked in issuer.requests} == {
        "https://storage.azure.com"
    }


async def test_no_token_is_no_credentials_and_whoever_waits_is_told_the_same(
    tls_server: Server, issuer: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.answer = reply(b'{"error": "invalid_client", "error_description": "AADSTS700016: s3cret"}', 400)
    async with asking(tls_server, DefaultCredentialChain(), ca_file=tmp_path / "ca.pem") as objects:
        refused = await refusal(objects.put(KEY, b"", None, "0a-1"))
        assert (refused.kind, "no access token" in refused.found) == (ErrorKind.UNAUTHENTICATED, True)
        assert "s3cret" not in repr(refused)
        assert "az account get-access-token" in refused.remedy
        times = len(issuer.requests)
        assert (await refusal(objects.get(KEY, 10))).args == refused.args
        assert len(issuer.requests) == times
        issuer.answer = given()
        pass_by(RETRY_AFTER_FAILURE, monkeypatch)
        assert (await objects.get(KEY, 10)).body == b"{}"
    assert len(tls_server.requests) == 1


async def test_nobody_waits_for_a_token_for_ever(issuer: Server) -> None:
    issuer.answer = never
    tokens = EntraTokens(DefaultCredentialChain(), limit=0.5)
    refused = await refusal(tokens.get_token(SCOPE))
    assert (refused.kind, "within 0.5 s" in refused.found) == (ErrorKind.UNAUTHENTICATED, True)
    await tokens.close()


async def test_no_answer_of_entra_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://127.0.0.1:1")
    tokens = EntraTokens(EntraApplication("t", "c", "s3cret"))
    refused = await refusal(tokens.get_token(SCOPE))
    assert refused.kind is ErrorKind.UNREACHABLE
    assert "s3cret" not in repr(refused) + repr(tokens)
    await tokens.close()
