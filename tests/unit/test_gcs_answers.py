"""What Cloud Storage refuses, and whose trouble that is: by status and code, never by message."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator

import pytest

from sfn.storage import ErrorKind
from sfn.storage.gcs import GcsClient
from tests.unit.gcs_server import (
    KEY,
    TAG,
    Responder,
    Server,
    asking,
    complaint,
    found,
    refusal,
    reply,
    running,
    xml_complaint,
)

HTML = b"<!doctype html><title>Sign in</title>"
WRITES: dict[tuple[int, str], tuple[ErrorKind, str]] = {
    (412, "conditionNotMet"): (ErrorKind.PRECONDITION_FAILED, ""),
    (409, "conflict"): (ErrorKind.PRECONDITION_FAILED, ""),
    (401, "authError"): (ErrorKind.UNAUTHENTICATED, ""),
    (401, "required"): (ErrorKind.UNAUTHENTICATED, ""),
    (401, "AuthenticationRequiredRequesterPays"): (ErrorKind.UNAUTHENTICATED, "billing_project"),
    (403, "forbidden"): (ErrorKind.DENIED, ""),
    (403, "insufficientPermissions"): (ErrorKind.DENIED, ""),
    (403, "accountDisabled"): (ErrorKind.UNAUTHENTICATED, "billing account"),
    (403, "usageLimits.accessNotConfigured"): (ErrorKind.UNAUTHENTICATED, "enable"),
    (400, "userProjectMissing"): (ErrorKind.UNAUTHENTICATED, "billing_project"),
    (400, "userProjectInvalid"): (ErrorKind.UNAUTHENTICATED, "billing_project"),
    (403, "UserProjectAccessDenied"): (ErrorKind.UNAUTHENTICATED, "billing_project"),
    (403, "UserProjectAccountProblem"): (ErrorKind.UNAUTHENTICATED, "billing account"),
    (403, "objectUnderActiveHold"): (ErrorKind.DENIED, "hold"),
    (403, "retentionPolicyNotMet"): (ErrorKind.DENIED, "retention"),
    (412, "orgPolicyConstraintFailed"): (ErrorKind.DENIED, "organisation"),
    (400, "cloudKmsDisabledKey"): (ErrorKind.DENIED, "KMS"),
    (403, "rateLimitExceeded"): (ErrorKind.THROTTLED, ""),
    (403, "userRateLimitExceeded"): (ErrorKind.THROTTLED, ""),
    (429, "userRateLimitExceeded"): (ErrorKind.THROTTLED, ""),
    (429, "quotaExceeded"): (ErrorKind.THROTTLED, ""),
    (400, "invalidArgument"): (ErrorKind.REJECTED, ""),
    (400, "required"): (ErrorKind.REJECTED, ""),
    (413, "uploadTooLarge"): (ErrorKind.INVALID_OBJECT, ""),
    (408, "uploadBrokenConnection"): (ErrorKind.NO_ANSWER, ""),
    (500, "internalError"): (ErrorKind.NO_ANSWER, ""),
    (503, "backendError"): (ErrorKind.NO_ANSWER, ""),
    (504, "gatewayTimeout"): (ErrorKind.NO_ANSWER, ""),
    (501, "notImplemented"): (ErrorKind.UNSUPPORTED, ""),
    (403, "neverHeardOf"): (ErrorKind.DENIED, ""),
    (418, "neverHeardOf"): (ErrorKind.REJECTED, ""),
}
READS: dict[tuple[int, str], tuple[ErrorKind, str]] = {
    (404, "NoSuchKey"): (ErrorKind.MISSING, ""),
    (404, "NoSuchBucket"): (ErrorKind.NO_BUCKET, ""),
    (400, "InvalidBucketName"): (ErrorKind.NO_BUCKET, ""),
    (403, "AccessDenied"): (ErrorKind.DENIED, ""),
    (401, "AuthenticationRequired"): (ErrorKind.UNAUTHENTICATED, ""),
    (400, "ExpiredToken"): (ErrorKind.UNAUTHENTICATED, ""),
    (400, "UserProjectMissing"): (ErrorKind.UNAUTHENTICATED, "billing_project"),
    (403, "UserProjectAccountProblem"): (ErrorKind.UNAUTHENTICATED, "billing account"),
    (403, "AccountProblem"): (ErrorKind.UNAUTHENTICATED, "billing account"),
    (429, "TooManyRequests"): (ErrorKind.THROTTLED, ""),
    (503, "SlowDown"): (ErrorKind.THROTTLED, ""),
    (500, "InternalError"): (ErrorKind.NO_ANSWER, ""),
    (503, "ServiceUnavailable"): (ErrorKind.NO_ANSWER, ""),
    (400, "InvalidURI"): (ErrorKind.INVALID_OBJECT, ""),
}
ODD: dict[str, tuple[Responder, ErrorKind]] = {
    "a page": (reply(HTML, 403), ErrorKind.DENIED),
    "a proxy's trouble": (reply(HTML, 502), ErrorKind.NO_ANSWER),
    "a redirect": (reply(b"", 302, location="https://login.example/?once=1"), ErrorKind.NO_BUCKET),
    "nothing": (reply(b"", 400), ErrorKind.REJECTED),
    "an error of OAuth's shape": (reply({"error": "invalid_request"}, 401), ErrorKind.UNAUTHENTICATED),
    "an error without reasons": (reply({"error": {"code": 403, "status": "PERMISSION_DENIED"}}, 403), ErrorKind.DENIED),
    "an error with no reason at all": (reply({"error": {"errors": []}}, 403), ErrorKind.DENIED),
    "a reason that is none": (reply({"error": {"errors": [{"reason": "for\na log"}]}}, 403), ErrorKind.DENIED),
    "JSON nested too deeply": (reply(b'{"x":' + b"[" * 100_000, 403), ErrorKind.DENIED),
    "no UTF-8": (reply(b'{"error": {"errors": [{"reason": "\xff"}]}}', 403), ErrorKind.DENIED),
    "XML of an encoding that nobody reads": (
        reply(b'<?xml version="1.0" encoding="utf-32"?><a/>', 403),
        ErrorKind.DENIED,
    ),
    "XML of an encoding that nobody knows": (reply(b'<?xml version="1.0" encoding="x-y"?><a/>', 403), ErrorKind.DENIED),
    "gzip that is none": (reply(b"hello", 403, content_encoding="gzip"), ErrorKind.DENIED),
}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running() as server:
        yield server


@pytest.fixture
async def objects(server: Server) -> AsyncIterator[GcsClient]:
    async with asking(server) as objects:
        yield objects


@pytest.mark.parametrize(("status", "reason"), WRITES)
async def test_a_change_is_refused(server: Server, objects: GcsClient, status: int, reason: str) -> None:
    kind, remedy = WRITES[status, reason]
    server.object = complaint(status, reason)
    for refused in (await refusal(objects.put(KEY, b"", TAG, "0a-1")), await refusal(objects.delete(KEY, TAG))):
        assert refused.kind is kind
        assert f"status {status}, " in refused.found
        assert reason.rpartition(".")[2][1:] in refused.found
        assert "told so" not in refused.found
        assert remedy in refused.remedy
        assert bool(remedy) is bool(refused.remedy)
    assert len(server.requests) == 2


@pytest.mark.parametrize(("status", "code"), READS)
@pytest.mark.parametrize("compressed", [False, True])
async def test_a_read_is_refused(server: Server, objects: GcsClient, status: int, code: str, compressed: bool) -> None:
    kind, remedy = READS[status, code]
    plain = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code></Error>".encode()
    server.object = reply(gzip.compress(plain), status, content_encoding="gzip") if compressed else reply(plain, status)
    for refused in (await refusal(objects.get(KEY, 10)), await refusal(objects.get_range(KEY, 0, 10))):
        assert refused.kind is kind
        assert code[1:] in refused.found
        assert remedy in refused.remedy
    assert len(server.requests) == 2


@pytest.mark.parametrize("case", ODD)
async def test_what_is_no_error_of_the_service_counts_by_its_status(
    server: Server, objects: GcsClient, case: str
) -> None:
    server.object, kind = ODD[case]
    for verb in (objects.get(KEY, 10), objects.put(KEY, b"", TAG, "0a-1"), objects.list_page(KEY, 10, None)):
        refused = await refusal(verb)
        assert refused.kind is kind
        assert refused.found.endswith("without an error of Cloud Storage")
    assert len(server.requests) == 3


async def test_the_service_says_how_long_to_wait(server: Server, objects: GcsClient) -> None:
    server.object = complaint(503, "backendError", retry_after="7")
    assert (await refusal(objects.get(KEY, 10))).retry_after == 7.0
    server.object = complaint(503, "backendError", retry_after="Sat, 21 Nov 2026 12:01:30 GMT")
    assert (await refusal(objects.get(KEY, 10))).retry_after is None


async def test_a_page_that_is_no_object_is_not_taken_for_one(server: Server, objects: GcsClient) -> None:
    server.object = reply(HTML)
    assert (await refusal(objects.get(KEY, 10))).kind is ErrorKind.NO_BUCKET


@pytest.mark.parametrize("body", [HTML, b"", b"[]", b'{"generation": 5}', b'{"items": 5}', b"[" * 100_000])
async def test_an_answer_that_makes_no_sense_is_none(server: Server, objects: GcsClient, body: bytes) -> None:
    server.object = found(body)
    assert (await refusal(objects.put(KEY, b"", TAG, "0a-1"))).kind is ErrorKind.NO_ANSWER
    if b"generation" not in body:
        assert (await refusal(objects.list_page(KEY, 10, None))).kind is ErrorKind.NO_ANSWER


async def test_no_connection_is_none() -> None:
    async with running() as gone:
        pass
    async with asking(gone) as nowhere:
        assert (await refusal(nowhere.put(KEY, b"", None, "0a-1"))).kind is ErrorKind.UNREACHABLE


async def test_a_missing_object_is_missing_to_every_verb(server: Server, objects: GcsClient) -> None:
    server.object = xml_complaint(404, "NoSuchKey")
    assert (await refusal(objects.get(KEY, 10))).kind is ErrorKind.MISSING
    server.object = complaint(404, "notFound")
    assert (await refusal(objects.put(KEY, b"", TAG, "0a-1"))).kind is ErrorKind.MISSING
    assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.MISSING
