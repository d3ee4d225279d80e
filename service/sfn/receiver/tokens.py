"""Bearer tokens (RFC 6750): several are active at a time, so that they can be changed without a gap."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

import structlog

from sfn.errors import Broken

REREAD_AFTER: Final = 1.0
"""Seconds from one look at a file of tokens to the next."""
MAX_FILE: Final = 65_536
"""Most bytes of such a file."""

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")

_log = structlog.stdlib.get_logger(__name__)


def well_formed(text: str) -> bool:
    """Whether a token can be sent in a header: visible ASCII, not empty."""
    return _VISIBLE.fullmatch(text) is not None


def bearer(authorization: bytes | None) -> bytes | None:
    """The token of an `Authorization` header of the scheme Bearer; None for any other."""
    words = authorization.split() if authorization is not None else ()
    return words[1] if len(words) == 2 and words[0].lower() == b"bearer" else None  # noqa: PLR2004 - scheme and token


@dataclass(frozen=True, slots=True)
class Token:
    """A token that is accepted. Only its digest is kept, so that neither a dump nor a length tells it.

    Attributes:
        name: which one it is, for logs.
        digest: SHA-256.
    """

    name: str
    digest: bytes = field(repr=False)

    @classmethod
    def of(cls, name: str, secret: str) -> Token:
        """The token with this secret."""
        return cls(name, sha256(secret.encode()).digest())


class TokenFile:
    """Tokens from a file, one a line; empty lines and lines that begin with `#` are passed over.

    The file is read again when it changed, looked at no more than once a second. One that can't be read, holds no
    token or a malformed one leaves the old tokens in force.

    Args:
        path: the file.
        monotonic: seconds that never run backwards.

    Raises:
        Broken: it can't be read now, when there are no old tokens.
    """

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._complaint = ""
        self._looked = monotonic()
        self._seen = _identity(path)
        self._tokens = _parse(path)

    def tokens(self) -> tuple[Token, ...]:
        """Those in force now."""
        now = self._monotonic()
        if now - self._looked >= REREAD_AFTER:
            self._looked = now
            self._refresh()
        return self._tokens

    def _refresh(self) -> None:
        try:
            # Before reading: what changes in between is seen as a change next time.
            identity = _identity(self._path)
            if identity == self._seen:
                return
            self._tokens = _parse(self._path)
        except Broken as error:
            if (complaint := str(error)) != self._complaint:
                self._complaint = complaint
                _log.error("tokens kept", file=str(self._path), error=complaint)
            return
        self._seen = identity
        self._complaint = ""
        _log.info("tokens read", file=str(self._path), count=len(self._tokens))


class Tokens:
    """The active tokens of one party.

    Args:
        named: secrets by the name of the token.
        file: more of them.
    """

    def __init__(self, named: Mapping[str, str], file: TokenFile | None = None) -> None:
        self._named = tuple(Token.of(name, secret) for name, secret in named.items())
        self._file = file

    def active(self) -> tuple[Token, ...]:
        """Those in force now."""
        return self._named if self._file is None else (*self._named, *self._file.tokens())

    def admit(self, authorization: bytes | None) -> bool:
        """Whether an `Authorization` header carries one of them."""
        return match(self.active(), bearer(authorization)) is not None


def match(tokens: Iterable[Token], presented: bytes | None) -> int | None:
    """The index of the presented token; the time it takes tells nothing of where or how nearly it matched."""
    return None if presented is None else matching(tokens, sha256(presented).digest())


def matching(tokens: Iterable[Token], digest: bytes) -> int | None:
    """As `match`, for the SHA-256 of what was presented."""
    found: int | None = None
    for index, token in enumerate(tokens):
        if hmac.compare_digest(token.digest, digest) and found is None:
            found = index
    return found


def _identity(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(path, error.strerror or "an error") from error
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _parse(path: Path) -> tuple[Token, ...]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
        text = content.decode("utf-8")
    except OSError as error:
        raise _unreadable(path, error.strerror or "an error") from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, "bytes that are not UTF-8") from error
    if len(content) > MAX_FILE:
        raise _unreadable(path, f"more than {MAX_FILE} bytes")
    tokens: list[Token] = []
    for number, line in enumerate(text.splitlines(), start=1):
        secret = line.strip()
        if not secret or secret.startswith("#"):
            continue
        if not well_formed(secret):
            raise _unreadable(path, f"spaces or characters that are not visible ASCII in line {number}")
        tokens.append(Token.of(f"{path.name}:{number}", secret))
    if not tokens:
        raise _unreadable(path, "no token")
    return tuple(tokens)


def _unreadable(path: Path, found: str) -> Broken:
    return Broken(
        str(path),
        expected="a file of tokens, one a line",
        found=found,
        remedy="write the new file beside it and rename it over the old one",
    )
