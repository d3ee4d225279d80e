"""Signed requests: a sender proves that it has the secret with an HMAC over the bytes of the body.

    standard-webhooks   webhook-id, webhook-timestamp, webhook-signature: v1,<base64> …    of `{id}.{timestamp}.{body}`
    hmac-sha256         one header with a configured name: sha256=<hex>                    of the body only

`parse_signature` checks the headers first, without a secret, so most invalid requests are rejected before their body is
read. `verify_signature` then checks the body.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from sfn.domain.events import Notification
from sfn.errors import Rejected
from sfn.formats import polaris
from sfn.formats.event import EventRequest, Headers, Sender
from sfn.http.responses import EventsResponse, ResponseFormat

TOLERANCE: Final = 300
"""Most seconds between a timestamp and the present, in both directions."""
MAX_SIGNATURES: Final = 16
"""Most signatures of one request, of all versions. While secrets are rotated a request has several."""
MAX_ID: Final = 256
"""Most characters of a message's id."""

ID_HEADER: Final = b"webhook-id"
TIMESTAMP_HEADER: Final = b"webhook-timestamp"
SIGNATURE_HEADER: Final = b"webhook-signature"

_VERSION: Final = b"v1,"
_PREFIX: Final = b"sha256="
# A full stop is not allowed: it separates the id from the timestamp in the signed text, which would be ambiguous.
_MESSAGE: Final = re.compile(rb"[\x21-\x2d\x2f-\x7e]{1,%d}" % MAX_ID)
_SECONDS: Final = re.compile(rb"[0-9]{1,12}")
_MILLISECONDS: Final = re.compile(rb"[0-9]{13}")
_HEX: Final = re.compile(rb"[0-9a-f]{64}")
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]{43}=")


@dataclass(frozen=True, slots=True)
class StandardWebhooks:
    """The scheme of https://www.standardwebhooks.com: several signatures, and a time and an id against replays."""


@dataclass(frozen=True, slots=True)
class HmacSha256:
    """The scheme of GitHub, and of others with another header: one signature, and no protection against replays.

    Attributes:
        header: name of the header, in lower case.
    """

    header: bytes


SignatureScheme: TypeAlias = StandardWebhooks | HmacSha256
HeaderPairs: TypeAlias = Iterable[tuple[bytes, bytes]]
"""Headers of ASGI: names in lower case, and values."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A signing secret. It is stored in plain form, because a digest could not verify a signature.

    Attributes:
        name: name for logs.
        secret: key of the HMAC.
    """

    name: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SignatureClaim:
    """A well-formed signature from a request's headers, not yet verified.

    Attributes:
        signed_prefix: bytes that are signed before the body.
        digests: candidates; one must be the HMAC.
        message_id: id of the message; None if the scheme has none.
    """

    signed_prefix: bytes
    digests: tuple[bytes, ...]
    message_id: str | None = None


def signature_headers(scheme: SignatureScheme) -> tuple[bytes, ...]:
    """Return the names of the headers of a signature."""
    match scheme:
        case StandardWebhooks():
            return ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER
        case HmacSha256(header):
            return (header,)
        case _:
            assert_never(scheme)


@dataclass(frozen=True, slots=True)
class InvalidSignature:
    """Headers that are no signature.

    Attributes:
        reason: what is wrong, for operators, without any text of the request.
    """

    reason: str


def parse_signature(scheme: SignatureScheme, headers: HeaderPairs, now: datetime) -> SignatureClaim | InvalidSignature:
    """Return the signature in a request's headers.

    Returns:
        The signature. It is invalid if a header is missing or malformed, or the timestamp is not within `TOLERANCE`;
        also if a header occurs twice, because it is unknown which of the two was signed.
    """
    wanted = signature_headers(scheme)
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in wanted:
            if name in found:
                return InvalidSignature(f"the header {name.decode()} occurs twice")
            found[name] = value.strip(b" \t")
    if missing := [name.decode() for name in wanted if name not in found]:
        return InvalidSignature(f"no header {' and no header '.join(missing)}")
    match scheme:
        case StandardWebhooks():
            return _parse_webhook(found[ID_HEADER], found[TIMESTAMP_HEADER], found[SIGNATURE_HEADER], now)
        case HmacSha256(header):
            # Hexadecimal digits may be in upper or lower case.
            text = found[header].lower()
            digest = text.removeprefix(_PREFIX)
            is_valid = text.startswith(_PREFIX) and _HEX.fullmatch(digest) is not None
            if not is_valid:
                return InvalidSignature(f"the header {header.decode()} is not sha256= and 64 hexadecimal digits")
            return SignatureClaim(b"", (bytes.fromhex(digest.decode()),))
        case _:
            assert_never(scheme)


def verify_signature(claim: SignatureClaim, body: bytes, keys: Sequence[SigningKey]) -> str | None:
    """Return the name of the key that signed a body; None for no key.

    Each digest is compared with each key's digest in constant time, so the duration reveals nothing about the match.

    Args:
        claim: signature from the headers.
        body: bytes of the body, as they arrived.
        keys: active keys of the sender.
    """
    found: str | None = None
    for key in keys:
        expected = _digest(key.secret, claim.signed_prefix, body)
        matches = [hmac.compare_digest(expected, digest) for digest in claim.digests]
        if any(matches) and found is None:
            found = key.name
    return found


