"""What Blob Storage answers: its errors, as the SDK raises them, into our words.

Its codes: https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes, and beside it
`common-rest-api-error-codes`.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from sfn.store.azure.transport import AzureResponse
from sfn.store.objects import ErrorKind, RequestFailed

_KIND_BY_CODE: Final = {
    "BlobNotFound": ErrorKind.MISSING,
    "AccountIsDisabled": ErrorKind.NO_BUCKET,
    "ContainerBeingDeleted": ErrorKind.NO_BUCKET,
    "ContainerDisabled": ErrorKind.NO_BUCKET,
    "BlobAlreadyExists": ErrorKind.PRECONDITION_FAILED,
    "BlobImmutableDueToLegalHold": ErrorKind.DENIED,
    "BlobImmutableDueToPolicy": ErrorKind.DENIED,
    "PublicAccessNotPermitted": ErrorKind.DENIED,
    # What nobody in particular is told of a container that is not public.
    "ResourceNotFound": ErrorKind.DENIED,
    "AuthenticationFailed": ErrorKind.UNAUTHENTICATED,
    "InvalidAuthenticationInfo": ErrorKind.UNAUTHENTICATED,
    "KeyBasedAuthenticationNotPermitted": ErrorKind.UNAUTHENTICATED,
    "ServerBusy": ErrorKind.THROTTLED,
    "LeaseIdMismatchWithBlobOperation": ErrorKind.CHANGED_TOO_OFTEN,
    "LeaseIdMissing": ErrorKind.CHANGED_TOO_OFTEN,
    "BlobArchived": ErrorKind.INVALID_OBJECT,
    "BlobBeingRehydrated": ErrorKind.INVALID_OBJECT,
    "InvalidBlobType": ErrorKind.INVALID_OBJECT,
    "InvalidResourceName": ErrorKind.INVALID_OBJECT,
    "InvalidUri": ErrorKind.INVALID_OBJECT,
    "OutOfRangeInput": ErrorKind.INVALID_OBJECT,
    "RequestBodyTooLarge": ErrorKind.INVALID_OBJECT,
    "ResourceTypeMismatch": ErrorKind.INVALID_OBJECT,
    "SnapshotsPresent": ErrorKind.INVALID_OBJECT,
    "ConditionHeadersNotSupported": ErrorKind.UNSUPPORTED,
    "MultipleConditionHeadersNotSupported": ErrorKind.UNSUPPORTED,
    "UnsupportedHeader": ErrorKind.UNSUPPORTED,
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
_KIND_BY_STATUS: Final = {
    HTTPStatus.NOT_MODIFIED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.UNAUTHORIZED: ErrorKind.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: ErrorKind.DENIED,
    HTTPStatus.NOT_FOUND: ErrorKind.NO_BUCKET,
    HTTPStatus.REQUEST_TIMEOUT: ErrorKind.NO_ANSWER,
    # Another program is at work on the blob or the account, whichever of dozens of codes says so.
    HTTPStatus.CONFLICT: ErrorKind.CHANGED_TOO_OFTEN,
    HTTPStatus.PRECONDITION_FAILED: ErrorKind.PRECONDITION_FAILED,
    HTTPStatus.TOO_MANY_REQUESTS: ErrorKind.THROTTLED,
    HTTPStatus.NOT_IMPLEMENTED: ErrorKind.UNSUPPORTED,
}
_WAIT: Final = "wait until what else is done to this blob has ended; the code is in Azure's documentation"
_CODE_HEADER: Final = "x-ms-error-code"
_CODE_SHAPE: Final = re.compile(r"[A-Za-z0-9]{1,64}")


def failure_of(error: AzureError) -> RequestFailed:
    """Why a request came to nothing."""
    response = error.response if isinstance(error, HttpResponseError) else None
    if response is None and isinstance(error, ClientAuthenticationError):
        # It was not sent: there was nothing to sign it with.
        return RequestFailed(
            ErrorKind.UNAUTHENTICATED, "an account key that makes no sense", "copy it from the account's page"
        )
    if not isinstance(response, AzureResponse) or response.status_code < HTTPStatus.MULTIPLE_CHOICES:
        return failure_of_unreadable(error)
    status, code = response.status_code, response.headers.get(_CODE_HEADER, "")
    code = code if _CODE_SHAPE.fullmatch(code) else ""
    kind = _KIND_BY_CODE.get(code) or _kind_of(status)
    found = f"status {status}, {code or 'without an error of Blob Storage'}"
    remedy = _REMEDIES.get(code) or (_WAIT if kind is ErrorKind.CHANGED_TOO_OFTEN else "")
    return RequestFailed(kind, found, remedy, _seconds(response.headers.get("Retry-After")))


def failure_of_unreadable(error: Exception) -> RequestFailed:
    """What is said of an answer that the SDK can't read."""
    return RequestFailed(ErrorKind.NO_ANSWER, f"an answer that makes no sense ({type(error).__name__})")


def is_past_end(error: AzureError) -> bool:
    """Whether a part was asked for that begins behind the end: any part of an empty blob does."""
    status = error.status_code if isinstance(error, HttpResponseError) else None
    return status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE


def _kind_of(status: int) -> ErrorKind:
    if status in _KIND_BY_STATUS:
        return _KIND_BY_STATUS[HTTPStatus(status)]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ErrorKind.NO_ANSWER
    # Less is a redirect to who knows where.
    return ErrorKind.REJECTED if status >= HTTPStatus.BAD_REQUEST else ErrorKind.NO_BUCKET


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isdecimal() else None
