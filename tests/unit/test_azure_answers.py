"""What Blob Storage refuses, and whose trouble that is: by status and code, never by message."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sfn.store.azure import AzureObjects
from sfn.store.objects import Kind
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
REFUSED: dict[tuple[int, str], tuple[Kind, str]] = {
    (404, "BlobNotFound"): (Kind.MISSING, ""),
    (404, "ContainerNotFound"): (Kind.NO_PLACE, ""),
    (409, "ContainerBeingDeleted"): (Kind.NO_PLACE, ""),
    (409, "ContainerDisabled"): (Kind.NO_PLACE, ""),
    (403, "AccountIsDisabled"): (Kind.NO_PLACE, ""),
    (404, "NeverHeardOf"): (Kind.NO_PLACE, ""),
    (412, "ConditionNotMet"): (Kind.MOVED, ""),
    (412, "TargetConditionNotMet"): (Kind.MOVED, ""),
    (412, "NeverHeardOf"): (Kind.MOVED, ""),
    (409, "BlobAlreadyExists"): (Kind.MOVED, ""),
    (412, "LeaseIdMissing"): (Kind.TOO_OFTEN, "lease"),
    (412, "LeaseIdMismatchWithBlobOperation"): (Kind.TOO_OFTEN, "lease"),
    (409, "PendingCopyOperation"): (Kind.TOO_OFTEN, "copy"),
    (409, "NeverHeardOf"): (Kind.TOO_OFTEN, "documentation"),
    (409, "BlobImmutableDueToPolicy"): (Kind.DENIED, "immutability"),
    (409, "BlobImmutableDueToLegalHold"): (Kind.DENIED, "legal hold"),
    (403, "AuthorizationFailure"): (Kind.DENIED, "firewall"),
    (403, "AuthorizationPermissionMismatch"): (Kind.DENIED, ""),
    (403, "AuthorizationProtocolMismatch"): (Kind.DENIED, "https:"),
    (403, "AuthorizationSourceIPMismatch"): (Kind.DENIED, "address"),
    (403, "UnauthorizedBlobOverwrite"): (Kind.DENIED, ""),
    (403, "InsufficientAccountPermissions"): (Kind.DENIED, ""),
    (409, "PublicAccessNotPermitted"): (Kind.DENIED, "credentials"),
    (404, "ResourceNotFound"): (Kind.DENIED, "credentials"),
    (403, "AuthenticationFailed"): (Kind.UNKNOWN, "clock"),
    (400, "InvalidAuthenticationInfo"): (Kind.UNKNOWN, ""),
    (401, "InvalidAuthenticationInfo"): (Kind.UNKNOWN, ""),
    (401, "NoAuthenticationInformation"): (Kind.UNKNOWN, "credentials"),
    (403, "KeyBasedAuthenticationNotPermitted"): (Kind.UNKNOWN, "Entra"),
    (503, "ServerBusy"): (Kind.THROTTLED, ""),
    (429, "TooManyRequests"): (Kind.THROTTLED, ""),
    (500, "InternalError"): (Kind.UNANSWERED, ""),
    (500, "OperationTimedOut"): (Kind.UNANSWERED, ""),
    (503, "NeverHeardOf"): (Kind.UNANSWERED, ""),
    (408, "NeverHeardOf"): (Kind.UNANSWERED, ""),
    (501, "NotImplemented"): (Kind.INCAPABLE, ""),
    (400, "UnsupportedHeader"): (Kind.INCAPABLE, ""),
    (400, "ConditionHeadersNotSupported"): (Kind.INCAPABLE, ""),
    (400, "InvalidResourceName"): (Kind.UNFIT, ""),
    (400, "InvalidUri"): (Kind.UNFIT, ""),
    (400, "OutOfRangeInput"): (Kind.UNFIT, ""),
    (413, "RequestBodyTooLarge"): (Kind.UNFIT, ""),
    (409, "InvalidBlobType"): (Kind.UNFIT, "type"),
    (409, "ResourceTypeMismatch"): (Kind.UNFIT, "directory"),
    (409, "SnapshotsPresent"): (Kind.UNFIT, "snapshots"),
    (409, "BlobArchived"): (Kind.UNFIT, "tier"),
}
ODD: dict[str, tuple[Responder, Kind]] = {
    "a page": (reply(HTML, 403, content_type="text/html"), Kind.DENIED),
    "a page that is called XML": (reply(HTML, 404, content_type="application/xml"), Kind.NO_PLACE),
    "a proxy's trouble": (reply(HTML, 502), Kind.UNANSWERED),
    "a redirect": (reply(b"", 302, location="https://login.example/?once=1"), Kind.NO_PLACE),
    "a redirect for good": (reply(b"", 308, location="http://127.0.0.1:1/"), Kind.NO_PLACE),
    "nothing": (reply(b"", 400), Kind.REJECTED),
    "a status that nobody knows": (reply(b"", 499), Kind.REJECTED),
    "JSON nested too deeply": (reply(b'{"x":' + b"[" * 100_000, 403, content_type="application/json"), Kind.DENIED),
    "no UTF-8": (reply(b"<a>\xff</a>", 403, content_type="application/xml"), Kind.DENIED),
    "a code that is none": (reply(b"", 403, x_ms_error_code="for a log: x=1"), Kind.DENIED),
    "a code in the body alone": (reply(b"<Error><Code>BlobNotFound</Code></Error>", 403), Kind.DENIED),
}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running() as server:
        yield server


@pytest.fixture
async def objects(server: Server) -> AsyncIterator[AzureObjects]:
    async with asking(server) as objects:
        yield objects


@pytest.mark.parametrize(("status", "code"), REFUSED)
async def test_every_verb_is_refused_alike(server: Server, objects: AzureObjects, status: int, code: str) -> None:
    kind, remedy = REFUSED[status, code]
    server.answer = complaint(status, code)
    for verb in (
        objects.get(KEY, 10),
        objects.part(KEY, 0, 10),
        objects.put(KEY, b"", TAG, "0a-1"),
        objects.put(KEY, b"{}", None, "0a-1"),
        objects.delete(KEY, TAG),
        objects.page(KEY, 10, None),
    ):
        refused = await refusal(verb)
        assert refused.kind is kind
        assert refused.found == f"status {status}, {code}"
        assert remedy in refused.remedy
        assert bool(remedy) is bool(refused.remedy)
    assert len(server.requests) == 6


@pytest.mark.parametrize("case", ODD)
async def test_what_is_no_error_of_the_service_counts_by_its_status(
    server: Server, objects: AzureObjects, case: str
) -> None:
    server.answer, kind = ODD[case]
    for verb in (objects.get(KEY, 10), objects.put(KEY, b"", TAG, "0a-1"), objects.page(KEY, 10, None)):
        refused = await refusal(verb)
        assert refused.kind is kind
        assert refused.found.endswith("without an error of Blob Storage")
    assert len(server.requests) == 3


async def test_the_service_says_how_long_to_wait(server: Server, objects: AzureObjects) -> None:
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
async def test_an_answer_that_makes_no_sense_is_none(server: Server, objects: AzureObjects, case: str) -> None:
    server.answer = SENSELESS[case]
    for verb in (objects.get(KEY, 10), objects.part(KEY, 0, 10), objects.put(KEY, b"{}", TAG, "0a-1")):
        assert (await refusal(verb)).kind is Kind.UNANSWERED
    assert (await refusal(objects.page(KEY, 10, None))).kind is Kind.UNANSWERED
    assert len(server.requests) == 4


async def test_what_has_no_tag_was_not_written(server: Server, objects: AzureObjects) -> None:
    server.answer = reply(b"", 201)
    assert (await refusal(objects.put(KEY, b"{}", None, "0a-1"))).kind is Kind.TAGLESS
    server.answer = reply(b"{}", 206, content_range="bytes 0-1/2")
    assert (await refusal(objects.get(KEY, 10))).kind is Kind.TAGLESS


async def test_no_connection_is_none() -> None:
    async with running() as gone:
        pass
    async with asking(gone) as nowhere:
        for verb in (nowhere.put(KEY, b"", None, "0a-1"), nowhere.page(KEY, 10, None)):
            assert (await refusal(verb)).kind is Kind.UNHEARD


async def test_an_answer_that_takes_too_long_is_none(server: Server) -> None:
    server.answer = never
    async with asking(server, limit=0.1) as objects:
        for verb in (objects.put(KEY, b"", None, "0a-1"), objects.get(KEY, 10), objects.page(KEY, 10, None)):
            refused = await refusal(verb)
            assert refused.kind is Kind.UNANSWERED
            assert "within 0.1 s" in refused.found
    assert len(server.requests) == 3
