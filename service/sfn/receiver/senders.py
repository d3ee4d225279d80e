"""Who may send events, and for which catalogs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sfn.dialects import Sender
from sfn.receiver.keyring import Keyring


class Senders:
    """All configured senders; without any, one that needs no token.

    Args:
        keyring: whose each token is.
        enrolled: the configured ones, by the name of the party that they are in `keyring`.
        open_to: the sender that everybody is, where `enrolled` is empty.
    """

    def __init__(self, keyring: Keyring, enrolled: Mapping[str, Sender], open_to: Sender | None = None) -> None:
        self._keyring = keyring
        self._enrolled = dict(enrolled)
        self._open_to = None if self._enrolled else open_to

    @property
    def need_no_token(self) -> bool:
        """Whether everybody is the one sender."""
        return self._open_to is not None

    def verify(self, authorization: bytes | None) -> Sender | None:
        """The sender behind an `Authorization` header, None for nobody."""
        if self._open_to is not None:
            return self._open_to
        owner = self._keyring.whose(authorization)
        return None if owner is None else self._enrolled.get(owner[0])


def anonymous(catalogs: Iterable[str]) -> Senders:
    """Everybody who reaches the listener, bound to all catalogs under our own names of them.

    Only for a listener that is reached from this machine alone: the settings see to that.

    Args:
        catalogs: all configured ones.
    """
    return Senders(Keyring({}), {}, Sender("anonymous", {catalog: catalog for catalog in catalogs}))
