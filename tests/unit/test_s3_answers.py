"""What S3 refuses, and whose trouble that is: by status and code, never by message."""

from __future__ import annotations

import pytest

from sfn.store.objects import Kind
from sfn.store.pool import Reply
from sfn.store.s3 import answers

HTML = b"<!doctype html><title>Sign in</title>"
CODES: dict[tuple[int, str], tuple[Kind, str]] = {
    (404, "NoSuchKey"): (Kind.MISSING, ""),
    (404, "NoSuchBucket"): (Kind.NO_PLACE, ""),
    (301, "PermanentRedirect"): (Kind.NO_PLACE, "region"),
    (307, "TemporaryRedirect"): (Kind.NO_PLACE, "region"),
    (400, "IllegalLocationConstraintException"): (Kind.NO_PLACE, "region"),
    (400, "AuthorizationHeaderMalformed"): (Kind.NO_PLACE, "region"),
    (412, "PreconditionFailed"): (Kind.MOVED, ""),
    (409, "ConditionalRequestConflict"): (Kind.MOVED, ""),
    (403, "AccessDenied"): (Kind.DENIED, ""),
    (400, "ExpiredToken"): (Kind.UNKNOWN, ""),
    (403, "ExpiredTokenException"): (Kind.UNKNOWN, ""),
    (400, "InvalidToken"): (Kind.UNKNOWN, ""),
    (403, "InvalidTokenId"): (Kind.UNKNOWN, ""),
    (403, "RequestTimeTooSkewed"): (Kind.UNKNOWN, "clock"),
    (400, "BadDigest"): (Kind.UNANSWERED, ""),
    (400, "IncompleteBody"): (Kind.UNANSWERED, ""),
    (400, "PriorRequestNotComplete"): (Kind.UNANSWERED, ""),
    (400, "RequestTimeout"): (Kind.UNANSWERED, ""),
    (400, "RequestTimeoutException"): (Kind.UNANSWERED, ""),
    (500, "InternalError"): (Kind.UNANSWERED, ""),
    (503, "ServiceUnavailable"): (Kind.UNANSWERED, ""),
    (501, "NotImplemented"): (Kind.INCAPABLE, ""),
    (400, "KeyTooLongError"): (Kind.UNFIT, ""),
    (400, "KMS.DisabledException"): (Kind.DENIED, "KMS"),
    (400, "KMS.NotFoundException"): (Kind.DENIED, "KMS"),
    (302, "NeverHeardOf"): (Kind.NO_PLACE, ""),
    (400, "NeverHeardOf"): (Kind.REJECTED, ""),
    (401, "NeverHeardOf"): (Kind.UNKNOWN, ""),
    (403, "NeverHeardOf"): (Kind.DENIED, ""),
    (404, "NeverHeardOf"): (Kind.REJECTED, ""),
    (408, "NeverHeardOf"): (Kind.UNANSWERED, ""),
    (409, "NeverHeardOf"): (Kind.MOVED, ""),
    (412, "NeverHeardOf"): (Kind.MOVED, ""),
    (425, "NeverHeardOf"): (Kind.UNANSWERED, ""),
    (429, "NeverHeardOf"): (Kind.THROTTLED, ""),
    (464, "NeverHeardOf"): (Kind.REJECTED, ""),
    (599, "NeverHeardOf"): (Kind.UNANSWERED, ""),
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
    202: Kind.UNANSWERED,
    301: Kind.NO_PLACE,
    302: Kind.NO_PLACE,
    304: Kind.MOVED,
    399: Kind.NO_PLACE,
    400: Kind.REJECTED,
    401: Kind.UNKNOWN,
    403: Kind.DENIED,
    404: Kind.NO_PLACE,
    408: Kind.UNANSWERED,
    409: Kind.REJECTED,
    412: Kind.MOVED,
    418: Kind.REJECTED,
    425: Kind.UNANSWERED,
    429: Kind.THROTTLED,
    464: Kind.REJECTED,
    499: Kind.REJECTED,
    502: Kind.UNANSWERED,
    599: Kind.UNANSWERED,
    999: Kind.UNANSWERED,
}


def error(status: int, code: str, **headers: str) -> Reply:
    text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>told so</Message></Error>"
    return Reply(status, headers, text.encode())


@pytest.mark.parametrize(("status", "code"), CODES)
def test_a_request_is_refused(status: int, code: str) -> None:
    kind, remedy = CODES[status, code]
    refused = answers.refused(error(status, code))
    assert refused.kind is kind
    assert refused.found == f"status {status}, {code}"
    assert remedy in refused.remedy
    assert bool(remedy) is bool(refused.remedy)


@pytest.mark.parametrize("status", [400, 403, 503])
@pytest.mark.parametrize("code", THROTTLES)
def test_a_service_of_which_too_much_is_asked_may_say_so_with_any_status(status: int, code: str) -> None:
    assert answers.refused(error(status, code)).kind is Kind.THROTTLED


@pytest.mark.parametrize("status", WORDLESS)
@pytest.mark.parametrize("body", [b"", HTML, b"<html/>", b"<Error/>", b'{"error": 5}'])
def test_what_is_no_error_of_s3_counts_by_its_status(status: int, body: bytes) -> None:
    refused = answers.refused(Reply(status, {}, body))
    assert refused.kind is WORDLESS[status]
    assert refused.found == f"status {status}, without an error of S3"


def test_the_service_says_how_long_to_wait() -> None:
    assert answers.refused(error(503, "SlowDown", **{"Retry-After": "7"})).retry_after == 7.0
    assert (
        answers.refused(error(503, "SlowDown", **{"Retry-After": "Sat, 21 Nov 2026 12:01:30 GMT"})).retry_after is None
    )
