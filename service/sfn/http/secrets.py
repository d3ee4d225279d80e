"""How a sender shows who it is, and what a secret for that looks like: what also the settings and commands need."""

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

# ── Bearer tokens

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")


def is_well_formed_token(text: str) -> bool:
    """Return whether a token can be sent in a header: visible ASCII, not empty."""
    return _VISIBLE.fullmatch(text) is not None


def bearer_token(authorization: bytes | None) -> bytes | None:
    """Return the token of an `Authorization` header of the scheme Bearer; None for any other."""
    parts = authorization.split() if authorization is not None else ()
    return parts[1] if len(parts) == 2 and parts[0].lower() == b"bearer" else None  # noqa: PLR2004 - scheme and token


# ── Secrets by scheme

WEBHOOK_PREFIX: Final = "whsec_"
"""What a secret of Standard Webhooks begins with."""

_LEAST, _MOST = 24, 64
"""Bytes of a secret of Standard Webhooks."""
_SHORTEST, _LONGEST = 16, 1_024
"""Characters of a secret that is any text."""
_VARIED: Final = 5
"""Different characters that every random secret has."""
_LONG_ENOUGH: Final = 16
"""Characters of a secret that nobody will guess, if they are random."""

_FORMS: Final = {
    "bearer": "visible ASCII characters without spaces, and at least one",
    "standard-webhooks": f"{WEBHOOK_PREFIX} and the base64 of {_LEAST} to {_MOST} random bytes, with its padding",
    "hmac-sha256": f"a text of {_SHORTEST} to {_LONGEST} printable characters, without spaces at its ends",
    "none": "no secret",
}


class AuthScheme(StrEnum):
    """How a sender shows who it is."""

    BEARER = "bearer"
    STANDARD_WEBHOOKS = "standard-webhooks"
    HMAC_SHA256 = "hmac-sha256"
    NONE = "none"

    @property
    def word(self) -> str:
        """What a secret of it is called."""
        return "token" if self is AuthScheme.BEARER else "secret"

    @property
    def form(self) -> str:
        """What a secret of it looks like."""
        return _FORMS[self]


def secret_bytes(scheme: AuthScheme, secret: str) -> bytes:
    """Return the bytes of a secret: those of a token as they are shown, of any other those that key an HMAC.

    Raises:
        ValueError: it is none of this scheme; the message says what one looks like, and nothing of this one.
    """
    match scheme:
        case AuthScheme.BEARER:
            right = secret.encode() if is_well_formed_token(secret) else None
        case AuthScheme.STANDARD_WEBHOOKS:
            right = _decoded(secret)
        case AuthScheme.HMAC_SHA256:
            fits = _SHORTEST <= len(secret) <= _LONGEST and secret.isprintable() and secret == secret.strip()
            right = secret.encode() if fits else None
        case AuthScheme.NONE:
            right = None
        case _:
            assert_never(scheme)
    if right is None:
        raise ValueError(scheme.form)
    return right


def describe_weakness(scheme: AuthScheme, secret: str) -> str:
    """Why a secret is soon guessed, for a warning; empty where it may be a random one."""
    if len(secret) < _LONG_ENOUGH:
        return f"a {scheme.word} of fewer than {_LONG_ENOUGH} characters"
    if len(set(re.sub(f"^{WEBHOOK_PREFIX}|=+$", "", secret))) < _VARIED:
        return f"a {scheme.word} of fewer than {_VARIED} different characters"
    return ""


def _decoded(secret: str) -> bytes | None:
    text = secret.removeprefix(WEBHOOK_PREFIX)
    try:
        found = b64decode(text, validate=True)
    except (Error, ValueError):
        return None
    # One secret has one spelling: what two senders have in common is found by it.
    is_right = secret.startswith(WEBHOOK_PREFIX) and _LEAST <= len(found) <= _MOST and b64encode(found).decode() == text
    return found if is_right else None


# ── Accepted tokens and token files

MAX_FILE: Final = 65_536
"""Most bytes of a file of tokens."""


@dataclass(frozen=True, slots=True)
class AcceptedToken:
    """A token that is accepted. Only its digest is kept, so that neither a dump nor a length tells it.

    Attributes:
        name: which one it is, for logs.
        digest: SHA-256.
        key: the secret itself where it is never shown but signs: with a digest of it nothing could be verified.
    """

    name: str
    digest: bytes = field(repr=False)
    key: bytes | None = field(default=None, repr=False)

    @classmethod
    def from_secret(cls, name: str, secret: str, scheme: AuthScheme = AuthScheme.BEARER) -> AcceptedToken:
        """Return the token with this secret, which is one of the scheme."""
        signs = scheme is not AuthScheme.BEARER
        return cls(name, sha256(secret.encode()).digest(), secret_bytes(scheme, secret) if signs else None)


class WatchedTokenFile:
    """Tokens from a file, one a line; empty lines and lines that begin with `#` are passed over.

    It is read now, and by whoever looks after it changed. One that can't be read, holds no token or a malformed one
    leaves the old tokens in force.

    Args:
        path: the file.
        scheme: what they are for.

    Raises:
        FatalError: it can't be read now, when there are no old tokens.
    """

    def __init__(self, path: Path, scheme: AuthScheme = AuthScheme.BEARER) -> None:
        self._content = WatchedFiles(f"{scheme.word}s", (path,), partial(_parse, path, scheme))

    def tokens(self) -> tuple[AcceptedToken, ...]:
        """Those in force now; the file is not looked at."""
        return self._content.current

    def reload_if_changed(self) -> None:
        """See `Watched.look`."""
        self._content.reload_if_changed()

    async def watch(self) -> NoReturn:
        """See `Watched.watch`."""
        await self._content.watch()


class PartyTokens:
    """The active tokens of one party.

    Args:
        named: secrets by the name of the token.
        file: more of them.
        scheme: what the named ones are for.

    Attributes:
        file: as it was given.
    """

    def __init__(
        self, named: Mapping[str, str], file: WatchedTokenFile | None = None, scheme: AuthScheme = AuthScheme.BEARER
    ) -> None:
        self._named = tuple(AcceptedToken.from_secret(name, secret, scheme) for name, secret in named.items())
        self.file = file

    def active(self) -> tuple[AcceptedToken, ...]:
        """Those in force now."""
        return self._named if self.file is None else (*self._named, *self.file.tokens())


def index_of_presented(tokens: Iterable[AcceptedToken], presented: bytes | None) -> int | None:
    """Return the index of the presented token; the time it takes tells nothing of where or how nearly it matched."""
    return None if presented is None else index_of_digest(tokens, sha256(presented).digest())


def index_of_digest(tokens: Iterable[AcceptedToken], digest: bytes) -> int | None:
    """As `match`, for the SHA-256 of what was presented."""
    found: int | None = None
    for index, token in enumerate(tokens):
        if hmac.compare_digest(token.digest, digest) and found is None:
            found = index
    return found


def read_secrets(path: Path, scheme: AuthScheme = AuthScheme.BEARER) -> dict[int, str]:
    """What a file of tokens holds, by the numbers of its lines from 1 on.

    Args:
        path: the file.
        scheme: what they are for.

    Raises:
        FatalError: it can't be read, holds no token or a malformed one.
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
            raise _invalid_file_error(path, scheme, f"another text in line {number}") from None
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
        expected=f"a file of {scheme.word}s, one a line: {scheme.form}",
        found=found,
        remedy="write the new file beside it and rename it over the old one",
    )
