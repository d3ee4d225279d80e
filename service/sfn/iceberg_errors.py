"""Errors as clients of an Iceberg catalog know them (Iceberg's REST specification, "IcebergErrorResponse")."""

from __future__ import annotations

from typing import Final

import msgspec

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
"""By status: the examples of Iceberg's REST specification where it has one, else the names that Polaris answers with,
which are those of Iceberg's and Jakarta's exceptions."""


def iceberg_error_body(status: int, message: str, kind: str | None = None) -> bytes:
    """The body of an error.

    Args:
        status: HTTP status code, one of `REPORT_TYPES`.
        message: what is wrong, for people.
        kind: the exception that a client makes of it; None for the one of the status.
    """
    return msgspec.json.encode(
        {"error": {"message": message, "type": kind or ICEBERG_ERROR_TYPES[status], "code": status}}
    )
