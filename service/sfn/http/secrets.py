"""Authentication schemes, the form of their secrets, and token files. The settings and the commands use it, too."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, NoReturn, assert_never

from sfn.concurrency import WatchedFiles, unreadable_file_error
from sfn.errors import FatalError

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
        raise unreadable_file_error(path, error, f"write the {scheme.word}s there, one per line") from error
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
