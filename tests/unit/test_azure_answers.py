"""What Blob Storage refuses, and whose trouble that is: by status and code, never by message."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sfn.storage import ErrorKind
from sfn.storage.azure import AzureClient
from tests.unit.azure_server import (
    KEY,
    TAG,
    Responder,
    Server,
    asking,
    complaint,
    never,
    refusal,
    reply,
    running,
)

HTML = b"<!doctype html><title>Sign in</title>"
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
    "a page": (reply(HTML, 403, content_type="text/html"), ErrorKind.DENIED),
    "a page that is called XML": (reply(HTML, 404, content_type="application/xml"), ErrorKind.NO_BUCKET),
    "a proxy's trouble": (reply(HTML, 502), ErrorKind.NO_ANSWER),
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
    async with running() as server:
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
    "a page": reply(HTML, content_type="text/html"),
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
    async with running() as gone:
        pass
    async with asking(gone) as nowhere:
        for verb in (nowhere.put(KEY, b"", None, "0a-1"), nowhere.list_page(KEY, 10, None)):
            assert (await refusal(verb)).kind is ErrorKind.UNREACHABLE


async def test_an_answer_that_takes_too_long_is_none(server: Server) -> None:
    server.answer = never
    async with asking(server, limit=0.1) as objects:
        for verb in (objects.put(KEY, b"", None, "0a-1"), objects.get(KEY, 10), objects.list_page(KEY, 10, None)):
            refused = await refusal(verb)
            assert refused.kind is ErrorKind.NO_ANSWER
            assert "within 0.1 s" in refused.found
    assert len(server.requests) == 3
