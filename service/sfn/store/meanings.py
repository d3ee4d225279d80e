"""What an object store's refusal means for the work at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sfn.errors import DeniedHere, Permanent, Scope, Transient, Unaccepted
from sfn.store.objects import Kind


@dataclass(frozen=True, slots=True)
class Meaning:
    """What to do next (`error`), whose budget it spends, and the two halves of the message.

    Attributes:
        expected: `{}` stands for what was to be done.
        remedy: where the service's answer tells no better one.
    """

    error: type[Transient | Permanent]
    scope: Scope
    expected: str
    remedy: str = ""


_VANISHED = Meaning(Transient, Scope.TABLE, "an object that stays where it is")

MEANINGS: Final[Mapping[Kind, Meaning]] = {
    Kind.MISSING: _VANISHED,
    Kind.MOVED: _VANISHED,
    Kind.DENIED: Meaning(DeniedHere, Scope.TABLE, "permission to {} here", "grant it to the service's principal"),
    Kind.UNKNOWN: Meaning(Unaccepted, Scope.STORE, "credentials that the store accepts", "renew them"),
    Kind.NO_PLACE: Meaning(
        Permanent, Scope.STORE, "a bucket or container of that name", "create it, or correct `[stores.NAME]`"
    ),
    Kind.NO_ADDRESS: Meaning(Permanent, Scope.STORE, "settings that tell where the store is"),
    Kind.THROTTLED: Meaning(Transient, Scope.STORE, "a store with room for this request"),
    Kind.TOO_OFTEN: Meaning(
        Transient, Scope.TABLE, "an object that may be written again", "raise `min_publish_interval`"
    ),
    Kind.UNHEARD: Meaning(
        Transient, Scope.STORE, "a connection to the store", "see whether it can be reached from here"
    ),
    Kind.UNANSWERED: Meaning(Transient, Scope.STORE, "an answer of the store", "see whether it is in trouble"),
    Kind.TAGLESS: Meaning(
        Transient,
        Scope.STORE,
        "an answer with the tag of the object",
        "let the proxies before the store pass the header ETag on, or use another store",
    ),
    Kind.INCAPABLE: Meaning(Permanent, Scope.STORE, "a store that knows conditional writes", "use another store"),
    Kind.UNFIT: Meaning(Permanent, Scope.TABLE, "a request that the store can carry out"),
    Kind.REJECTED: Meaning(Permanent, Scope.TABLE, "a request that the store can carry out"),
}
"""Of each kind. What is denied or rejected may be the whole store's trouble: see `sfn.store.denials`."""
