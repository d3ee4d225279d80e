"""Bearer tokens (RFC 6750) and secrets that sign: several are active at a time, so that they change without a gap."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, NoReturn

from sfn.concurrency import WatchedFiles, unreadable_file_error
from sfn.errors import FatalError
from sfn.receiver.secret import AuthScheme, secret_bytes

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
        """The token with this secret, which is one of the scheme."""
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
        Broken: it can't be read now, when there are no old tokens.
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
    """The index of the presented token; the time it takes tells nothing of where or how nearly it matched."""
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
        Broken: it can't be read, holds no token or a malformed one.
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
