"""What an object store's refusal means for the work at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sfn.errors import ErrorScope, ForbiddenForTable, Permanent, Transient, Unauthenticated
from sfn.store.objects import ErrorKind


@dataclass(frozen=True, slots=True)
class ErrorMeaning:
    """What to do next (`error`), whose budget it spends, and the two halves of the message.

    Attributes:
        expected: `{}` stands for what was to be done.
        remedy: where the service's answer tells no better one.
    """

    error: type[Transient | Permanent]
    scope: ErrorScope
    expected: str
    remedy: str = ""


_VANISHED = ErrorMeaning(Transient, ErrorScope.TABLE, "an object that stays where it is")

ERROR_MAP: Final[Mapping[ErrorKind, ErrorMeaning]] = {
    ErrorKind.MISSING: _VANISHED,
    ErrorKind.PRECONDITION_FAILED: _VANISHED,
    ErrorKind.DENIED: ErrorMeaning(
        ForbiddenForTable, ErrorScope.TABLE, "permission to {} here", "grant it to the service's principal"
    ),
    ErrorKind.UNAUTHENTICATED: ErrorMeaning(
        Unauthenticated, ErrorScope.STORE, "credentials that the store accepts", "renew them"
    ),
    ErrorKind.NO_BUCKET: ErrorMeaning(
        Permanent, ErrorScope.STORE, "a bucket or container of that name", "create it, or correct `[stores.NAME]`"
    ),
    ErrorKind.NO_ENDPOINT: ErrorMeaning(Permanent, ErrorScope.STORE, "settings that tell where the store is"),
    ErrorKind.THROTTLED: ErrorMeaning(Transient, ErrorScope.STORE, "a store with room for this request"),
    ErrorKind.CHANGED_TOO_OFTEN: ErrorMeaning(
        Transient, ErrorScope.TABLE, "an object that may be written again", "raise `min_publish_interval`"
    ),
    ErrorKind.UNREACHABLE: ErrorMeaning(
        Transient, ErrorScope.STORE, "a connection to the store", "see whether it can be reached from here"
    ),
    ErrorKind.NO_ANSWER: ErrorMeaning(
        Transient, ErrorScope.STORE, "an answer of the store", "see whether it is in trouble"
    ),
    ErrorKind.NO_ETAG: ErrorMeaning(
        Transient,
        ErrorScope.STORE,
        "an answer with the tag of the object",
        "let the proxies before the store pass the header ETag on, or use another store",
    ),
    ErrorKind.UNSUPPORTED: ErrorMeaning(
        Permanent, ErrorScope.STORE, "a store that knows conditional writes", "use another store"
    ),
    ErrorKind.INVALID_OBJECT: ErrorMeaning(Permanent, ErrorScope.TABLE, "a request that the store can carry out"),
    ErrorKind.REJECTED: ErrorMeaning(Permanent, ErrorScope.TABLE, "a request that the store can carry out"),
}
"""Of each kind. What is denied or rejected may be the whole store's trouble: see `sfn.store.denials`."""
