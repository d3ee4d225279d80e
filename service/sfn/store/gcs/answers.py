"""What Cloud Storage answers: its errors and its listings, into our words.

Its two APIs have the same errors: XML for what is read, JSON for all else. Their names differ in the first letter.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final
from xml.etree import ElementTree as ET

import msgspec

from sfn.store.objects import ErrorKind, ObjectPage, RequestFailed
from sfn.store.pool import HttpReply

_KIND_BY_CODE: Final = {
    "noSuchBucket": ErrorKind.NO_BUCKET,
    "invalidBucketName": ErrorKind.NO_BUCKET,
    "orgPolicyConstraintFailed": ErrorKind.DENIED,
    "objectUnderActiveHold": ErrorKind.DENIED,
    "retentionPolicyNotMet": ErrorKind.DENIED,
    "cloudKmsDecryptionKeyNotFound": ErrorKind.DENIED,
    "cloudKmsDisabledKey": ErrorKind.DENIED,
    "cloudKmsEncryptionKeyNotFound": ErrorKind.DENIED,
    "accessNotConfigured": ErrorKind.UNAUTHENTICATED,
    "accountDisabled": ErrorKind.UNAUTHENTICATED,
    "accountProblem": ErrorKind.UNAUTHENTICATED,
    "expiredToken": ErrorKind.UNAUTHENTICATED,
    "invalidToken": ErrorKind.UNAUTHENTICATED,
    "userProjectAccessDenied": ErrorKind.UNAUTHENTICATED,
    "userProjectAccountProblem": ErrorKind.UNAUTHENTICATED,
    "userProjectInvalid": ErrorKind.UNAUTHENTICATED,
    "userProjectMissing": ErrorKind.UNAUTHENTICATED,
    "quotaExceeded": ErrorKind.THROTTLED,
    "rateLimitExceeded": ErrorKind.THROTTLED,
    "slowDown": ErrorKind.THROTTLED,
    "userRateLimitExceeded": ErrorKind.THROTTLED,
    "notImplemented": ErrorKind.UNSUPPORTED,
    "invalidURI": ErrorKind.INVALID_OBJECT,
    "uploadTooLarge": ErrorKind.INVALID_OBJECT,
}
"""Of errors whose status means something else, or nothing."""
_RETAINED: Final = "lift the retention policy or the hold: it forbids to replace and to delete these files"
_KMS_REMEDY: Final = "see to the Cloud KMS key of the bucket"
_BILLING_REMEDY: Final = "see to the billing account of the bucket's project"
_PROJECT_REMEDY: Final = (
    "set `stores.NAME.billing_project` to a project that pays and whose use the principal is permitted"
)
_REMEDIES: Final = {
    "orgPolicyConstraintFailed": "see to the organisation's policies",
    "objectUnderActiveHold": _RETAINED,
    "retentionPolicyNotMet": _RETAINED,
    "cloudKmsDecryptionKeyNotFound": _KMS_REMEDY,
    "cloudKmsDisabledKey": _KMS_REMEDY,
    "cloudKmsEncryptionKeyNotFound": _KMS_REMEDY,
    "accessNotConfigured": "enable the Cloud Storage API in the principal's project",
    "accountDisabled": _BILLING_REMEDY,
    "accountProblem": _BILLING_REMEDY,
    "authenticationRequiredRequesterPays": _PROJECT_REMEDY,
    "userProjectAccessDenied": _PROJECT_REMEDY,
    "userProjectAccountProblem": "see to the billing account of the project that pays, and of the bucket's",
    "userProjectInvalid": _PROJECT_REMEDY,
    "userProjectMissing": _PROJECT_REMEDY,
}
_KIND_BY_STATUS: Final = {
    HTTPStatus.NOT_MODIFIED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.UNAUTHORIZED: ErrorKind.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: ErrorKind.DENIED,
    HTTPStatus.NOT_FOUND: ErrorKind.MISSING,
    HTTPStatus.REQUEST_TIMEOUT: ErrorKind.NO_ANSWER,
    HTTPStatus.CONFLICT: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.PRECONDITION_FAILED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.TOO_MANY_REQUESTS: ErrorKind.THROTTLED,
}
_CODE: Final = re.compile(r"[A-Za-z]{1,64}")


class _Detail(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct):
    errors: tuple[_Detail, ...] = ()


class _GcsErrorBody(msgspec.Struct):
    error: _Details


class _Item(msgspec.Struct):
    name: str


class _ObjectList(msgspec.Struct, rename="camel"):
    items: tuple[_Item, ...] = ()
    next_page_token: str | None = None


class _WrittenObject(msgspec.Struct):
    generation: str


def failure_of(reply: HttpReply) -> RequestFailed:
    """Why a request came to nothing; see `is_vague`."""
    code = error_code(reply)
    kind = _KIND_BY_CODE.get(code) or _kind_of(reply.status)
    found = f"status {reply.status}, {code or 'without an error of Cloud Storage'}"
    return RequestFailed(kind, found, _REMEDIES.get(code, ""), retry_after(reply))


def error_code(reply: HttpReply) -> str:
    """The service's word for an error, with a small letter first; "" where there is none that it could be."""
    try:
        errors = msgspec.json.decode(reply.body, type=_GcsErrorBody).error.errors
        code = errors[0].reason if errors else ""
    except (ValueError, RecursionError):
        code = _xml_code(reply.body)
    # The documentation writes some with their domain before a dot.
    code = code.rpartition(".")[2]
    return code[:1].lower() + code[1:] if _CODE.fullmatch(code) else ""


