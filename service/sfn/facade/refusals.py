"""How a refusal is told to clients of an Iceberg catalog."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from sfn.errors import (
    Ambiguous,
    CommitNotFound,
    Dropped,
    FatalError,
    NameTaken,
    NotFound,
    NotInstalled,
    NotPermitted,
    Rejected,
    SfnError,
    Transient,
    Unreachable,
    Unreadable,
    Unsafe,
)

NO_TABLE: Final = "NoSuchTableException"
NO_NAMESPACE: Final = "NoSuchNamespaceException"
NO_VIEW: Final = "NoSuchViewException"

ABSENT_ERRORS: Final = (CommitNotFound, Dropped, NameTaken, NotFound)
"""A reader finds no table where it was told to look."""


class NotInCatalog(Rejected):
    """What is asked for is not there.

    Args:
        exception: the exception that clients make of it.
    """

    def __init__(self, where: str, exception: str, *, expected: str, found: str = "none", remedy: str = "") -> None:
        super().__init__(where, status=HTTPStatus.NOT_FOUND, expected=expected, found=found, remedy=remedy)
        self.exception = exception


def status_and_exception(error: SfnError) -> tuple[HTTPStatus, str | None]:
    """Status and, where the status alone does not say it, the exception that clients make of it.

    What is broken is answered with 500, which no client tries again; what may be over soon with 503, which all do.
    """
    match error:
        case NotInCatalog():
            return HTTPStatus.NOT_FOUND, error.exception
        case Rejected():
            return HTTPStatus(error.status), None
        case _ if isinstance(error, ABSENT_ERRORS):
            return HTTPStatus.NOT_FOUND, NO_TABLE
        case Unsafe():
            return HTTPStatus.FORBIDDEN, None
        case Ambiguous():
            return HTTPStatus.BAD_REQUEST, None
        case NotInstalled() | NotPermitted():
            # It is the facade itself that may not read, and its operator who must know: no reader's token helps.
            return HTTPStatus.INTERNAL_SERVER_ERROR, None
        case Unreachable() | Transient() | FatalError():
            return HTTPStatus.SERVICE_UNAVAILABLE, None
        case Unreadable() | SfnError():
            return HTTPStatus.INTERNAL_SERVER_ERROR, None
