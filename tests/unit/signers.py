"""Senders that sign, each in its manner, and what they sign."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from datetime import datetime

from sfn.formats.event import Sender
from sfn.http.secrets import AcceptedToken, AuthScheme, PartyTokens
from sfn.http.senders import Keyring, Senders
from sfn.http.signature import HmacSha256, SignatureScheme, StandardWebhooks, sign
from tests.unit.webhooks import AT, BODY, MESSAGE, SECRET

NAMES = ("etl", "spark", "polaris", "other")
SENDERS = {name: Sender(name, {name: "prod"}) for name in NAMES}
POLARIS = HmacSha256(b"x-polaris-signature-256")
TEXT = "a text of sixteen"
SECRETS = {
    "etl": SECRET,
    "spark": f"whsec_{b64encode(b'of twenty-four bytes: bb').decode()}",
    "polaris": TEXT,
    "other": f"{TEXT} and more",
}
SIGNING: dict[str, SignatureScheme] = {
    "etl": StandardWebhooks(),
    "spark": StandardWebhooks(),
    "polaris": POLARIS,
    "other": POLARIS,
}


@dataclass(slots=True)
class Stopped:
    """A clock that goes when it is told to."""

    at: datetime = AT

    def now(self) -> datetime:
        return self.at


def scheme_of(name: str) -> AuthScheme:
    return AuthScheme.STANDARD_WEBHOOKS if SIGNING[name] == StandardWebhooks() else AuthScheme.HMAC_SHA256


def tokens(name: str, **more: str) -> PartyTokens:
    return PartyTokens({"main": SECRETS[name], **more}, scheme=scheme_of(name))


def opened(keyring: Keyring | None = None, clock: Stopped | None = None, open_to: Sender | None = None) -> Senders:
    keyring = keyring or Keyring({name: tokens(name) for name in NAMES})
    return Senders(keyring, SENDERS, open_to, signing=SIGNING, clock=clock or Stopped())


def head(
    *names: str, secret: str | None = None, message: str = MESSAGE, at: datetime = AT
) -> list[tuple[bytes, bytes]]:
    """The headers of a body that these senders signed."""
    found: dict[bytes, bytes] = {}
    for name in names:
        key = AcceptedToken.from_secret("", secret or SECRETS[name], scheme_of(name)).key
        assert key is not None
        for field, value in sign(SIGNING[name], key, BODY, message, at).items():
            doubles = field == "webhook-signature" and found
            before = found.get(field.encode(), b"") + b" " if doubles else b""
            found[field.encode()] = before + value.encode()
    return [*found.items()]


async def whose(senders: Senders, headers: list[tuple[bytes, bytes]], authorization: bytes | None = None) -> str | None:
    who = senders.identify(authorization, headers)
    if isinstance(who, Sender) or who is None:
        return None if who is None else who.name
    proven = await senders.verify_signer(who, BODY)
    return None if proven is None else proven.sender.name
