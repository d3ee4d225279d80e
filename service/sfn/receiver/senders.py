"""Who may send events, how they show who they are, how often, and for which catalogs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from sfn.clock import Clock, SystemClock
from sfn.formats.event import Headers, Sender
from sfn.receiver.keyring import Keyring
from sfn.receiver.rate import RateLimit
from sfn.receiver.signature import SignatureClaim, SignatureScheme, parse_signature, signature_headers, verify_signature

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
        """Whether somebody said who they are."""
        return True

    @property
    def least_rate(self) -> int | None:
        """The smallest number of requests a minute that a sender may make; None for any number."""
        return min((rate.per_minute for rate in self._rates.values()), default=None)

    def is_open(self, sender: Sender) -> bool:
        """Whether everybody may be that sender."""
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
        """The sender behind an `Authorization` header, None for nobody."""
        if not self._enrolled:
            return self._open_to
        owner = self._keyring.owner_of(authorization)
        return None if owner is None else self._enrolled.get(owner[0])

    async def verify_signer(self, signers: Sequence[PossibleSigner], body: bytes) -> VerifiedSigner | None:
        """The one that signed a body; None for nobody, and for several.

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
        """Seconds until a sender may ask again; None: it may now, and that is counted."""
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
