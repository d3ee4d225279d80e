"""What tests sign with, and the one vector that all of Standard Webhooks' libraries are tested with."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime
from typing import Final

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

MESSAGE: Final = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT: Final = datetime.fromtimestamp(1614265330, tz=UTC)
BODY: Final = b'{"test": 2432232314}'
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - a published one
SIGNATURE: Final = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

STANDARD: Final = StandardWebhooks()
GITHUB: Final = HmacSha256(b"x-hub-signature-256")
KEY: Final = SigningKey("main", b64decode(SECRET.removeprefix("whsec_")))


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
    return parse_signature(manner, headers.items() if isinstance(headers, dict) else headers, now)
