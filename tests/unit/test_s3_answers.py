"""What S3 refuses, and whose trouble that is: by status and code, never by message."""

from __future__ import annotations

import pytest

from sfn.storage import ErrorKind, s3
from sfn.storage.object_store import HttpReply

HTML = b"<!doctype html><title>Sign in</title>"
CODES: dict[tuple[int, str], tuple[ErrorKind, str]] = {
    (404, "NoSuchKey"): (ErrorKind.MISSING, ""),
    (404, "NoSuchBucket"): (ErrorKind.NO_BUCKET, ""),
    (301, "PermanentRedirect"): (ErrorKind.NO_BUCKET, "region"),
    (307, "TemporaryRedirect"): (ErrorKind.NO_BUCKET, "region"),
    (400, "IllegalLocationConstraintException"): (ErrorKind.NO_BUCKET, "region"),
    (400, "AuthorizationHeaderMalformed"): (ErrorKind.NO_BUCKET, "region"),
    (412, "PreconditionFailed"): (ErrorKind.PRECONDITION_FAILED, ""),
    (409, "ConditionalRequestConflict"): (ErrorKind.PRECONDITION_FAILED, ""),
    (403, "AccessDenied"): (ErrorKind.DENIED, ""),
    (400, "ExpiredToken"): (ErrorKind.UNAUTHENTICATED, ""),
    (403, "ExpiredTokenException"): (ErrorKind.UNAUTHENTICATED, ""),
    (400, "InvalidToken"): (ErrorKind.UNAUTHENTICATED, ""),
    (403, "InvalidTokenId"): (ErrorKind.UNAUTHENTICATED, ""),
    (403, "RequestTimeTooSkewed"): (ErrorKind.UNAUTHENTICATED, "clock"),
    (400, "BadDigest"): (ErrorKind.NO_ANSWER, ""),
    (400, "IncompleteBody"): (ErrorKind.NO_ANSWER, ""),
    (400, "PriorRequestNotComplete"): (ErrorKind.NO_ANSWER, ""),
    (400, "RequestTimeout"): (ErrorKind.NO_ANSWER, ""),
    (400, "RequestTimeoutException"): (ErrorKind.NO_ANSWER, ""),
    (500, "InternalError"): (ErrorKind.NO_ANSWER, ""),
    (503, "ServiceUnavailable"): (ErrorKind.NO_ANSWER, ""),
    (501, "NotImplemented"): (ErrorKind.UNSUPPORTED, ""),
    (400, "KeyTooLongError"): (ErrorKind.INVALID_OBJECT, ""),
    (400, "KMS.DisabledException"): (ErrorKind.DENIED, "KMS"),
    (400, "KMS.NotFoundException"): (ErrorKind.DENIED, "KMS"),
    (302, "NeverHeardOf"): (ErrorKind.NO_BUCKET, ""),
    (400, "NeverHeardOf"): (ErrorKind.REJECTED, ""),
    (401, "NeverHeardOf"): (ErrorKind.UNAUTHENTICATED, ""),
    (403, "NeverHeardOf"): (ErrorKind.DENIED, ""),
    (404, "NeverHeardOf"): (ErrorKind.REJECTED, ""),
    (408, "NeverHeardOf"): (ErrorKind.NO_ANSWER, ""),
    (409, "NeverHeardOf"): (ErrorKind.PRECONDITION_FAILED, ""),
    (412, "NeverHeardOf"): (ErrorKind.PRECONDITION_FAILED, ""),
    (425, "NeverHeardOf"): (ErrorKind.NO_ANSWER, ""),
    (429, "NeverHeardOf"): (ErrorKind.THROTTLED, ""),
    (464, "NeverHeardOf"): (ErrorKind.REJECTED, ""),
    (599, "NeverHeardOf"): (ErrorKind.NO_ANSWER, ""),
}
THROTTLES = (
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "TooManyRequestsException",
    "TransactionInProgressException",
)
WORDLESS = {
    202: ErrorKind.NO_ANSWER,
    301: ErrorKind.NO_BUCKET,
    302: ErrorKind.NO_BUCKET,
    304: ErrorKind.PRECONDITION_FAILED,
    399: ErrorKind.NO_BUCKET,
    400: ErrorKind.REJECTED,
    401: ErrorKind.UNAUTHENTICATED,
    403: ErrorKind.DENIED,
    404: ErrorKind.NO_BUCKET,
    408: ErrorKind.NO_ANSWER,
    409: ErrorKind.REJECTED,
    412: ErrorKind.PRECONDITION_FAILED,
    418: ErrorKind.REJECTED,
    425: ErrorKind.NO_ANSWER,
    429: ErrorKind.THROTTLED,
    464: ErrorKind.REJECTED,
    499: ErrorKind.REJECTED,
    502: ErrorKind.NO_ANSWER,
    599: ErrorKind.NO_ANSWER,
    999: ErrorKind.NO_ANSWER,
}


def error(status: int, code: str, **headers: str) -> HttpReply:
    text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>told so</Message></Error>"
    return HttpReply(status, headers, text.encode())


@pytest.mark.parametrize(("status", "code"), CODES)
def test_a_request_is_refused(status: int, code: str) -> None:
    kind, remedy = CODES[status, code]
    refused = s3.failure_of(error(status, code))
    assert refused.kind is kind
    assert refused.found == f"status {status}, {code}"
    assert remedy in refused.remedy
    assert bool(remedy) is bool(refused.remedy)


@pytest.mark.parametrize("status", [400, 403, 503])
@pytest.mark.parametrize("code", THROTTLES)
def test_a_service_of_which_too_much_is_asked_may_say_so_with_any_status(status: int, code: str) -> None:
    assert s3.failure_of(error(status, code)).kind is ErrorKind.THROTTLED


@pytest.mark.parametrize("status", WORDLESS)
@pytest.mark.parametrize("body", [b"", HTML, b"<html/>", b"<Error/>", b'{"error": 5}'])
def test_what_is_no_error_of_s3_counts_by_its_status(status: int, body: bytes) -> None:
    refused = s3.failure_of(HttpReply(status, {}, body))
    assert refused.kind is WORDLESS[status]
    assert refused.found == f"status {status}, without an error of S3"


def test_the_service_says_how_long_to_wait() -> None:
    assert s3.failure_of(error(503, "SlowDown", **{"Retry-After": "7"})).retry_after == 7.0
    assert s3.failure_of(error(503, "SlowDown", **{"Retry-After": "Sat, 21 Nov 2026 12:01:30 GMT"})).retry_after is None
