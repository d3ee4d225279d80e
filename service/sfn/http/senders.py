"""Identification of senders and operators by token or signature, and the rate limits of senders."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

import structlog
from typing_extensions import override

from sfn.clock import Clock, SystemClock
from sfn.errors import FatalError
from sfn.formats.event import Headers, Sender
from sfn.http.secrets import AcceptedToken, PartyTokens, bearer_token, index_of_presented
from sfn.http.signature import (
    InvalidSignature,
    SignatureClaim,
    SignatureScheme,
    SigningKey,
    parse_signature,
    signature_headers,
    verify_signature,
)
from sfn.limits import RateLimit
from sfn.telemetry.logs import RejectionLog

_EXPECTED = "different tokens for all senders and the operators"
_REMEDY = "give each sender and the operators tokens of their own"

_log = structlog.stdlib.get_logger(__name__)


class Keyring:
    """The active tokens and signing secrets of all parties.

    A token of two parties is rejected for both, because it does not identify one of them. Token files change, so each
    change is checked again, and a shared token is logged as an error. A signing secret is never accepted as a bearer
    token.

    Args:
        parties: tokens of each party, by its name in messages.

    Raises:
        FatalError: two parties have the same token now.
    """

    def __init__(self, parties: Mapping[str, PartyTokens]) -> None:
        self._parties = dict(parties)
        self._is_fixed = all(tokens.file is None for tokens in parties.values())
        self._active = self._active_tokens()
        self._shared = self._index_tokens()
        for places in self._shared.values():
            raise FatalError(" and ".join(places), expected=_EXPECTED, found="the same token", remedy=_REMEDY)

    def owner_of(self, authorization: bytes | None) -> tuple[str, str] | None:
        """Return the party of an `Authorization` header and the name of its token; None for no party.

        All active tokens of all parties are compared, each in constant time.
        """
        self._refresh()
        index = index_of_presented(self._bearer_tokens, bearer_token(authorization))
        if index is None:
            return None
        party, token = self._bearer[index]
        return None if token.digest in self._shared else (party, token.name)

    def digest_of(self, party: str, name: str) -> bytes | None:
        """Return the SHA-256 of a party's active bearer token by the name of the token; None without such a token."""
        self._refresh()
        found = (token.digest for owner, token in self._bearer if (owner, token.name) == (party, name))
        digest = next(found, None)
        return None if digest in self._shared else digest

    def signing_keys(self, party: str) -> tuple[SigningKey, ...]:
        """Return the signing secrets of a party, except those that another party has, too."""
        self._refresh()
        return self._signing.get(party, ())

    def _refresh(self) -> None:
        if self._is_fixed:
            return
        active = self._active_tokens()
        if active == self._active:
            return
        before, self._active = self._shared, active
        self._shared = self._index_tokens()
        for digest, places in self._shared.items():
            if before.get(digest) != places:
                _log.error("shared token rejected", places=places, remedy=_REMEDY)

    def _active_tokens(self) -> list[tuple[AcceptedToken, ...]]:
        return [tokens.active() for tokens in self._parties.values()]

    def _index_tokens(self) -> dict[bytes, list[str]]:
        """Separate bearer tokens from signing secrets; return the places of each shared one by digest."""
        active = zip(self._parties, self._active, strict=True)
        owned = [(party, token) for party, tokens in active for token in tokens]
        shared = _shared(owned)
        self._bearer = [(party, token) for party, token in owned if token.key is None]
        self._bearer_tokens = [token for _, token in self._bearer]
        signing: defaultdict[str, tuple[SigningKey, ...]] = defaultdict(tuple)
        for party, token in owned:
            if token.key is not None and token.digest not in shared:
                signing[party] += (SigningKey(token.name, token.key),)
        self._signing: Mapping[str, tuple[SigningKey, ...]] = signing
        return shared


def _shared(keys: Sequence[tuple[str, AcceptedToken]]) -> dict[bytes, list[str]]:
    """Return the places of each token that several parties have, by its digest."""
    owners: defaultdict[bytes, dict[str, str]] = defaultdict(dict)
    for party, token in keys:
        owners[token.digest].setdefault(party, f"{party} ({token.name})")
    return {digest: list(places.values()) for digest, places in owners.items() if len(places) > 1}


ANONYMOUS: Final = "anonymous"
"""Name of the sender of all events while no sender is configured."""

_SYSTEM: Final = SystemClock()


class PossibleSigner(NamedTuple):
    """A sender that may have signed a request.

    Attributes:
        party: its name in the keyring.
        claim: the signature in the request's headers, parsed with the sender's scheme.
    """

    party: str
    claim: SignatureClaim


class VerifiedSigner(NamedTuple):
    """The sender that signed a request.

    Attributes:
        sender: the sender.
        message_id: id of the message; None if the sender's scheme has none.
    """

    sender: Sender
    message_id: str | None


