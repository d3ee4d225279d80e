"""Who may send events, and for which catalogs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from sfn.dialects import Sender
from sfn.receiver.tokens import Tokens, bearer, matching


@dataclass(frozen=True, slots=True)
class Known:
    """A configured sender.

    Attributes:
        sender: who it is.
        tokens: what it shows.
    """

    sender: Sender
    tokens: Tokens


class Senders:
    """All configured senders; without any, one that needs no token.

    Args:
        enrolled: the configured ones. Where two share a token, the first is meant.
        open_to: the sender that everybody is, where `enrolled` is empty.
    """

    def __init__(self, enrolled: Iterable[Known], open_to: Sender | None = None) -> None:
        self._enrolled = tuple(enrolled)
        self._open_to = None if self._enrolled else open_to

    def verify(self, authorization: bytes | None) -> Sender | None:
        """The sender behind an `Authorization` header, None for nobody.

        All active tokens of all senders are compared, each in constant time.
        """
        if self._open_to is not None:
            return self._open_to
        presented = bearer(authorization)
        if presented is None:
            return None
        digest, found = sha256(presented).digest(), None
        for one in self._enrolled:
            if matching(one.tokens.active(), digest) is not None and found is None:
                found = one.sender
        return found


def anonymous(catalogs: Iterable[str]) -> Senders:
    """Everybody who reaches the listener, bound to all catalogs under our own names of them.

    Only for a listener that is reached from this machine alone: the settings see to that.

    Args:
        catalogs: all configured ones.
    """
    return Senders((), Sender("anonymous", {catalog: catalog for catalog in catalogs}))
