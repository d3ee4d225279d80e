"""Signed requests: who has the secret shows it by an HMAC over the very bytes of the body.

    standard-webhooks   webhook-id, webhook-timestamp, webhook-signature: v1,<base64> …    of `{id}.{timestamp}.{body}`
    hmac-sha256         one header, of whatever name: sha256=<hex>                         of the body alone

What is said in the head is read first, without a secret: most of what is wrong costs no look at a body. The clock is an
argument, and nothing of a body is looked at but its bytes.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias, assert_never

TOLERANCE: Final = 300
"""Seconds that a timestamp may be off, either way."""
MAX_SIGNATURES: Final = 16
"""Most signatures of one request, of all versions: a few while secrets are rotated."""
MAX_ID: Final = 256
"""Most characters of a message's id."""

ID_HEADER: Final = b"webhook-id"
TIMESTAMP_HEADER: Final = b"webhook-timestamp"
SIGNATURE_HEADER: Final = b"webhook-signature"

_VERSION: Final = b"v1,"
_PREFIX: Final = b"sha256="
# No full stop: it ends the id in what is signed, which could else be read as that of another message.
_MESSAGE: Final = re.compile(rb"[\x21-\x2d\x2f-\x7e]{1,%d}" % MAX_ID)
_SECONDS: Final = re.compile(rb"[0-9]{1,12}")
_HEX: Final = re.compile(rb"[0-9a-f]{64}")
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]{43}=")


@dataclass(frozen=True, slots=True)
class StandardWebhooks:
    """As https://www.standardwebhooks.com has it: several signatures at once, and a time and an id against replays."""


@dataclass(frozen=True, slots=True)
class HmacSha256:
    """As GitHub does it, and others under a name of their own: one signature and nothing against replays.

    Attributes:
        header: its name, in lower case.
    """

    header: bytes


SignatureScheme: TypeAlias = StandardWebhooks | HmacSha256
"""How a sender signs."""
HeaderPairs: TypeAlias = Iterable[tuple[bytes, bytes]]
"""As ASGI gives them: names in lower case."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A secret that signs. It is kept as it is: with a digest of it nothing could be verified.

    Attributes:
        name: which one it is, for logs.
        secret: the bytes that key the HMAC.
    """

    name: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SignatureClaim:
    """What a head says of its body, well-formed and not yet believed.

    Attributes:
        signed_prefix: what is signed in front of the body.
        digests: one of them is the HMAC.
        message_id: the id of what is sent; None where the manner has none.
    """

    signed_prefix: bytes
    digests: tuple[bytes, ...]
    message_id: str | None = None


def signature_headers(manner: SignatureScheme) -> tuple[bytes, ...]:
    """The names of the headers that a signature takes."""
    match manner:
        case StandardWebhooks():
            return ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER
        case HmacSha256(header):
            return (header,)
        case _:
            assert_never(manner)


def parse_signature(manner: SignatureScheme, headers: HeaderPairs, now: datetime) -> SignatureClaim | None:
    """What a head says; None where a header is missing, is there twice, or is malformed, or the time is another one.

    Two headers of one name are no answer to the question which of them was signed.
    """
    wanted = signature_headers(manner)
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in wanted:
            if name in found:
                return None
            found[name] = value.strip(b" \t")
    if len(found) < len(wanted):
        return None
    match manner:
        case StandardWebhooks():
            return _of_a_message(found[ID_HEADER], found[TIMESTAMP_HEADER], found[SIGNATURE_HEADER], now)
        case HmacSha256(header):
            # Hexadecimal digits come in both cases; no other text reads as the same signature.
            text = found[header].lower()
            digest = text.removeprefix(_PREFIX)
            is_one = text.startswith(_PREFIX) and _HEX.fullmatch(digest) is not None
            return SignatureClaim(b"", (bytes.fromhex(digest.decode()),)) if is_one else None
        case _:
            assert_never(manner)


def verify_signature(claim: SignatureClaim, body: bytes, keys: Sequence[SigningKey]) -> str | None:
    """The name of the key that signed, None for none of them; the time it takes tells nothing of which and how nearly.

    Every signature is compared with that of every key, each in constant time.

    Args:
        claim: what the head said.
        body: its bytes as they arrived.
        keys: all that are in force.
    """
    found: str | None = None
    for key in keys:
        expected = _digest(key.secret, claim.signed_prefix, body)
        matches = [hmac.compare_digest(expected, digest) for digest in claim.digests]
        if any(matches) and found is None:
            found = key.name
    return found


def sign(manner: SignatureScheme, secret: bytes, body: bytes, message: str, now: datetime) -> dict[str, str]:
    """The headers that sign a body.

    Args:
        manner: how.
        secret: what keys the HMAC.
        body: its bytes as they will be sent.
        message: its id, the same whenever it is sent again; of use where the manner has one.
        now: the present moment.
    """
    values: tuple[str, ...]
    match manner:
        case StandardWebhooks():
            at = str(int(now.timestamp()))
            digest = b64encode(_digest(secret, f"{message}.{at}.".encode(), body))
            values = (message, at, f"{_VERSION.decode()}{digest.decode()}")
        case HmacSha256():
            values = (f"{_PREFIX.decode()}{_digest(secret, b'', body).hex()}",)
        case _:
            assert_never(manner)
    return {name.decode(): value for name, value in zip(signature_headers(manner), values, strict=True)}


def _of_a_message(message: bytes, timestamp: bytes, signatures: bytes, now: datetime) -> SignatureClaim | None:
    if _MESSAGE.fullmatch(message) is None or _SECONDS.fullmatch(timestamp) is None:
        return None
    if abs(int(timestamp) - now.timestamp()) > TOLERANCE:
        return None
    parts = [part for part in signatures.split(b" ") if part]
    if len(parts) > MAX_SIGNATURES:
        return None
    digests = tuple(digest for part in parts if (digest := _of_version_1(part)) is not None)
    return SignatureClaim(b"%b.%b." % (message, timestamp), digests, message.decode()) if digests else None


def _of_version_1(part: bytes) -> bytes | None:
    """The digest in one signature; None for another version, and for what is no base64 of one."""
    text = part.removeprefix(_VERSION)
    if not part.startswith(_VERSION) or _BASE64.fullmatch(text) is None:
        return None
    digest = b64decode(text)
    # The last character has bits to spare: one digest has one spelling.
    return digest if b64encode(digest) == text else None


def _digest(secret: bytes, before: bytes, body: bytes) -> bytes:
    # What is signed may be large: it is not put together.
    mac = hmac.new(secret, before, "sha256")
    mac.update(body)
    return mac.digest()
