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
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias, assert_never

from sfn.domain.events import Notification
from sfn.errors import Rejected
from sfn.formats import polaris
from sfn.formats.event import EventRequest, Headers, Sender
from sfn.http.responses import EventsResponse, ResponseFormat

# ── Signatures

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
    """Return the names of the headers that a signature takes."""
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
    """Return the name of the key that signed, None for none of them; the time it takes tells nothing of which and how nearly.

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
    """Return the headers that sign a body.

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
    """Return the digest in one signature; None for another version, and for what is no base64 of one."""
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


# ── Parts covered by a signature

_SEPARATOR: Final = "\x1f"
"""Between a message's id and the number of an event in it: no id that arrives holds a control character."""
_CONTENT_TYPE: Final = b"content-type"


def trusted_catalogs(sender: Sender, event_only: Collection[str]) -> str:
    """Our names of the catalogs of which a sender is believed what it tells, with commas between; empty for none."""
    return ", ".join(sorted(set(sender.catalogs.values()).intersection(event_only)))


def signed_parts(request: EventRequest, event_only: Collection[str]) -> EventRequest:
    """Return a signed request without what its signature does not cover, where what is told is believed.

    Elsewhere its path and its headers may say which table is meant: the catalog is asked, whoever changed them.

    Args:
        request: what arrived.
        event_only: our names of catalogs that nobody can ask.

    Raises:
        Rejected: 400, the path alone would say which table it is.
    """
    catalogs = trusted_catalogs(request.sender, event_only)
    if not catalogs:
        return request
    if polaris.parse_notification_path(request.path) is not None:
        raise Rejected(
            "path",
            status=400,
            expected=f"a sender that shows a token, as what is told of {catalogs} is believed",
            found="a signature, which does not cover the path",
        )
    return request._replace(headers=[(name, value) for name, value in request.headers if name == _CONTENT_TYPE])


def with_message_id(notifications: Sequence[Notification], message: str | None) -> Sequence[Notification]:
    """Return the hints of a message; what has no id of its own has that of the message: so the inbox knows a replay.

    Args:
        notifications: all of them, whether they matter or not.
        message: its id; None where it has none.
    """
    if message is None:
        return notifications
    return [
        replace(notification, event_id=f"{message}{_SEPARATOR}{index}")
        if notification.event_id is None
        else notification
        for index, notification in enumerate(notifications)
    ]


# ── Webhook handshake

ALLOW_HEADER: Final = (b"allow", b"POST, OPTIONS")
ORIGIN_HEADER: Final = "WebHook-Request-Origin"
MAX_ORIGIN: Final = 255
"""Characters of an origin: those of a name in the DNS."""
ORIGIN_PATTERN: Final = rf"[\x21-\x2b\x2d-\x7e]{{1,{MAX_ORIGIN}}}"
"""Of an origin: without a comma, which would make two of it."""

_FIELD: Final = ORIGIN_HEADER.lower().encode()
_ORIGIN: Final = re.compile(ORIGIN_PATTERN.encode())


def answer_handshake(response_format: ResponseFormat, headers: Headers, rate: int | None) -> EventsResponse:
    """What is answered to `OPTIONS`.

    Args:
        response_format: says what is wrong.
        headers: of the request.
        rate: most requests a minute; None for any number.
    """
    origins = [value.strip(b" \t") for name, value in headers if name == _FIELD]
    if not origins:
        return EventsResponse(204, b"", [ALLOW_HEADER])
    if len(origins) > 1 or _ORIGIN.fullmatch(origins[0]) is None:
        return response_format.error(
            400,
            f"{ORIGIN_HEADER}: expected one origin of at most {MAX_ORIGIN} visible ASCII characters",
            [ALLOW_HEADER],
        )
    allowed = b"*" if rate is None else b"%d" % rate
    granted = [(b"webhook-allowed-origin", origins[0]), (b"webhook-allowed-rate", allowed), ALLOW_HEADER]
    return EventsResponse(200, b"", [*granted, (b"content-length", b"0")])
