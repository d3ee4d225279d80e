"""Authentication of senders: schemes, the form of their secrets, token files, and signed requests.

The settings and the commands use this module, too. A sender signs a request with an HMAC over the bytes of its body,
and so proves that it has the secret:

    standard-webhooks   webhook-id, webhook-timestamp, webhook-signature: v1,<base64> …    of `{id}.{timestamp}.{body}`
    hmac-sha256         one header with a configured name: sha256=<hex>                    of the body only

`parse_signature` checks the headers first, without a secret, so most invalid requests are rejected before their body is
read. `verify_signature` then checks the body.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, NoReturn, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from sfn.concurrency import WatchedFiles, unreadable_file_error
from sfn.domain.events import Notification
from sfn.errors import FatalError, Rejected
from sfn.formats import polaris
from sfn.formats.event import EventRequest, Headers, Sender
from sfn.http.responses import EventsResponse, ResponseFormat

# ── Tokens and secrets

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")


def is_well_formed_token(text: str) -> bool:
    """Return whether a token can be sent in a header: visible ASCII, not empty."""
    return _VISIBLE.fullmatch(text) is not None


def bearer_token(authorization: bytes | None) -> bytes | None:
    """Return the token of an `Authorization: Bearer` header; None for any other value."""
    parts = authorization.split() if authorization is not None else ()
    return parts[1] if len(parts) == 2 and parts[0].lower() == b"bearer" else None  # noqa: PLR2004 - scheme and token


WEBHOOK_PREFIX: Final = "whsec_"
"""Prefix of a secret of Standard Webhooks."""

_MIN_BYTES, _MAX_BYTES = 24, 64
"""Bytes of a secret of Standard Webhooks."""
_MIN_TEXT, _MAX_TEXT = 16, 1_024
"""Characters of a secret for `hmac-sha256`."""
_MIN_DIFFERENT: Final = 5
"""Fewest different characters of a random secret."""
_MIN_STRONG: Final = 16
"""Fewest characters of a random secret that cannot be guessed."""

_FORMS: Final = {
    "bearer": "visible ASCII characters without spaces, and at least one",
    "standard-webhooks": f"{WEBHOOK_PREFIX} and the base64 of {_MIN_BYTES} to {_MAX_BYTES} random bytes, with padding",
    "hmac-sha256": f"a text of {_MIN_TEXT} to {_MAX_TEXT} printable characters, without spaces at its ends",
    "none": "no secret",
}


class AuthScheme(StrEnum):
    """The authentication schemes of senders."""

    BEARER = "bearer"
    STANDARD_WEBHOOKS = "standard-webhooks"
    HMAC_SHA256 = "hmac-sha256"
    NONE = "none"

    @property
    def word(self) -> str:
        """The word for a secret of this scheme: "token" or "secret"."""
        return "token" if self is AuthScheme.BEARER else "secret"

    @property
    def form(self) -> str:
        """A description of the form of a secret of this scheme."""
        return _FORMS[self]


def secret_bytes(scheme: AuthScheme, secret: str) -> bytes:
    """Return the bytes of a secret: a token as sent, or the key of an HMAC.

    Raises:
        ValueError: the secret does not have the form of this scheme. The message names the form, not the secret.
    """
    match scheme:
        case AuthScheme.BEARER:
            found = secret.encode() if is_well_formed_token(secret) else None
        case AuthScheme.STANDARD_WEBHOOKS:
            found = _decoded(secret)
        case AuthScheme.HMAC_SHA256:
            is_valid = _MIN_TEXT <= len(secret) <= _MAX_TEXT and secret.isprintable() and secret == secret.strip()
            found = secret.encode() if is_valid else None
        case AuthScheme.NONE:
            found = None
        case _:
            assert_never(scheme)
    if found is None:
        raise ValueError(scheme.form)
    return found


def describe_weakness(scheme: AuthScheme, secret: str) -> str:
    """Return why a secret is easy to guess, for a warning; "" if it may be random."""
    if len(secret) < _MIN_STRONG:
        return f"a {scheme.word} of fewer than {_MIN_STRONG} characters"
    if len(set(re.sub(f"^{WEBHOOK_PREFIX}|=+$", "", secret))) < _MIN_DIFFERENT:
        return f"a {scheme.word} of fewer than {_MIN_DIFFERENT} different characters"
    return ""


def _decoded(secret: str) -> bytes | None:
    text = secret.removeprefix(WEBHOOK_PREFIX)
    try:
        found = b64decode(text, validate=True)
    except (Error, ValueError):
        return None
    # Only the canonical base64 is accepted, because a secret of two senders is detected by its text.
    is_canonical = secret.startswith(WEBHOOK_PREFIX) and b64encode(found).decode() == text
    return found if is_canonical and _MIN_BYTES <= len(found) <= _MAX_BYTES else None


MAX_FILE: Final = 65_536
"""Most bytes of a token file."""


@dataclass(frozen=True, slots=True)
class AcceptedToken:
    """An accepted token or secret.

    Only the digest of a bearer token is stored, so that neither a memory dump nor its length reveals the token.

    Attributes:
        name: name for logs.
        digest: SHA-256 of the secret.
        key: key of a signing secret, which its verification needs; None for a bearer token.
    """

    name: str
    digest: bytes = field(repr=False)
    key: bytes | None = field(default=None, repr=False)

    @classmethod
    def from_secret(cls, name: str, secret: str, scheme: AuthScheme = AuthScheme.BEARER) -> AcceptedToken:
        """Return the token with this secret of the given scheme."""
        is_signing = scheme is not AuthScheme.BEARER
        return cls(name, sha256(secret.encode()).digest(), secret_bytes(scheme, secret) if is_signing else None)


class WatchedTokenFile:
    """The tokens of a file, one per line; empty lines and lines that begin with `#` are ignored.

    The file is read now and after each change. If a changed file is unreadable, empty or malformed, the old tokens stay
    active.

    Args:
        path: the file.
        scheme: scheme of the secrets.

    Raises:
        FatalError: the file can't be read now.
    """

    def __init__(self, path: Path, scheme: AuthScheme = AuthScheme.BEARER) -> None:
        self._content = WatchedFiles(f"{scheme.word}s", (path,), partial(_parse, path, scheme))

    def tokens(self) -> tuple[AcceptedToken, ...]:
        """Return the active tokens, without reading the file."""
        return self._content.current

    def reload_if_changed(self) -> None:
        """Read the file again if it changed. Blocks."""
        self._content.reload_if_changed()

    async def watch(self) -> NoReturn:
        """Read the file again after each change, for ever."""
        await self._content.watch()


class PartyTokens:
    """The active tokens of one party: a sender, or the operators.

    Args:
        named: secrets by name.
        file: file with further secrets.
        scheme: scheme of the named secrets.

    Attributes:
        file: the file, as given.
    """

    def __init__(
        self, named: Mapping[str, str], file: WatchedTokenFile | None = None, scheme: AuthScheme = AuthScheme.BEARER
    ) -> None:
        self._named = tuple(AcceptedToken.from_secret(name, secret, scheme) for name, secret in named.items())
        self.file = file

    def active(self) -> tuple[AcceptedToken, ...]:
        return self._named if self.file is None else (*self._named, *self.file.tokens())


def index_of_presented(tokens: Iterable[AcceptedToken], presented: bytes | None) -> int | None:
    """Return the index of the presented token, in time that depends neither on the index nor on similarity."""
    return None if presented is None else index_of_digest(tokens, sha256(presented).digest())


def index_of_digest(tokens: Iterable[AcceptedToken], digest: bytes) -> int | None:
    """Return the index of the token with this SHA-256, in time that depends neither on the index nor on similarity."""
    found: int | None = None
    for index, token in enumerate(tokens):
        if hmac.compare_digest(token.digest, digest) and found is None:
            found = index
    return found


def read_secrets(path: Path, scheme: AuthScheme = AuthScheme.BEARER) -> dict[int, str]:
    """Return the secrets of a token file by line number, from 1.

    Args:
        path: the file.
        scheme: scheme of the secrets.

    Raises:
        FatalError: the file is unreadable, has no secret or a malformed one.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
        text = content.decode("utf-8")
    except OSError as error:
        raise unreadable_file_error(path, error) from error
    except UnicodeDecodeError as error:
        raise _invalid_file_error(path, scheme, "bytes that are not UTF-8") from error
    if len(content) > MAX_FILE:
        raise _invalid_file_error(path, scheme, f"more than {MAX_FILE} bytes")
    found: dict[int, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        secret = line.strip()
        if not secret or secret.startswith("#"):
            continue
        try:
            secret_bytes(scheme, secret)
        except ValueError:
            raise _invalid_file_error(path, scheme, f"a malformed {scheme.word} in line {number}") from None
        found[number] = secret
    if not found:
        raise _invalid_file_error(path, scheme, f"no {scheme.word}")
    return found


def _parse(path: Path, scheme: AuthScheme) -> tuple[AcceptedToken, ...]:
    return tuple(
        AcceptedToken.from_secret(f"{path}:{number}", secret, scheme)
        for number, secret in read_secrets(path, scheme).items()
    )


def _invalid_file_error(path: Path, scheme: AuthScheme, found: str) -> FatalError:
    return FatalError(
        str(path),
        expected=f"a file of {scheme.word}s, one per line: {scheme.form}",
        found=found,
        remedy="write the new file beside it and rename it over the old one",
    )


# ── Signed requests

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


def parse_signature(scheme: SignatureScheme, headers: HeaderPairs, now: datetime) -> SignatureClaim | None:
    """Return the signature in a request's headers.

    Returns:
        The signature; None if a header is missing or malformed, or the timestamp is not within `TOLERANCE`. Also None
        if a header occurs twice, because it is unknown which of the two was signed.
    """
    wanted = signature_headers(scheme)
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in wanted:
            if name in found:
                return None
            found[name] = value.strip(b" \t")
    if len(found) < len(wanted):
        return None
    match scheme:
        case StandardWebhooks():
            return _parse_webhook(found[ID_HEADER], found[TIMESTAMP_HEADER], found[SIGNATURE_HEADER], now)
        case HmacSha256(header):
            # Hexadecimal digits may be in upper or lower case.
            text = found[header].lower()
            digest = text.removeprefix(_PREFIX)
            is_valid = text.startswith(_PREFIX) and _HEX.fullmatch(digest) is not None
            return SignatureClaim(b"", (bytes.fromhex(digest.decode()),)) if is_valid else None
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


def _parse_webhook(message: bytes, timestamp: bytes, signatures: bytes, now: datetime) -> SignatureClaim | None:
    if _MESSAGE.fullmatch(message) is None or _SECONDS.fullmatch(timestamp) is None:
        return None
    if abs(int(timestamp) - now.timestamp()) > TOLERANCE:
        return None
    parts = [part for part in signatures.split(b" ") if part]
    if len(parts) > MAX_SIGNATURES:
        return None
    digests = tuple(digest for part in parts if (digest := _digest_of_version_1(part)) is not None)
    return SignatureClaim(b"%b.%b." % (message, timestamp), digests, message.decode()) if digests else None


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