class Senders:
    """All configured senders.

    Args:
        keyring: tokens and signing secrets of all parties.
        enrolled: senders with a token or secret, by their party's name in `keyring`.
        open_to: sender of requests without credentials; if no sender is enrolled, of all requests.
        signing: signature schemes of the senders that sign, by party.
        rates: most requests per minute, by the name of a sender.
        clock: clock for the age of signatures.
        monotonic: monotonic clock in seconds.
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
        self._signature_headers = {name for scheme in self._signing.values() for name in signature_headers(scheme)}
        self._rates = {name: RateLimit(limit) for name, limit in (rates or {}).items()}
        self._clock, self._monotonic = clock, monotonic

    @property
    def are_configured(self) -> bool:
        """Return whether the settings configure a sender."""
        return True

    @property
    def least_rate(self) -> int | None:
        """The lowest rate limit of a sender, in requests per minute; None without a limit."""
        return min((rate.per_minute for rate in self._rates.values()), default=None)

    def is_open(self, sender: Sender) -> bool:
        """Return whether a client needs no credentials to be this sender."""
        return sender is self._open_to

    def identify(self, authorization: bytes | None, headers: Headers) -> Sender | tuple[PossibleSigner, ...] | None:
        """Return the sender by a request's headers, or the possible signers of its body; None for invalid credentials.

        Args:
            authorization: value of the `Authorization` header.
            headers: all headers.
        """
        sender = self.identify_by_token(authorization)
        if sender is not None:
            return sender
        if self._signing and (signers := self._possible_signers(headers)):
            return signers
        # A client with wrong credentials is not treated as one without credentials.
        has_credentials = authorization is not None or any(name in self._signature_headers for name, _ in headers)
        return None if has_credentials else self._open_to

    def identify_by_token(self, authorization: bytes | None) -> Sender | None:
        """Return the sender of an `Authorization` header; None for an invalid one."""
        if not self._enrolled:
            return self._open_to
        owner = self._keyring.owner_of(authorization)
        return None if owner is None else self._enrolled.get(owner[0])

    def explain_unidentified(self, authorization: bytes | None, headers: Headers) -> str:
        """Return why the headers identify no sender. It is for operators only, because it would help an attacker.

        Args:
            authorization: value of the `Authorization` header.
            headers: all headers.

        Returns:
            The reason, without any text of the request.
        """
        reasons = []
        if authorization is not None:
            reasons.append(self._explain_authorization(authorization))
        names = {name for name, _ in headers}
        for scheme in dict.fromkeys(self._signing.values()):
            # A request has the headers of the scheme that it was signed with, and often a part of them if it is wrong.
            if not names.isdisjoint(signature_headers(scheme)):
                found = parse_signature(scheme, headers, self._clock.now())
                reasons += [found.reason] if isinstance(found, InvalidSignature) else []
        return "; ".join(reasons) or "the request has no token and no signature"

    def _explain_authorization(self, authorization: bytes) -> str:
        if bearer_token(authorization) is None:
            return "the Authorization header has no bearer token, or occurs several times"
        if self._keyring.owner_of(authorization) is not None:
            return "the bearer token is an operator's"
        return "the bearer token is none of the active ones, or two parties have it"

    async def verify_signer(self, signers: Sequence[PossibleSigner], body: bytes) -> VerifiedSigner | None:
        """Return the sender that signed a body; None for no sender or several.

        All possible signers are tried, so that the duration does not depend on which one signed.

        Args:
            signers: possible signers.
            body: bytes of the body, as they arrived.
        """
        found: list[VerifiedSigner] = []
        for index, signer in enumerate(signers):
            if index:
                # The digest of a large body takes as long as many requests, so other requests get a turn in between.
                await asyncio.sleep(0)
            if verify_signature(signer.claim, body, self._keyring.signing_keys(signer.party)) is not None:
                found.append(VerifiedSigner(self._enrolled[signer.party], signer.claim.message_id))
        return found[0] if len(found) == 1 else None

    def seconds_to_wait(self, sender: Sender) -> float | None:
        """Return the seconds until a sender may send again; None if it may now, and count the request."""
        rate = self._rates.get(sender.name)
        return None if rate is None else rate.seconds_to_wait(self._monotonic())

    def describe_rate(self, sender: Sender) -> str:
        """Return the limit that a sender exceeds, for the answer."""
        rate = self._rates[sender.name]
        return f"expected at most {rate.per_minute} requests a minute, and at most {rate.burst} at once"

    def _possible_signers(self, headers: Headers) -> tuple[PossibleSigner, ...]:
        now = self._clock.now()
        claims = {scheme: parse_signature(scheme, headers, now) for scheme in set(self._signing.values())}
        candidates = ((party, claims[scheme]) for party, scheme in self._signing.items())
        return tuple(
            PossibleSigner(party, claim) for party, claim in candidates if not isinstance(claim, InvalidSignature)
        )


class _AnonymousSenders(Senders):
    @property
    @override
    def are_configured(self) -> bool:
        return False


def anonymous_senders(catalogs: Iterable[str]) -> Senders:
    """Return one sender for all clients, with all catalogs under their configured names.

    The settings allow it only for a listener that is reachable from this machine only.

    Args:
        catalogs: names of all configured catalogs.
    """
    return _AnonymousSenders(Keyring({}), {}, Sender(ANONYMOUS, {catalog: catalog for catalog in catalogs}))


OPERATORS_PARTY: Final = "admin"
"""The operators' name in a keyring, which is their section in the settings."""


class OperatorAuth:
    """Authentication of operators by token.

    Args:
        keyring: tokens of all parties; the operators are `OPERATORS_PARTY`.
        refusals: log of rejected requests.
    """

    def __init__(self, keyring: Keyring, refusals: RejectionLog) -> None:
        self._keyring, self._refusals = keyring, refusals

    def authenticate(self, authorization: bytes | None, client: str | None) -> str | None:
        """Return the name of the operator's token in an `Authorization` header; None for any other header.

        Args:
            authorization: value of the header.
            client: the client's address for the log; None if unknown.
        """
        owner = self._keyring.owner_of(authorization)
        if owner is not None and owner[0] == OPERATORS_PARTY:
            return owner[1]
        self._refusals.log_rejected(HTTPStatus.UNAUTHORIZED, "an operator's token is needed", client)
        return None

    def digest_of(self, name: str) -> bytes | None:
        """Return the SHA-256 of an active token by its name; None without such a token."""
        return self._keyring.digest_of(OPERATORS_PARTY, name)
