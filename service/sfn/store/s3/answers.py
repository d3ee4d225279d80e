"""What S3 answers: its errors and its listings, from XML into our words."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from sfn.store.objects import Kind, Page, Refused
from sfn.store.pool import Reply

_KINDS: Final = {
    "NoSuchKey": Kind.MISSING,
    "NoSuchBucket": Kind.NO_PLACE,
    "PreconditionFailed": Kind.MOVED,
    "ConditionalRequestConflict": Kind.MOVED,
    "OperationAborted": Kind.MOVED,
    "AccessDenied": Kind.DENIED,
    "ExpiredToken": Kind.UNKNOWN,
    "InvalidAccessKeyId": Kind.UNKNOWN,
    "InvalidToken": Kind.UNKNOWN,
    "RequestExpired": Kind.UNKNOWN,
    "RequestTimeTooSkewed": Kind.UNKNOWN,
    "SignatureDoesNotMatch": Kind.UNKNOWN,
    "TokenRefreshRequired": Kind.UNKNOWN,
    "AccountProblem": Kind.UNKNOWN,
    "AllAccessDisabled": Kind.UNKNOWN,
    "PermanentRedirect": Kind.NO_PLACE,
    "TemporaryRedirect": Kind.NO_PLACE,
    "AuthorizationHeaderMalformed": Kind.NO_PLACE,
    "SlowDown": Kind.THROTTLED,
    "TooManyRequests": Kind.THROTTLED,
    "NotImplemented": Kind.INCAPABLE,
}
_REMEDIES: Final = {
    "RequestTimeTooSkewed": "set this machine's clock: it is more than 15 minutes off",
    "PermanentRedirect": "set `stores.NAME.region` to the bucket's",
    "AuthorizationHeaderMalformed": "set `stores.NAME.region` to the bucket's",
}
_BY_STATUS: Final = {
    HTTPStatus.PRECONDITION_FAILED: Kind.MOVED,
    HTTPStatus.FORBIDDEN: Kind.DENIED,
    HTTPStatus.UNAUTHORIZED: Kind.UNKNOWN,
    HTTPStatus.TOO_MANY_REQUESTS: Kind.THROTTLED,
    HTTPStatus.MOVED_PERMANENTLY: Kind.NO_PLACE,
    HTTPStatus.NOT_FOUND: Kind.NO_PLACE,
}
"""Of an answer whose body is no error of S3's: a proxy's, or what else answers at that address."""


def refused(reply: Reply) -> Refused:
    """Why a request came to nothing."""
    root = _parsed(reply.body)
    code = "" if root is None else _text(root, "Code")
    kind = _KINDS.get(code)
    if kind is None and reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        kind = Kind.UNANSWERED
    if kind is None:
        # A code that we do not know is a refusal for good, but for what its status says.
        kind = _BY_STATUS.get(HTTPStatus(reply.status), Kind.UNFIT) if not code else _kind_of(reply.status)
    found = f"status {reply.status}, {code or 'without an error of S3'}"
    return Refused(kind, found, _REMEDIES.get(code, ""), _seconds(reply.headers.get("Retry-After")))


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
    more = _text(root, "NextContinuationToken") if _text(root, "IsTruncated") == "true" else None
    return Page(tuple(home + name for name in names), more or None)


def _kind_of(status: int) -> Kind:
    match status:
        case HTTPStatus.FORBIDDEN:
            return Kind.DENIED
        case HTTPStatus.PRECONDITION_FAILED | HTTPStatus.CONFLICT:
            return Kind.MOVED
        case HTTPStatus.UNAUTHORIZED:
            return Kind.UNKNOWN
        case HTTPStatus.TOO_MANY_REQUESTS:
            return Kind.THROTTLED
        case _:
            return Kind.UNFIT


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
