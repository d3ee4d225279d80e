"""What Blob Storage answers: its errors, as the SDK raises them, into our words.

Its codes: https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes, and beside it
`common-rest-api-error-codes`.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from sfn.store.azure.transport import Answer
from sfn.store.objects import Kind, Refused

_KINDS: Final = {
    "BlobNotFound": Kind.MISSING,
    "AccountIsDisabled": Kind.NO_PLACE,
    "ContainerBeingDeleted": Kind.NO_PLACE,
    "ContainerDisabled": Kind.NO_PLACE,
    "BlobAlreadyExists": Kind.MOVED,
    "BlobImmutableDueToLegalHold": Kind.DENIED,
    "BlobImmutableDueToPolicy": Kind.DENIED,
    "PublicAccessNotPermitted": Kind.DENIED,
    # What nobody in particular is told of a container that is not public.
    "ResourceNotFound": Kind.DENIED,
    "AuthenticationFailed": Kind.UNKNOWN,
    "InvalidAuthenticationInfo": Kind.UNKNOWN,
    "KeyBasedAuthenticationNotPermitted": Kind.UNKNOWN,
    "ServerBusy": Kind.THROTTLED,
    "LeaseIdMismatchWithBlobOperation": Kind.TOO_OFTEN,
    "LeaseIdMissing": Kind.TOO_OFTEN,
    "BlobArchived": Kind.UNFIT,
    "BlobBeingRehydrated": Kind.UNFIT,
    "InvalidBlobType": Kind.UNFIT,
    "InvalidResourceName": Kind.UNFIT,
    "InvalidUri": Kind.UNFIT,
    "OutOfRangeInput": Kind.UNFIT,
    "RequestBodyTooLarge": Kind.UNFIT,
    "ResourceTypeMismatch": Kind.UNFIT,
    "SnapshotsPresent": Kind.UNFIT,
    "ConditionHeadersNotSupported": Kind.INCAPABLE,
    "MultipleConditionHeadersNotSupported": Kind.INCAPABLE,
    "UnsupportedHeader": Kind.INCAPABLE,
}
"""Of codes that mean something else than their status."""
_LEASE: Final = "end the lease that another program has on this blob"
_RETAINED: Final = "lift the immutability policy or the legal hold: it forbids to replace and to delete these files"
_NAMELESS: Final = "give the store credentials: it is asked without, and lets nobody do that"
_ARCHIVED: Final = "keep these files in a tier that is online"
_REMEDIES: Final = {
    "BlobImmutableDueToLegalHold": _RETAINED,
    "BlobImmutableDueToPolicy": _RETAINED,
    "PublicAccessNotPermitted": _NAMELESS,
    "ResourceNotFound": _NAMELESS,
    "NoAuthenticationInformation": _NAMELESS,
    "AuthenticationFailed": "renew or correct them; and set this machine's clock if it is more than 15 minutes off",
    "KeyBasedAuthenticationNotPermitted": "use an identity of Microsoft Entra: this account takes no keys",
    "AuthorizationFailure": "grant it to the service's principal, and let the account's firewall pass this machine",
    "AuthorizationProtocolMismatch": "set an https: endpoint: the signature is good for no other",
    "AuthorizationSourceIPMismatch": "have the signature made for this machine's address",
    "LeaseIdMismatchWithBlobOperation": _LEASE,
    "LeaseIdMissing": _LEASE,
    "PendingCopyOperation": "end the copy that another program makes to this blob",
    "BlobArchived": _ARCHIVED,
    "BlobBeingRehydrated": _ARCHIVED,
    "InvalidBlobType": "delete the blob: it is of another type than files are",
    "ResourceTypeMismatch": "see what lies there: a directory, perhaps, or a file in a directory's place",
    "SnapshotsPresent": "delete the blob's snapshots: without that nobody can delete it",
}
_BY_STATUS: Final = {
    HTTPStatus.NOT_MODIFIED: Kind.MOVED,
    HTTPStatus.UNAUTHORIZED: Kind.UNKNOWN,
    HTTPStatus.FORBIDDEN: Kind.DENIED,
    HTTPStatus.NOT_FOUND: Kind.NO_PLACE,
    HTTPStatus.REQUEST_TIMEOUT: Kind.UNANSWERED,
    # Another program is at work on the blob or the account, whichever of dozens of codes says so.
    HTTPStatus.CONFLICT: Kind.TOO_OFTEN,
    HTTPStatus.PRECONDITION_FAILED: Kind.MOVED,
    HTTPStatus.TOO_MANY_REQUESTS: Kind.THROTTLED,
    HTTPStatus.NOT_IMPLEMENTED: Kind.INCAPABLE,
}
_WAIT: Final = "wait until what else is done to this blob has ended; the code is in Azure's documentation"
_CODE: Final = "x-ms-error-code"
_SHAPE: Final = re.compile(r"[A-Za-z0-9]{1,64}")


def refused(error: AzureError) -> Refused:
    """Why a request came to nothing."""
    response = error.response if isinstance(error, HttpResponseError) else None
    if response is None and isinstance(error, ClientAuthenticationError):
        # It was not sent: there was nothing to sign it with.
        return Refused(Kind.UNKNOWN, "an account key that makes no sense", "copy it from the account's page")
    if not isinstance(response, Answer) or response.status_code < HTTPStatus.MULTIPLE_CHOICES:
        return nonsense(error)
    status, code = response.status_code, response.headers.get(_CODE, "")
    code = code if _SHAPE.fullmatch(code) else ""
    kind = _KINDS.get(code) or _kind_of(status)
    found = f"status {status}, {code or 'without an error of Blob Storage'}"
    remedy = _REMEDIES.get(code) or (_WAIT if kind is Kind.TOO_OFTEN else "")
    return Refused(kind, found, remedy, _seconds(response.headers.get("Retry-After")))


def nonsense(error: Exception) -> Refused:
    """What is said of an answer that the SDK can't read."""
    return Refused(Kind.UNANSWERED, f"an answer that makes no sense ({type(error).__name__})")


def is_beyond(error: AzureError) -> bool:
    """Whether a part was asked for that begins behind the end: any part of an empty blob does."""
    status = error.status_code if isinstance(error, HttpResponseError) else None
    return status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE


def _kind_of(status: int) -> Kind:
    if status in _BY_STATUS:
        return _BY_STATUS[HTTPStatus(status)]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Kind.UNANSWERED
    # Less is a redirect to who knows where.
    return Kind.REJECTED if status >= HTTPStatus.BAD_REQUEST else Kind.NO_PLACE


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isdecimal() else None
