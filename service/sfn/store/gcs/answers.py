"""What Cloud Storage answers: its errors and its listings, into our words.

Its two APIs have the same errors: XML for what is read, JSON for all else. Their names differ in the first letter.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final
from xml.etree import ElementTree as ET

import msgspec

from sfn.store.objects import Kind, Page, Refused
from sfn.store.pool import Reply

_KINDS: Final = {
    "noSuchBucket": Kind.NO_PLACE,
    "invalidBucketName": Kind.NO_PLACE,
    "orgPolicyConstraintFailed": Kind.DENIED,
    "objectUnderActiveHold": Kind.DENIED,
    "retentionPolicyNotMet": Kind.DENIED,
    "cloudKmsDecryptionKeyNotFound": Kind.DENIED,
    "cloudKmsDisabledKey": Kind.DENIED,
    "cloudKmsEncryptionKeyNotFound": Kind.DENIED,
    "accessNotConfigured": Kind.UNKNOWN,
    "accountDisabled": Kind.UNKNOWN,
    "accountProblem": Kind.UNKNOWN,
    "expiredToken": Kind.UNKNOWN,
    "invalidToken": Kind.UNKNOWN,
    "userProjectAccessDenied": Kind.UNKNOWN,
    "userProjectAccountProblem": Kind.UNKNOWN,
    "userProjectInvalid": Kind.UNKNOWN,
    "userProjectMissing": Kind.UNKNOWN,
    "quotaExceeded": Kind.THROTTLED,
    "rateLimitExceeded": Kind.THROTTLED,
    "slowDown": Kind.THROTTLED,
    "userRateLimitExceeded": Kind.THROTTLED,
    "notImplemented": Kind.INCAPABLE,
    "invalidURI": Kind.UNFIT,
    "uploadTooLarge": Kind.UNFIT,
}
"""Of errors whose status means something else, or nothing."""
_RETAINED: Final = "lift the retention policy or the hold: it forbids to replace and to delete these files"
_KEY: Final = "see to the Cloud KMS key of the bucket"
_BILLING: Final = "see to the billing account of the bucket's project"
_PROJECT: Final = "set `stores.NAME.billing_project` to a project that pays and whose use the principal is permitted"
_REMEDIES: Final = {
    "orgPolicyConstraintFailed": "see to the organisation's policies",
    "objectUnderActiveHold": _RETAINED,
    "retentionPolicyNotMet": _RETAINED,
    "cloudKmsDecryptionKeyNotFound": _KEY,
    "cloudKmsDisabledKey": _KEY,
    "cloudKmsEncryptionKeyNotFound": _KEY,
    "accessNotConfigured": "enable the Cloud Storage API in the principal's project",
    "accountDisabled": _BILLING,
    "accountProblem": _BILLING,
    "authenticationRequiredRequesterPays": _PROJECT,
    "userProjectAccessDenied": _PROJECT,
    "userProjectAccountProblem": "see to the billing account of the project that pays, and of the bucket's",
    "userProjectInvalid": _PROJECT,
    "userProjectMissing": _PROJECT,
}
_BY_STATUS: Final = {
    HTTPStatus.NOT_MODIFIED: Kind.MOVED,
    HTTPStatus.UNAUTHORIZED: Kind.UNKNOWN,
    HTTPStatus.FORBIDDEN: Kind.DENIED,
    HTTPStatus.NOT_FOUND: Kind.MISSING,
    HTTPStatus.REQUEST_TIMEOUT: Kind.UNANSWERED,
    HTTPStatus.CONFLICT: Kind.MOVED,
    HTTPStatus.PRECONDITION_FAILED: Kind.MOVED,
    HTTPStatus.TOO_MANY_REQUESTS: Kind.THROTTLED,
}
_CODE: Final = re.compile(r"[A-Za-z]{1,64}")


class _Detail(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct):
    errors: tuple[_Detail, ...] = ()


class _Complaint(msgspec.Struct):
    error: _Details


class _Item(msgspec.Struct):
    name: str


class _Listing(msgspec.Struct, rename="camel"):
    items: tuple[_Item, ...] = ()
    next_page_token: str | None = None


class _Written(msgspec.Struct):
    generation: str


def refused(reply: Reply) -> Refused:
    """Why a request came to nothing; see `is_vague`."""
    code = code_of(reply)
    kind = _KINDS.get(code) or _kind_of(reply.status)
    found = f"status {reply.status}, {code or 'without an error of Cloud Storage'}"
    return Refused(kind, found, _REMEDIES.get(code, ""), retry_after(reply))


def code_of(reply: Reply) -> str:
    """The service's word for an error, with a small letter first; "" where there is none that it could be."""
    try:
        errors = msgspec.json.decode(reply.body, type=_Complaint).error.errors
        code = errors[0].reason if errors else ""
    except (ValueError, RecursionError):
        code = _xml_code(reply.body)
    # The documentation writes some with their domain before a dot.
    code = code.rpartition(".")[2]
    return code[:1].lower() + code[1:] if _CODE.fullmatch(code) else ""


def is_vague(reply: Reply) -> bool:
    """Whether something is missing, and nothing says if it is the object or the whole bucket: JSON never does."""
    return reply.status == HTTPStatus.NOT_FOUND and code_of(reply) not in {"noSuchKey", "noSuchBucket"}


def is_too_often(reply: Reply) -> bool:
    """Whether a change is refused because the object was changed a moment ago, or so it seems.

    Other limits have the same name. In their case too it helps to wait.
    """
    return reply.status == HTTPStatus.TOO_MANY_REQUESTS and code_of(reply) == "rateLimitExceeded"


def retry_after(reply: Reply) -> float | None:
    """Seconds that the service asks us to wait."""
    value = reply.headers.get("Retry-After")
    return float(value) if value is not None and value.isdecimal() else None


def page(reply: Reply, home: str) -> Page:
    """A page of a listing.

    Args:
        home: what the names are appended to.

    Raises:
        Refused: it makes no sense.
    """
    try:
        listing = msgspec.json.decode(reply.body, type=_Listing)
    except (ValueError, RecursionError) as error:
        raise Refused(Kind.UNANSWERED, "a listing that makes no sense") from error
    return Page(tuple(home + item.name for item in listing.items), listing.next_page_token or None)


def generation(reply: Reply) -> str:
    """Of what was written.

    Raises:
        Refused: it makes no sense.
    """
    try:
        return msgspec.json.decode(reply.body, type=_Written).generation
    except (ValueError, RecursionError) as error:
        raise Refused(Kind.UNANSWERED, "an answer to a write that makes no sense") from error


def _kind_of(status: int) -> Kind:
    if status in _BY_STATUS:
        return _BY_STATUS[HTTPStatus(status)]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Kind.UNANSWERED
    # Less is a redirect to who knows where.
    return Kind.REJECTED if status >= HTTPStatus.BAD_REQUEST else Kind.NO_PLACE


def _xml_code(body: bytes) -> str:
    try:
        root = ET.fromstring(body)  # noqa: S314 - bounded in length, and expat bounds what entities become
    except (ET.ParseError, ValueError, LookupError):
        # The last two where it says to be in an encoding that the parser does not read.
        return ""
    return root.findtext("{*}Code", "")
