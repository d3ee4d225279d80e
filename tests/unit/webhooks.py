"""What tests sign webhooks with, the vector that all libraries of Standard Webhooks share, and senders that sign."""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import Final

from sfn.formats.event import Sender
from sfn.http.secrets import AcceptedToken, AuthScheme, PartyTokens
from sfn.http.senders import Keyring, Senders
from sfn.http.signature import (
    HeaderPairs,
    HmacSha256,
    SignatureClaim,
    SignatureScheme,
    SigningKey,
    StandardWebhooks,
    parse_signature,
    sign,
    verify_signature,
)
from tests.support.clock import HandClock

MESSAGE: Final = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT: Final = datetime.fromtimestamp(1614265330, tz=UTC)
BODY: Final = b'{"test": 2432232314}'
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - a published one
SIGNATURE: Final = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

STANDARD: Final = StandardWebhooks()
GITHUB: Final = HmacSha256(b"x-hub-signature-256")
KEY: Final = SigningKey("main", b64decode(SECRET.removeprefix("whsec_")))

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


def head(
    manner: SignatureScheme = STANDARD, key: SigningKey = KEY, body: bytes = BODY, at: datetime = AT
) -> dict[bytes, bytes]:
    """The headers of a request that is signed as it should be."""
    said = sign(manner, key.secret, body, MESSAGE, at)
    return {name.encode(): value.encode() for name, value in said.items()}


def signer(
    headers: dict[bytes, bytes] | HeaderPairs,
    body: bytes = BODY,
    *keys: SigningKey,
    manner: SignatureScheme = STANDARD,
    now: datetime = AT,
) -> str | None:
    """Whose key signed; None for nobody's."""
    claim = claim_of(headers, manner, now)
    return None if claim is None else verify_signature(claim, body, keys or (KEY,))


def claim_of(
    headers: dict[bytes, bytes] | HeaderPairs, manner: SignatureScheme = STANDARD, now: datetime = AT
) -> SignatureClaim | None:
    found = parse_signature(manner, headers.items() if isinstance(headers, dict) else headers, now)
    return found if isinstance(found, SignatureClaim) else None


def scheme_of(name: str) -> AuthScheme:
    return AuthScheme.STANDARD_WEBHOOKS if SIGNING[name] == StandardWebhooks() else AuthScheme.HMAC_SHA256


def tokens(name: str, **more: str) -> PartyTokens:
    return PartyTokens({"main": SECRETS[name], **more}, scheme=scheme_of(name))


def opened(keyring: Keyring | None = None, clock: HandClock | None = None, open_to: Sender | None = None) -> Senders:
    keyring = keyring or Keyring({name: tokens(name) for name in NAMES})
    return Senders(keyring, SENDERS, open_to, signing=SIGNING, clock=clock or HandClock(AT))


def signed_head(
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
