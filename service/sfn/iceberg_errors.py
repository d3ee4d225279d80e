"""Error bodies as clients of an Iceberg REST catalog read them."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec


class IcebergErrorModel(msgspec.Struct, frozen=True):
    """An error as a client of an Iceberg REST catalog reads it."""

    message: str
    type: str
    code: Annotated[int, msgspec.Meta(ge=400, le=600)]


class IcebergErrorResponse(msgspec.Struct, frozen=True):
    """The body of an error response."""

    error: IcebergErrorModel


ICEBERG_ERROR_MEDIA_TYPE: Final = b"application/json"

ICEBERG_ERROR_TYPES: Final = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NotFoundException",
    405: "NotAllowedException",
    408: "ClientErrorException",
    413: "ClientErrorException",
    415: "NotSupportedException",
    429: "ClientErrorException",
    500: "InternalServerError",
    502: "ServiceFailureException",
    503: "ServiceUnavailableException",
    504: "ServiceFailureException",
}
"""Types by status: the examples of Iceberg's REST specification, else the names of Polaris, which are those of
Iceberg's and Jakarta's exceptions."""


def iceberg_error_body(status: int, message: str, kind: str | None = None) -> bytes:
    """Return the body of an error.

    Args:
        status: HTTP status code, one of `ICEBERG_ERROR_TYPES`.
        message: the message for people.
        kind: the exception that a client raises; None for the default of the status.
    """
    return msgspec.json.encode(
        IcebergErrorResponse(IcebergErrorModel(message, kind or ICEBERG_ERROR_TYPES[status], status))
    )
