"""What S3 answers: its errors and its listings, from XML into our words."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from sfn.store.objects import ErrorKind, ObjectPage, RequestFailed
from sfn.store.pool import HttpReply

_THROTTLES: Final = (
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
"""As botocore has them: what speaks S3's protocol says it in the words of AWS's other services too."""
_KIND_BY_CODE: Final = {
    "NoSuchKey": ErrorKind.MISSING,
    "NoSuchBucket": ErrorKind.NO_BUCKET,
    "PreconditionFailed": ErrorKind.PRECONDITION_FAILED,
    "ConditionalRequestConflict": ErrorKind.PRECONDITION_FAILED,
    "OperationAborted": ErrorKind.PRECONDITION_FAILED,
    "AccessDenied": ErrorKind.DENIED,
    "ExpiredToken": ErrorKind.UNAUTHENTICATED,
    "ExpiredTokenException": ErrorKind.UNAUTHENTICATED,
    "InvalidAccessKeyId": ErrorKind.UNAUTHENTICATED,
    "InvalidToken": ErrorKind.UNAUTHENTICATED,
    "InvalidTokenId": ErrorKind.UNAUTHENTICATED,
    "RequestExpired": ErrorKind.UNAUTHENTICATED,
    "RequestTimeTooSkewed": ErrorKind.UNAUTHENTICATED,
    "SignatureDoesNotMatch": ErrorKind.UNAUTHENTICATED,
    "TokenRefreshRequired": ErrorKind.UNAUTHENTICATED,
    "AccountProblem": ErrorKind.UNAUTHENTICATED,
    "AllAccessDisabled": ErrorKind.UNAUTHENTICATED,
    "PermanentRedirect": ErrorKind.NO_BUCKET,
    "TemporaryRedirect": ErrorKind.NO_BUCKET,
    "AuthorizationHeaderMalformed": ErrorKind.NO_BUCKET,
    "IllegalLocationConstraintException": ErrorKind.NO_BUCKET,
    "BadDigest": ErrorKind.NO_ANSWER,
    "IncompleteBody": ErrorKind.NO_ANSWER,
    "PriorRequestNotComplete": ErrorKind.NO_ANSWER,
    "RequestTimeout": ErrorKind.NO_ANSWER,
    "RequestTimeoutException": ErrorKind.NO_ANSWER,
    "NotImplemented": ErrorKind.UNSUPPORTED,
    "EntityTooLarge": ErrorKind.INVALID_OBJECT,
    "KeyTooLongError": ErrorKind.INVALID_OBJECT,
    **dict.fromkeys(_THROTTLES, ErrorKind.THROTTLED),
}
_KMS: Final = "KMS."
"""Of every error that the key of an object's encryption is the cause of, such as `KMS.DisabledException`."""
_REMEDIES: Final = {
    "RequestTimeTooSkewed": "set this machine's clock: it is more than 15 minutes off",
}
_KMS_REMEDY: Final = "see to the KMS key of the bucket: it is disabled or gone, or the principal may not use it"
_OTHER_REGION: Final = (
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
    "TemporaryRedirect",
)
"""The bucket is in another region than the one that was asked, or AWS does not find it everywhere yet."""
_REGION_HEADER: Final = "x-amz-bucket-region"
_REGION: Final = re.compile(r"[a-z0-9-]{1,64}")
_KIND_BY_STATUS: Final = {
    # Of a write. RFC 9110 asks for 412 there, but some services and proxies answer so.
    HTTPStatus.NOT_MODIFIED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.UNAUTHORIZED: ErrorKind.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: ErrorKind.DENIED,
    HTTPStatus.REQUEST_TIMEOUT: ErrorKind.NO_ANSWER,
    HTTPStatus.PRECONDITION_FAILED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.TOO_EARLY: ErrorKind.NO_ANSWER,
    HTTPStatus.TOO_MANY_REQUESTS: ErrorKind.THROTTLED,
}
"""Of an answer whose code we do not know, or that has none."""
_REDIRECTS: Final = (
    HTTPStatus.MOVED_PERMANENTLY,
    HTTPStatus.FOUND,
    HTTPStatus.TEMPORARY_REDIRECT,
    HTTPStatus.PERMANENT_REDIRECT,
)


