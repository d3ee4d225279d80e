"""What Cloud Storage refuses, and whose trouble that is: by status and code, never by message."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator

import pytest

from sfn.store.gcs import GcsObjects
from sfn.store.objects import Kind
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
WRITES: dict[tuple[int, str], tuple[Kind, str]] = {
    (412, "conditionNotMet"): (Kind.MOVED, ""),
    (409, "conflict"): (Kind.MOVED, ""),
    (401, "authError"): (Kind.UNKNOWN, ""),
    (401, "required"): (Kind.UNKNOWN, ""),
    (401, "AuthenticationRequiredRequesterPays"): (Kind.UNKNOWN, "billing_project"),
    (403, "forbidden"): (Kind.DENIED, ""),
    (403, "insufficientPermissions"): (Kind.DENIED, ""),
    (403, "accountDisabled"): (Kind.UNKNOWN, "billing account"),
    (403, "usageLimits.accessNotConfigured"): (Kind.UNKNOWN, "enable"),
    (400, "userProjectMissing"): (Kind.UNKNOWN, "billing_project"),
    (400, "userProjectInvalid"): (Kind.UNKNOWN, "billing_project"),
    (403, "UserProjectAccessDenied"): (Kind.UNKNOWN, "billing_project"),
    (403, "UserProjectAccountProblem"): (Kind.UNKNOWN, "billing account"),
    (403, "objectUnderActiveHold"): (Kind.DENIED, "hold"),
    (403, "retentionPolicyNotMet"): (Kind.DENIED, "retention"),
    (412, "orgPolicyConstraintFailed"): (Kind.DENIED, "organisation"),
    (400, "cloudKmsDisabledKey"): (Kind.DENIED, "KMS"),
    (403, "rateLimitExceeded"): (Kind.THROTTLED, ""),
    (403, "userRateLimitExceeded"): (Kind.THROTTLED, ""),
    (429, "userRateLimitExceeded"): (Kind.THROTTLED, ""),
    (429, "quotaExceeded"): (Kind.THROTTLED, ""),
    (400, "invalidArgument"): (Kind.REJECTED, ""),
    (400, "required"): (Kind.REJECTED, ""),
    (413, "uploadTooLarge"): (Kind.UNFIT, ""),
    (408, "uploadBrokenConnection"): (Kind.UNANSWERED, ""),
    (500, "internalError"): (Kind.UNANSWERED, ""),
    (503, "backendError"): (Kind.UNANSWERED, ""),
    (504, "gatewayTimeout"): (Kind.UNANSWERED, ""),
    (501, "notImplemented"): (Kind.INCAPABLE, ""),
    (403, "neverHeardOf"): (Kind.DENIED, ""),
    (418, "neverHeardOf"): (Kind.REJECTED, ""),
}
READS: dict[tuple[int, str], tuple[Kind, str]] = {
    (404, "NoSuchKey"): (Kind.MISSING, ""),
    (404, "NoSuchBucket"): (Kind.NO_PLACE, ""),
    (400, "InvalidBucketName"): (Kind.NO_PLACE, ""),
    (403, "AccessDenied"): (Kind.DENIED, ""),
    (401, "AuthenticationRequired"): (Kind.UNKNOWN, ""),
    (400, "ExpiredToken"): (Kind.UNKNOWN, ""),
    (400, "UserProjectMissing"): (Kind.UNKNOWN, "billing_project"),
    (403, "UserProjectAccountProblem"): (Kind.UNKNOWN, "billing account"),
    (403, "AccountProblem"): (Kind.UNKNOWN, "billing account"),
    (429, "TooManyRequests"): (Kind.THROTTLED, ""),
    (503, "SlowDown"): (Kind.THROTTLED, ""),
    (500, "InternalError"): (Kind.UNANSWERED, ""),
    (503, "ServiceUnavailable"): (Kind.UNANSWERED, ""),
    (400, "InvalidURI"): (Kind.UNFIT, ""),
}
ODD: dict[str, tuple[Responder, Kind]] = {
    "a page": (reply(HTML, 403), Kind.DENIED),
    "a proxy's trouble": (reply(HTML, 502), Kind.UNANSWERED),
    "a redirect": (reply(b"", 302, location="https://login.example/?once=1"), Kind.NO_PLACE),
    "nothing": (reply(b"", 400), Kind.REJECTED),
    "an error of OAuth's shape": (reply({"error": "invalid_request"}, 401), Kind.UNKNOWN),
    "an error without reasons": (reply({"error": {"code": 403, "status": "PERMISSION_DENIED"}}, 403), Kind.DENIED),
    "an error with no reason at all": (reply({"error": {"errors": []}}, 403), Kind.DENIED),
    "a reason that is none": (reply({"error": {"errors": [{"reason": "for\na log"}]}}, 403), Kind.DENIED),
    "JSON nested too deeply": (reply(b'{"x":' + b"[" * 100_000, 403), Kind.DENIED),
    "no UTF-8": (reply(b'{"error": {"errors": [{"reason": "\xff"}]}}', 403), Kind.DENIED),
    "XML of an encoding that nobody reads": (reply(b'<?xml version="1.0" encoding="utf-32"?><a/>', 403), Kind.DENIED),
    "XML of an encoding that nobody knows": (reply(b'<?xml version="1.0" encoding="x-y"?><a/>', 403), Kind.DENIED),
    "gzip that is none": (reply(b"hello", 403, content_encoding="gzip"), Kind.DENIED),
}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running() as server:
        yield server


@pytest.fixture
async def objects(server: Server) -> AsyncIterator[GcsObjects]:
    async with asking(server) as objects:
        yield objects


@pytest.mark.parametrize(("status", "reason"), WRITES)
async def test_a_change_is_refused(server: Server, objects: GcsObjects, status: int, reason: str) -> None:
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
async def test_a_read_is_refused(server: Server, objects: GcsObjects, status: int, code: str, compressed: bool) -> None:
    kind, remedy = READS[status, code]
    plain = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code></Error>".encode()
    server.object = reply(gzip.compress(plain), status, content_encoding="gzip") if compressed else reply(plain, status)
    for refused in (await refusal(objects.get(KEY, 10)), await refusal(objects.part(KEY, 0, 10))):
        assert refused.kind is kind
        assert code[1:] in refused.found
        assert remedy in refused.remedy
    assert len(server.requests) == 2


@pytest.mark.parametrize("case", ODD)
async def test_what_is_no_error_of_the_service_counts_by_its_status(
    server: Server, objects: GcsObjects, case: str
) -> None:
    server.object, kind = ODD[case]
    for verb in (objects.get(KEY, 10), objects.put(KEY, b"", TAG, "0a-1"), objects.page(KEY, 10, None)):
        refused = await refusal(verb)
        assert refused.kind is kind
        assert refused.found.endswith("without an error of Cloud Storage")
    assert len(server.requests) == 3


async def test_the_service_says_how_long_to_wait(server: Server, objects: GcsObjects) -> None:
    server.object = complaint(503, "backendError", retry_after="7")
    assert (await refusal(objects.get(KEY, 10))).retry_after == 7.0
    server.object = complaint(503, "backendError", retry_after="Sat, 21 Nov 2026 12:01:30 GMT")
    assert (await refusal(objects.get(KEY, 10))).retry_after is None


async def test_a_page_that_is_no_object_is_not_taken_for_one(server: Server, objects: GcsObjects) -> None:
    server.object = reply(HTML)
    assert (await refusal(objects.get(KEY, 10))).kind is Kind.NO_PLACE


@pytest.mark.parametrize("body", [HTML, b"", b"[]", b'{"generation": 5}', b'{"items": 5}', b"[" * 100_000])
async def test_an_answer_that_makes_no_sense_is_none(server: Server, objects: GcsObjects, body: bytes) -> None:
    server.object = found(body)
    assert (await refusal(objects.put(KEY, b"", TAG, "0a-1"))).kind is Kind.UNANSWERED
    if b"generation" not in body:
        assert (await refusal(objects.page(KEY, 10, None))).kind is Kind.UNANSWERED


async def test_no_connection_is_none() -> None:
    async with running() as gone:
        pass
    async with asking(gone) as nowhere:
        assert (await refusal(nowhere.put(KEY, b"", None, "0a-1"))).kind is Kind.UNHEARD


async def test_a_missing_object_is_missing_to_every_verb(server: Server, objects: GcsObjects) -> None:
    server.object = xml_complaint(404, "NoSuchKey")
    assert (await refusal(objects.get(KEY, 10))).kind is Kind.MISSING
    server.object = complaint(404, "notFound")
    assert (await refusal(objects.put(KEY, b"", TAG, "0a-1"))).kind is Kind.MISSING
    assert (await refusal(objects.delete(KEY, TAG))).kind is Kind.MISSING