def is_ambiguous_missing(reply: HttpReply) -> bool:
    """Whether something is missing, and nothing says if it is the object or the whole bucket: JSON never does."""
    return reply.status == HTTPStatus.NOT_FOUND and error_code(reply) not in {"noSuchKey", "noSuchBucket"}


def is_rate_limited(reply: HttpReply) -> bool:
    """Whether a change is refused because the object was changed a moment ago, or so it seems.

    Other limits have the same name. In their case too it helps to wait.
    """
    return reply.status == HTTPStatus.TOO_MANY_REQUESTS and error_code(reply) == "rateLimitExceeded"


def retry_after(reply: HttpReply) -> float | None:
    """Seconds that the service asks us to wait."""
    value = reply.headers.get("Retry-After")
    return float(value) if value is not None and value.isdecimal() else None


def parse_page(reply: HttpReply, prefix: str) -> ObjectPage:
    """A page of a listing.

    Args:
        prefix: what the names are appended to.

    Raises:
        Refused: it makes no sense.
    """
    try:
        listing = msgspec.json.decode(reply.body, type=_ObjectList)
    except (ValueError, RecursionError) as error:
        raise RequestFailed(ErrorKind.NO_ANSWER, "a listing that makes no sense") from error
    return ObjectPage(tuple(prefix + item.name for item in listing.items), listing.next_page_token or None)


def parse_generation(reply: HttpReply) -> str:
    """Of what was written.

    Raises:
        Refused: it makes no sense.
    """
    try:
        return msgspec.json.decode(reply.body, type=_WrittenObject).generation
    except (ValueError, RecursionError) as error:
        raise RequestFailed(ErrorKind.NO_ANSWER, "an answer to a write that makes no sense") from error


def _kind_of(status: int) -> ErrorKind:
    if status in _KIND_BY_STATUS:
        return _KIND_BY_STATUS[HTTPStatus(status)]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ErrorKind.NO_ANSWER
    # Less is a redirect to who knows where.
    return ErrorKind.REJECTED if status >= HTTPStatus.BAD_REQUEST else ErrorKind.NO_BUCKET


def _xml_code(body: bytes) -> str:
    try:
        root = ET.fromstring(body)  # noqa: S314 - bounded in length, and expat bounds what entities become
    except (ET.ParseError, ValueError, LookupError):
        # The last two where it says to be in an encoding that the parser does not read.
        return ""
    return root.findtext("{*}Code", "")