def failure_of(reply: HttpReply) -> RequestFailed:
    """Why a request came to nothing."""
    root = _parsed(reply.body)
    code = "" if root is None else _child_text(root, "Code")
    kind = _KIND_BY_CODE.get(code) or _kind_of(reply.status, code)
    found = f"status {reply.status}, {code or 'without an error of S3'}"
    remedy = _REMEDIES.get(code) or (_KMS_REMEDY if code.startswith(_KMS) else "")
    named = _region(reply, root)
    if kind is ErrorKind.NO_BUCKET and (code in _OTHER_REGION or (named is not None and reply.status in _REDIRECTS)):
        if named is not None:
            found += f": the bucket is in the region {named}"
        remedy = (
            f'set `stores.NAME.region = "{named or "REGION"}"`, the region of the bucket; if that is set, enable the '
            "region in the account, or wait: a new bucket is found everywhere after some hours"
        )
    return RequestFailed(kind, found, remedy, _seconds(reply.headers.get("Retry-After")))


def redirect_region(reply: HttpReply) -> str | None:
    """Return the region of the bucket that an answer names because the request went to another, else None."""
    if reply.status not in _REDIRECTS and reply.status != HTTPStatus.BAD_REQUEST:
        return None
    return _region(reply, _parsed(reply.body))


def is_error(reply: HttpReply) -> bool:
    """Return True if the body of an answer is an error, whatever its status says."""
    root = _parsed(reply.body) if reply.body else None
    return root is not None and _local_name(root.tag) == "Error"


def parse_page(reply: HttpReply, prefix: str) -> ObjectPage:
    """A page of ListObjectsV2, encoded by URL rules if the service does as it was asked.

    Args:
        prefix: what the keys are appended to.

    Raises:
        Refused: it makes no sense.
    """
    root = _parsed(reply.body)
    if root is None or _local_name(root.tag) != "ListBucketResult":
        raise RequestFailed(ErrorKind.NO_ANSWER, "a listing that makes no sense")
    read = unquote_plus if _child_text(root, "EncodingType") == "url" else str
    names = [read(_child_text(one, "Key")) for one in root if _local_name(one.tag) == "Contents"]
    more = _child_text(root, "NextContinuationToken") if _child_text(root, "IsTruncated").lower() == "true" else None
    return ObjectPage(tuple(prefix + name for name in names), more)


def _kind_of(status: int, code: str) -> ErrorKind:
    if code.startswith(_KMS):
        return ErrorKind.DENIED
    if status in _KIND_BY_STATUS:
        return _KIND_BY_STATUS[HTTPStatus(status)]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ErrorKind.NO_ANSWER
    if status == HTTPStatus.CONFLICT and code:
        return ErrorKind.PRECONDITION_FAILED
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return ErrorKind.NO_ANSWER
    # A redirect leads to who knows where, and it is not S3 that misses something without a word for it.
    if status < HTTPStatus.BAD_REQUEST or (status == HTTPStatus.NOT_FOUND and not code):
        return ErrorKind.NO_BUCKET
    return ErrorKind.REJECTED


def _region(reply: HttpReply, root: ET.Element | None) -> str | None:
    named = reply.headers.get(_REGION_HEADER) or (_child_text(root, "Region") if root is not None else "")
    return named if _REGION.fullmatch(named) else None


def _parsed(body: bytes) -> ET.Element | None:
    try:
        return ET.fromstring(body)  # noqa: S314 - bounded in length, and expat bounds what entities become
    except (ET.ParseError, ValueError, LookupError):  # the last two of encodings that nobody knows
        return None


def _child_text(parent: ET.Element, name: str) -> str:
    return next((child.text or "" for child in parent if _local_name(child.tag) == name), "")


def _local_name(tag: str) -> str:
    return tag.rpartition("}")[2]


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isdecimal() else None
