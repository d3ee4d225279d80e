"""An authority, what it signs, and files that are renewed one after the other."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from trustme import KeyType

from tests.support.table_directory import replaced


@dataclass(frozen=True)
class Pair:
    """A certificate and its key.

    Attributes:
        chain, key: in PEM.
        shown: the certificate as a client sees it, in DER.
    """

    chain: bytes
    key: bytes
    shown: bytes


class Authority:
    """Signs certificates for `localhost`."""

    def __init__(self) -> None:
        self._ca = trustme.CA()
        self.pem = self._ca.cert_pem.bytes()

    def sign(self, kind: KeyType = KeyType.ECDSA) -> Pair:
        signed = self._ca.issue_cert("localhost", "127.0.0.1", key_type=kind)
        leaf = signed.cert_chain_pems[0].bytes()
        return Pair(leaf, signed.private_key_pem.bytes(), ssl.PEM_cert_to_DER_cert(leaf.decode()))

    def trust(self) -> ssl.SSLContext:
        """The side of a client that trusts it alone."""
        return ssl.create_default_context(cadata=self.pem.decode())


class Files:
    """Where a listener finds its pair."""

    def __init__(self, folder: Path, pair: Pair) -> None:
        self.chain, self.key = folder / "tls.crt", folder / "tls.key"
        self.renew(pair)

    def renew(self, pair: Pair) -> None:
        replaced(self.chain, pair.chain)
        replaced(self.key, pair.key)


def shown(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None = "localhost") -> bytes:
    """The certificate that a client sees who connects, in DER; without a network."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = client.wrap_bio(to_client, to_server, server_hostname=name)
    answers = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (asks, answers, asks, answers, asks):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    found = asks.getpeercert(binary_form=True)
    assert found is not None
    return found
