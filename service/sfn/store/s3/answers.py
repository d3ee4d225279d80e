"""What S3 answers: its errors and its listings, from XML into our words."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from sfn.store.objects import Kind, Page, Refused
from sfn.store.pool import Reply

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
_KINDS: Final = {
    "NoSuchKey": Kind.MISSING,
    "NoSuchBucket": Kind.NO_PLACE,
    "PreconditionFailed": Kind.MOVED,
    "ConditionalRequestConflict": Kind.MOVED,
    "OperationAborted": Kind.MOVED,
    "AccessDenied": Kind.DENIED,
    "ExpiredToken": Kind.UNKNOWN,
    "ExpiredTokenException": Kind.UNKNOWN,
    "InvalidAccessKeyId": Kind.UNKNOWN,
    "InvalidToken": Kind.UNKNOWN,
    "InvalidTokenId": Kind.UNKNOWN,
    "RequestExpired": Kind.UNKNOWN,
    "RequestTimeTooSkewed": Kind.UNKNOWN,
    "SignatureDoesNotMatch": Kind.UNKNOWN,
    "TokenRefreshRequired": Kind.UNKNOWN,
    "AccountProblem": Kind.UNKNOWN,
    "AllAccessDisabled": Kind.UNKNOWN,
    "PermanentRedirect": Kind.NO_PLACE,
    "TemporaryRedirect": Kind.NO_PLACE,
    "AuthorizationHeaderMalformed": Kind.NO_PLACE,
    "IllegalLocationConstraintException": Kind.NO_PLACE,
    "BadDigest": Kind.UNANSWERED,
    "IncompleteBody": Kind.UNANSWERED,
    "PriorRequestNotComplete": Kind.UNANSWERED,
    "RequestTimeout": Kind.UNANSWERED,
    "RequestTimeoutException": Kind.UNANSWERED,
    "NotImplemented": Kind.INCAPABLE,
    "EntityTooLarge": Kind.UNFIT,
    "KeyTooLongError": Kind.UNFIT,
    **dict.fromkeys(_THROTTLES, Kind.THROTTLED),
}
_KMS: Final = "KMS."
"""Of every error that the key of an object's encryption is the cause of, such as `KMS.DisabledException`."""
_REMEDIES: Final = {
    "RequestTimeTooSkewed": "set this machine's clock: it is more than 15 minutes off",
}
_KEY: Final = "see to the KMS key of the bucket: it is disabled or gone, or the principal may not use it"
_ELSEWHERE: Final = (
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
    "TemporaryRedirect",
)
"""The bucket is in another region than the one that was asked, or AWS does not find it everywhere yet."""
_REGION_HEADER: Final = "x-amz-bucket-region"
_REGION: Final = re.compile(r"[a-z0-9-]{1,64}")
_BY_STATUS: Final = {
    # Of a write. RFC 9110 asks for 412 there, but some services and proxies answer so.
    HTTPStatus.NOT_MODIFIED: Kind.MOVED,
    HTTPStatus.UNAUTHORIZED: Kind.UNKNOWN,
    HTTPStatus.FORBIDDEN: Kind.DENIED,
    HTTPStatus.REQUEST_TIMEOUT: Kind.UNANSWERED,
    HTTPStatus.PRECONDITION_FAILED: Kind.MOVED,
    HTTPStatus.TOO_EARLY: Kind.UNANSWERED,
    HTTPStatus.TOO_MANY_REQUESTS: Kind.THROTTLED,
}
"""Of an answer whose code we do not know, or that has none."""
_REDIRECTS: Final = (
    HTTPStatus.MOVED_PERMANENTLY,
    HTTPStatus.FOUND,
    HTTPStatus.TEMPORARY_REDIRECT,
    HTTPStatus.PERMANENT_REDIRECT,
)


def refused(reply: Reply) -> Refused:
    """Why a request came to nothing."""
    root = _parsed(reply.body)
    code = "" if root is None else _text(root, "Code")
    kind = _KINDS.get(code) or _kind_of(reply.status, code)
    found = f"status {reply.status}, {code or 'without an error of S3'}"
    remedy = _REMEDIES.get(code) or (_KEY if code.startswith(_KMS) else "")
    named = _region(reply, root)
    if kind is Kind.NO_PLACE and (code in _ELSEWHERE or (named is not None and reply.status in _REDIRECTS)):
        if named is not None:
            found += f": the bucket is in the region {named}"
        remedy = (
            f'set `stores.NAME.region = "{named or "REGION"}"`, the region of the bucket; if that is set, enable the '
            "region in the account, or wait: a new bucket is found everywhere after some hours"
        )
    return Refused(kind, found, remedy, _seconds(reply.headers.get("Retry-After")))


def region(reply: Reply) -> str | None:
    """Return the region of the bucket that an answer names because the request went to another, else None."""
    if reply.status not in _REDIRECTS and reply.status != HTTPStatus.BAD_REQUEST:
        return None
    return _region(reply, _parsed(reply.body))


def is_error(reply: Reply) -> bool:
    """Return True if the body of an answer is an error, whatever its status says."""
    root = _parsed(reply.body) if reply.body else None
    return root is not None and _local(root.tag) == "Error"


def page(reply: Reply, home: str) -> Page:
    """A page of ListObjectsV2, encoded by URL rules if the service does as it was asked.

    Args:
        home: what the keys are appended to.

    Raises:
        Refused: it makes no sense.
    """
    root = _parsed(reply.body)
    if root is None or _local(root.tag) != "ListBucketResult":
        raise Refused(Kind.UNANSWERED, "a listing that makes no sense")
    read = unquote_plus if _text(root, "EncodingType") == "url" else str
    names = [read(_text(one, "Key")) for one in root if _local(one.tag) == "Contents"]
    more = _text(root, "NextContinuationToken") if _text(root, "IsTruncated").lower() == "true" else None
    return Page(tuple(home + name for name in names), more)


def _kind_of(status: int, code: str) -> Kind:
    if code.startswith(_KMS):
        return Kind.DENIED
    if status in _BY_STATUS:
        return _BY_STATUS[HTTPStatus(status)]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Kind.UNANSWERED
    if status == HTTPStatus.CONFLICT and code:
        return Kind.MOVED
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return Kind.UNANSWERED
    # A redirect leads to who knows where, and it is not S3 that misses something without a word for it.
    if status < HTTPStatus.BAD_REQUEST or (status == HTTPStatus.NOT_FOUND and not code):
        return Kind.NO_PLACE
    return Kind.REJECTED


def _region(reply: Reply, root: ET.Element | None) -> str | None:
    named = reply.headers.get(_REGION_HEADER) or (_text(root, "Region") if root is not None else "")
    return named if _REGION.fullmatch(named) else None


def _parsed(body: bytes) -> ET.Element | None:
    try:
        return ET.fromstring(body)  # noqa: S314 - bounded in length, and expat bounds what entities become
    except (ET.ParseError, ValueError, LookupError):  # the last two of encodings that nobody knows
        return None


def _text(parent: ET.Element, name: str) -> str:
    return next((child.text or "" for child in parent if _local(child.tag) == name), "")


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isdecimal() else None
