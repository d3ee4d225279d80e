"""Who asks, and whom we trust: read from the files for each new connection, for somebody may have renewed them."""

from __future__ import annotations

import base64
import binascii
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfn.concurrency import AbandonableThreads, TimedOut, describe_timeout
from sfn.errors import ErrorScope, Transient
from sfn.receiver.pull import SourceUnavailable
from sfn.receiver.pull.nats.terms import NatsOptions

MAX_FILE: Final = 65_536
"""Most bytes of a file with a secret."""

_BLOCK: Final = r"-+BEGIN {}-+\s+(\S+)\s+-+END {}-+"
_JWT: Final = re.compile(_BLOCK.format("NATS USER JWT", "NATS USER JWT"), re.ASCII)
_SEED: Final = re.compile(_BLOCK.format("USER NKEY SEED", "USER NKEY SEED"), re.ASCII)
_PREFIX: Final = 2
"""Bytes before the key itself: that it is a seed, and a user's."""
_KEY: Final = 32
_CHECKSUM: Final = 2


@dataclass(frozen=True, slots=True)
class NatsCredentials:
    """What a file `.creds` has: whom we are, as somebody has signed it, and the key that proves it.

    Attributes:
        jwt: is shown.
        key: signs what the server makes up.
    """

    jwt: bytes = field(repr=False)
    key: Ed25519PrivateKey = field(repr=False)

    def sign(self, nonce: str) -> bytes:
        """What the server made up, with our signature, as it wants it."""
        return base64.b64encode(self.key.sign(nonce.encode()))


@dataclass(frozen=True, slots=True)
class Login:
    """What the files of a source hold.

    Attributes:
        ssl_context: whose certificates are trusted.
        credentials: who asks, or
        token: that, or
        password: of the configured user.
    """

    ssl_context: ssl.SSLContext
    credentials: NatsCredentials | None = None
    token: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


class LoginFiles:
    """The files of a source. A mount that hangs has one thread hang, however often they are read.

    Args:
        options: of the source.
        timeout: seconds for all of them.
    """

    def __init__(self, options: NatsOptions, timeout: float) -> None:
        self._options, self._timeout = options, timeout
        # Nothing but looks: the end of a process need not wait for them, as it does for those of stores.
        self._threads = AbandonableThreads(1, timeout, ErrorScope.INBOX, read_only=True)

    async def read(self) -> Login:
        """What they hold now.

        Raises:
            Away: one can't be read in time, or makes no sense.
        """
        terms = self._options
        try:
            found = await self._threads.run(f"read the files of {terms.where}", lambda _: _read(terms))
        except Transient as error:
            raise SourceUnavailable(
                terms.where, expected=error.expected, found=error.found, remedy=error.remedy
            ) from None
        if isinstance(found, TimedOut):
            named = (terms.credentials_file, terms.token_file, terms.password_file, terms.ca_file)
            files = ", ".join(str(file) for file in named if file is not None) or "the system's certificates"
            found_instead, remedy = describe_timeout(self._timeout), "see whether a mount hangs"
            raise SourceUnavailable(
                f"{terms.where}: {files}", expected="files that can be read", found=found_instead, remedy=remedy
            )
        return found


def _read(terms: NatsOptions) -> Login:
    """Read all of them; blocks.

    Raises:
        Away: one can't be read, or makes no sense.
    """
    where, credentials, token, password = terms.where, None, None, None
    if terms.credentials_file is not None:
        credentials = _credentials(f"{where}.credentials_file", terms.credentials_file)
    if terms.token_file is not None:
        token = _line(f"{where}.token_file", terms.token_file)
    if terms.password_file is not None:
        password = _line(f"{where}.password_file", terms.password_file)
    return Login(_trust(f"{where}.ca_file", terms.ca_file), credentials, token, password)


def _trust(where: str, file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        found = (error.reason or "something else").lower().replace("_", " ")
    except OSError as error:
        found = error.strerror or type(error).__name__
    raise _unusable(where, file, "a file of PEM certificates", found)


def _credentials(where: str, file: Path) -> NatsCredentials:
    text = _text(where, file)
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if jwt is None or seed is None:
        missing = "no user's JWT" if jwt is None else "no user's seed"
        raise _unusable(where, file, "what `nsc generate creds` writes", missing)
    return NatsCredentials(jwt[1].encode(), _key(where, file, seed[1]))


def _key(where: str, file: Path, seed: str) -> Ed25519PrivateKey:
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except ValueError:
        raw = b""
    whole, checksum = raw[:-_CHECKSUM], raw[-_CHECKSUM:]
    if len(whole) != _PREFIX + _KEY or binascii.crc_hqx(whole, 0).to_bytes(_CHECKSUM, "little") != checksum:
        raise _unusable(where, file, "a seed with its checksum", "another text")
    return Ed25519PrivateKey.from_private_bytes(whole[_PREFIX:])


def _line(where: str, file: Path) -> str:
    text = _text(where, file).strip()
    if not text or not text.isprintable():
        raise _unusable(where, file, "one line", "none, or several" if text else "an empty file")
    return text


def _text(where: str, file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_FILE).decode()
    except OSError as error:
        raise _unusable(where, file, "a file that can be read", error.strerror or type(error).__name__) from None
    except UnicodeDecodeError:
        raise _unusable(where, file, "a text", "bytes that are not UTF-8") from None


def _unusable(where: str, file: Path | None, expected: str, found: str) -> SourceUnavailable:
    remedy = f"put it there for the service's user to read, or set {where}"
    return SourceUnavailable(f"{where}: {file}", expected=expected, found=found, remedy=remedy)
