"""How a refusal is told to clients of an Iceberg catalog."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from sfn.errors import (
    Ambiguous,
    Broken,
    CommitNotFound,
    Dropped,
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

ABSENT: Final = (CommitNotFound, Dropped, NameTaken, NotFound)
"""A reader finds no table where it was told to look."""


class Missing(Rejected):
    """What is asked for is not there.

    Args:
        kind: the exception that clients make of it.
    """

    def __init__(self, where: str, kind: str, *, expected: str, found: str = "none", remedy: str = "") -> None:
        super().__init__(where, status=HTTPStatus.NOT_FOUND, expected=expected, found=found, remedy=remedy)
        self.kind = kind


def told(error: SfnError) -> tuple[HTTPStatus, str | None]:
    """Status and, where the status alone does not say it, the exception that clients make of it.

    What is broken is answered with 500, which no client tries again; what may be over soon with 503, which all do.
    """
    match error:
        case Missing():
            return HTTPStatus.NOT_FOUND, error.kind
        case Rejected():
            return HTTPStatus(error.status), None
        case _ if isinstance(error, ABSENT):
            return HTTPStatus.NOT_FOUND, NO_TABLE
        case Unsafe():
            return HTTPStatus.FORBIDDEN, None
        case Ambiguous():
            return HTTPStatus.BAD_REQUEST, None
        case NotInstalled() | NotPermitted():
            # It is the facade itself that may not read, and its operator who must know: no reader's token helps.
            return HTTPStatus.INTERNAL_SERVER_ERROR, None
        case Unreachable() | Transient() | Broken():
            return HTTPStatus.SERVICE_UNAVAILABLE, None
        case Unreadable() | SfnError():
            return HTTPStatus.INTERNAL_SERVER_ERROR, None