def sign(scheme: SignatureScheme, secret: bytes, body: bytes, message: str, now: datetime) -> dict[str, str]:
    """Return the headers that sign a body.

    Args:
        scheme: signature scheme.
        secret: key of the HMAC.
        body: bytes of the body, as they will be sent.
        message: id of the message, the same for each retry; unused by `HmacSha256`.
        now: present time.
    """
    values: tuple[str, ...]
    match scheme:
        case StandardWebhooks():
            timestamp = str(int(now.timestamp()))
            digest = b64encode(_digest(secret, f"{message}.{timestamp}.".encode(), body))
            values = (message, timestamp, f"{_VERSION.decode()}{digest.decode()}")
        case HmacSha256():
            values = (f"{_PREFIX.decode()}{_digest(secret, b'', body).hex()}",)
        case _:
            assert_never(scheme)
    return {name.decode(): value for name, value in zip(signature_headers(scheme), values, strict=True)}


def _parse_webhook(
    message: bytes, timestamp: bytes, signatures: bytes, now: datetime
) -> SignatureClaim | InvalidSignature:
    if _MESSAGE.fullmatch(message) is None:
        return InvalidSignature(f"webhook-id is not 1 to {MAX_ID} visible characters without a full stop")
    if _SECONDS.fullmatch(timestamp) is None:
        found = "in milliseconds, not seconds" if _MILLISECONDS.fullmatch(timestamp) else "not a number of seconds"
        return InvalidSignature(f"webhook-timestamp is {found}")
    ahead = int(timestamp) - int(now.timestamp())
    if abs(ahead) > TOLERANCE:
        side = "ahead of" if ahead > 0 else "behind"
        return InvalidSignature(f"webhook-timestamp is {abs(ahead):,} seconds {side} the listener's clock")
    parts = [part for part in signatures.split(b" ") if part]
    if len(parts) > MAX_SIGNATURES:
        return InvalidSignature(f"webhook-signature has more than {MAX_SIGNATURES} signatures")
    digests = tuple(digest for part in parts if (digest := _digest_of_version_1(part)) is not None)
    if not digests:
        return InvalidSignature("webhook-signature has no well-formed signature of version v1")
    return SignatureClaim(b"%b.%b." % (message, timestamp), digests, message.decode())


def _digest_of_version_1(part: bytes) -> bytes | None:
    """Return the digest in one signature; None for another version or invalid base64."""
    text = part.removeprefix(_VERSION)
    if not part.startswith(_VERSION) or _BASE64.fullmatch(text) is None:
        return None
    digest = b64decode(text)
    # The last base64 character has unused bits, so only the canonical base64 of a digest is accepted.
    return digest if b64encode(digest) == text else None


def _digest(secret: bytes, prefix: bytes, body: bytes) -> bytes:
    # The body may be large, so it is not copied behind the prefix.
    mac = hmac.new(secret, prefix, "sha256")
    mac.update(body)
    return mac.digest()


_SEPARATOR: Final = "\x1f"
"""Separator between the id of a message and the index of an event in it. Ids of messages have no control characters."""
_CONTENT_TYPE: Final = b"content-type"


def trusted_catalogs(sender: Sender, event_only: Collection[str]) -> str:
    """Return the names of the sender's event-only catalogs, joined by commas; "" for none.

    The sender's events are the source of truth for these catalogs.
    """
    return ", ".join(sorted(set(sender.catalogs.values()).intersection(event_only)))


def signed_parts(request: EventRequest, event_only: Collection[str]) -> EventRequest:
    """Return a signed request without its unsigned parts, if the sender has an event-only catalog.

    For other catalogs the path and the headers may name the table: the catalog is queried, so a forged name does no
    harm.

    Args:
        request: the request.
        event_only: names of the event-only catalogs.

    Raises:
        Rejected: 400; only the path, which is not signed, names the table.
    """
    catalogs = trusted_catalogs(request.sender, event_only)
    if not catalogs:
        return request
    if polaris.parse_notification_path(request.path) is not None:
        raise Rejected(
            "path",
            status=400,
            expected=f"a sender with a token, because the catalogs {catalogs} are event-only",
            found="a signature, which does not cover the path",
        )
    content_type = [(name, value) for name, value in request.headers if name == _CONTENT_TYPE]
    return msgspec.structs.replace(request, headers=content_type)


def with_message_id(notifications: Sequence[Notification], message: str | None) -> Sequence[Notification]:
    """Return the notifications of a message with event ids, so that the inbox recognises a replayed message.

    Args:
        notifications: all notifications of the message, relevant or not. Those without an id get one from the message.
        message: id of the message; None for none.
    """
    if message is None:
        return notifications
    return [
        replace(notification, event_id=f"{message}{_SEPARATOR}{index}")
        if notification.event_id is None
        else notification
        for index, notification in enumerate(notifications)
    ]


ALLOW_HEADER: Final = (b"allow", b"POST, OPTIONS")
ORIGIN_HEADER: Final = "WebHook-Request-Origin"
MAX_ORIGIN: Final = 255
"""Most characters of an origin, as of a DNS name."""
ORIGIN_PATTERN: Final = rf"[\x21-\x2b\x2d-\x7e]{{1,{MAX_ORIGIN}}}"
"""Pattern of an origin. It has no comma, which would separate two origins."""

_FIELD: Final = ORIGIN_HEADER.lower().encode()
_ORIGIN: Final = re.compile(ORIGIN_PATTERN.encode())


def answer_handshake(response_format: ResponseFormat, headers: Headers, rate: int | None) -> EventsResponse:
    """Return the response to an `OPTIONS` request (CloudEvents, HTTP 1.1 Web Hooks, section 4).

    Args:
        response_format: format of an error.
        headers: headers of the request.
        rate: most requests per minute; None for any number.
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
