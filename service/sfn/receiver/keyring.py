"""Whose a token or a secret is, among all who have one: the senders, the operators and who reads the metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import structlog

from sfn.errors import FatalError
from sfn.receiver.bearer import bearer_token
from sfn.receiver.signature import SigningKey
from sfn.receiver.tokens import AcceptedToken, PartyTokens, index_of_presented

_EXPECTED = "tokens of its own for each sender, and for the operators"
_REMEDY = "give each of them a token of its own"

_log = structlog.stdlib.get_logger(__name__)


class Keyring:
    """The active tokens of all parties, and the secrets of those who sign.

    A token that two parties have is nobody's for as long as both have it: who shows it may be either, and neither may
    speak for the other. Files of tokens change, so each change of one is looked at, and that is logged as an error.
    One that signs is never shown: who shows it is nobody.

    Args:
        parties: the tokens of each party, by its name in messages.

    Raises:
        Broken: two parties have the same token now.
    """

    def __init__(self, parties: Mapping[str, PartyTokens]) -> None:
        self._parties = dict(parties)
        self._active = self._active_tokens()
        self._shared = self._sort()
        for places in self._shared.values():
            raise FatalError(" and ".join(places), expected=_EXPECTED, found="one and the same", remedy=_REMEDY)

    def owner_of(self, authorization: bytes | None) -> tuple[str, str] | None:
        """The party behind an `Authorization` header and the name of its token, None for nobody.

        All active tokens of all parties are compared, each in constant time.
        """
        self._refresh()
        index = index_of_presented((token for _, token in self._shown), bearer_token(authorization))
        if index is None:
            return None
        party, token = self._shown[index]
        return None if token.digest in self._shared else (party, token.name)

    def signing_keys(self, party: str) -> tuple[SigningKey, ...]:
        """The secrets that a party signs with, but for those that another one has too."""
        self._refresh()
        return self._signing.get(party, ())

    def _refresh(self) -> None:
        active = self._active_tokens()
        if active == self._active:
            return
        before, self._active = self._shared, active
        self._shared = self._sort()
        for digest, places in self._shared.items():
            if before.get(digest) != places:
                _log.error("one token of two parties: refused", places=places, remedy=_REMEDY)

    def _active_tokens(self) -> list[tuple[AcceptedToken, ...]]:
        return [tokens.active() for tokens in self._parties.values()]

    def _sort(self) -> dict[bytes, list[str]]:
        """Tell the tokens that are shown from those that sign; which several parties have is returned."""
        active = zip(self._parties, self._active, strict=True)
        owned = [(party, token) for party, tokens in active for token in tokens]
        shared = _shared(owned)
        self._shown = [(party, token) for party, token in owned if token.key is None]
        signing: defaultdict[str, tuple[SigningKey, ...]] = defaultdict(tuple)
        for party, token in owned:
            if token.key is not None and token.digest not in shared:
                signing[party] += (SigningKey(token.name, token.key),)
        self._signing: Mapping[str, tuple[SigningKey, ...]] = signing
        return shared


def _shared(keys: Sequence[tuple[str, AcceptedToken]]) -> dict[bytes, list[str]]:
    """By the digest of each token that several parties have: where they have it."""
    owners: defaultdict[bytes, dict[str, str]] = defaultdict(dict)
    for party, token in keys:
        owners[token.digest].setdefault(party, f"{party} ({token.name})")
    return {digest: list(places.values()) for digest, places in owners.items() if len(places) > 1}
