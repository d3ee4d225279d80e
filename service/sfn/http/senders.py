"""Who may send events, how they show who they are, how often, and for which catalogs."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import structlog
from typing_extensions import override

from sfn.clock import Clock, SystemClock
from sfn.errors import FatalError
from sfn.formats.event import Headers, Sender
from sfn.http.body import RateLimit
from sfn.http.secrets import AcceptedToken, PartyTokens, bearer_token, index_of_presented
from sfn.http.signature import (
    SignatureClaim,
    SignatureScheme,
    SigningKey,
    parse_signature,
    signature_headers,
    verify_signature,
)
from sfn.telemetry.logs import RejectionLog

# ── Keyring

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
        FatalError: two parties have the same token now.
    """

    def __init__(self, parties: Mapping[str, PartyTokens]) -> None:
        self._parties = dict(parties)
        self._active = self._active_tokens()
        self._shared = self._sort()
        for places in self._shared.values():
            raise FatalError(" and ".join(places), expected=_EXPECTED, found="one and the same", remedy=_REMEDY)

    def owner_of(self, authorization: bytes | None) -> tuple[str, str] | None:
        """Return the party behind an `Authorization` header and the name of its token, None for nobody.

        All active tokens of all parties are compared, each in constant time.
        """
        self._refresh()
        index = index_of_presented((token for _, token in self._shown), bearer_token(authorization))
        if index is None:
            return None
        party, token = self._shown[index]
        return None if token.digest in self._shared else (party, token.name)

    def signing_keys(self, party: str) -> tuple[SigningKey, ...]:
        """Return the secrets that a party signs with, but for those that another one has too."""
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


# ── Senders

ANONYMOUS: Final = "anonymous"
"""The sender that everybody is while none is configured."""

_SYSTEM: Final = SystemClock()


@dataclass(frozen=True, slots=True)
class PossibleSigner:
    """A sender that may have signed a request.

    Attributes:
        party: what it is called in the keyring.
        claim: what the request's head says in its manner.
    """

    party: str
    claim: SignatureClaim


@dataclass(frozen=True, slots=True)
class VerifiedSigner:
    """Who signed a request.

    Attributes:
        sender: that is who.
        message_id: the id of what was sent; None where the sender's manner has none.
    """

    sender: Sender
    message_id: str | None


class Senders:
    """All configured senders; without any, one that needs no token.

    Args:
        keyring: whose each token is, and the secrets of those who sign.
        enrolled: those that show who they are, by the name of the party that they are in `keyring`.
        open_to: the sender that everybody is who shows nothing; where nobody is enrolled, whatever they show.
        signing: how those sign that do, by the same names.
        rates: most requests a minute, by the name of a sender.
        clock: says whether a signature is of now.
        monotonic: seconds that never run backwards.
    """

    def __init__(
        self,
        keyring: Keyring,
        enrolled: Mapping[str, Sender],
        open_to: Sender | None = None,
        *,
        signing: Mapping[str, SignatureScheme] | None = None,
        rates: Mapping[str, int] | None = None,
        clock: Clock = _SYSTEM,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keyring = keyring
        self._enrolled = dict(enrolled)
        self._open_to = open_to
        self._signing = dict(signing or {})
        self._fields = {field for manner in self._signing.values() for field in signature_headers(manner)}
        self._rates = {name: RateLimit(limit) for name, limit in (rates or {}).items()}
        self._clock, self._monotonic = clock, monotonic

    @property
    def are_configured(self) -> bool:
        """Return whether somebody said who they are."""
        return True

    @property
    def least_rate(self) -> int | None:
        """The smallest number of requests a minute that a sender may make; None for any number."""
        return min((rate.per_minute for rate in self._rates.values()), default=None)

    def is_open(self, sender: Sender) -> bool:
        """Return whether everybody may be that sender."""
        return sender is self._open_to

    def identify(self, authorization: bytes | None, headers: Headers) -> Sender | tuple[PossibleSigner, ...] | None:
        """Who it is by a request's head, or who it may be by its body; None for nobody, whatever the body.

        Args:
            authorization: the value of the header of that name.
            headers: all of them.
        """
        sender = self.identify_by_token(authorization)
        if sender is not None:
            return sender
        if self._signing and (signers := self._possible_signers(headers)):
            return signers
        # What is shown and is wrong is no oversight.
        shows = authorization is not None or any(name in self._fields for name, _ in headers)
        return None if shows else self._open_to

    def identify_by_token(self, authorization: bytes | None) -> Sender | None:
        """Return the sender behind an `Authorization` header, None for nobody."""
        if not self._enrolled:
            return self._open_to
        owner = self._keyring.owner_of(authorization)
        return None if owner is None else self._enrolled.get(owner[0])

    async def verify_signer(self, signers: Sequence[PossibleSigner], body: bytes) -> VerifiedSigner | None:
        """Return the one that signed a body; None for nobody, and for several.

        All are tried in the order of the configuration, whichever it is.

        Args:
            signers: who it may be.
            body: its bytes as they arrived.
        """
        found: list[VerifiedSigner] = []
        for index, one in enumerate(signers):
            if index:
                # To digest a large body takes as long as many requests: they need not wait for all of it.
                await asyncio.sleep(0)
            if verify_signature(one.claim, body, self._keyring.signing_keys(one.party)) is not None:
                found.append(VerifiedSigner(self._enrolled[one.party], one.claim.message_id))
        return found[0] if len(found) == 1 else None

    def seconds_to_wait(self, sender: Sender) -> float | None:
        """Return seconds until a sender may ask again; None: it may now, and that is counted."""
        rate = self._rates.get(sender.name)
        return None if rate is None else rate.seconds_to_wait(self._monotonic())

    def _possible_signers(self, headers: Headers) -> tuple[PossibleSigner, ...]:
        now = self._clock.now()
        claims = {manner: parse_signature(manner, headers, now) for manner in set(self._signing.values())}
        readable = ((party, claims[manner]) for party, manner in self._signing.items())
        return tuple(PossibleSigner(party, claim) for party, claim in readable if claim is not None)


class _AnonymousSenders(Senders):
    @property
    @override
    def are_configured(self) -> bool:
        return False


def anonymous_senders(catalogs: Iterable[str]) -> Senders:
    """Everybody who reaches the listener, bound to all catalogs under our own names of them.

    Only for a listener that is reached from this machine alone: the settings see to that.

    Args:
        catalogs: all configured ones.
    """
    return _AnonymousSenders(Keyring({}), {}, Sender(ANONYMOUS, {catalog: catalog for catalog in catalogs}))


# ── Operators

OPERATORS_PARTY: Final = "admin"
"""What the operators are called in a keyring: as their section in the settings."""


class OperatorAuth:
    """Tells operators by their token; who is none is logged.

    Args:
        keyring: whose each token is, theirs under the name `OPERATORS_PARTY`.
        refusals: told of who is turned away.
    """

    def __init__(self, keyring: Keyring, refusals: RejectionLog) -> None:
        self._keyring, self._refusals = keyring, refusals

    def authenticate(self, authorization: bytes | None, client: str | None) -> str | None:
        """Return the name of the token in an `Authorization` header, if it is an operator's; None for any other.

        Args:
            client: the address of who shows it, None where the server does not know it.
        """
        owner = self._keyring.owner_of(authorization)
        if owner is not None and owner[0] == OPERATORS_PARTY:
            return owner[1]
        self._refusals.log_rejected(HTTPStatus.UNAUTHORIZED, "an operator's token is needed", client)
        return None
