"""The listener's certificate and key, read again when somebody renews them."""

from __future__ import annotations

import ssl
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from sfn.concurrency import WatchedFiles, unreadable_file_error
from sfn.errors import FatalError
from sfn.receiver.handshakes import LoggedHandshake

_MISMATCHES: Final = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
"""OpenSSL's reasons against a key of another certificate; the last one, where the keys are of different kinds."""


class Certificate:
    """Shows clients the certificate that is in force when they connect; connections that are open keep theirs.

    Whoever renews certificate and key replaces one after the other: until they belong together the old pair stays in
    force.

    Args:
        chain: PEM file, the listener's own certificate first.
        key: PEM file of its private key, not encrypted.

    Attributes:
        context: for a server.

    Raises:
        Broken: the files can't be used now.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        self._pairs = WatchedFiles("certificate and key", (chain, key), partial(_load_pair, chain, key))
        self.context = _context()
        # A key that does not fit, loaded into a context in use, would leave it with neither: each pair has its own.
        self.context.sni_callback = self._show
        self.context.sslobject_class = LoggedHandshake

    def reload_if_changed(self) -> None:
        """Read the files again if one changed. Blocks for as long as the file system does."""
        self._pairs.reload_if_changed()

    async def watch(self) -> NoReturn:
        """See `Watched.watch`."""
        await self._pairs.watch()

    def _show(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        # Called with every ClientHello, whether or not it names a server.
        connection.context = self._pairs.current


def _context() -> ssl.SSLContext:
    # The same for all: some of it is looked up in the one that a connection began with, some in the one it was given.
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load_pair(chain: Path, key: Path) -> ssl.SSLContext:
    for file in (chain, key):
        # OpenSSL's errors do not say which file it was.
        try:
            file.open("rb").close()
        except OSError as error:
            raise unreadable_file_error(file, error) from error
    context = _context()
    try:
        # Without the callback OpenSSL asks for a passphrase on the terminal.
        context.load_cert_chain(chain, key, password=partial(_refuse_encrypted_key, key))
    except ssl.SSLError as error:
        raise _invalid_pair_error(chain, key, error.reason) from error
    except OSError as error:
        raise unreadable_file_error(chain, error) from error
    return context


def _refuse_encrypted_key(key: Path) -> NoReturn:
    raise FatalError(
        str(key),
        expected="a private key that is not encrypted",
        found="one with a passphrase",
        remedy="take it off with openssl pkey, and let nobody else read the file",
    )


def _invalid_pair_error(chain: Path, key: Path, reason: str | None) -> FatalError:
    if reason in _MISMATCHES:
        return FatalError(
            f"{chain} and {key}",
            expected="a certificate and the key that belongs to it",
            found="another key",
            remedy="see that the listener's own certificate is the first one in its file",
        )
    if reason is not None:
        expected = "a certificate and a key that OpenSSL takes"
        return FatalError(f"{chain} and {key}", expected=expected, found=reason.lower().replace("_", " "))
    if not _holds_certificates(chain):
        return FatalError(str(chain), expected="PEM certificates: -----BEGIN CERTIFICATE-----", found="something else")
    return FatalError(str(key), expected="a PEM private key: -----BEGIN PRIVATE KEY-----", found="something else")


def _holds_certificates(file: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except OSError:
        return False
    return True
