"""NATS with JetStream, whose files outlive a kill of it, and users whom an operator signed (NATS: "JWT")."""

from __future__ import annotations

import base64
import binascii
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typing_extensions import override

from tests.servers.process import Server
from tests.support.programs import found


class Nats(Server):
    """The server.

    Args:
        more: goes into its configuration, such as who may do what.
        jetstream: whether it has that.
    """

    title = "nats-server"

    def __init__(self, more: str = "", *, jetstream: bool = True) -> None:
        self._program = found("SFN_NATS")
        super().__init__()
        self._more, self._jetstream = more, jetstream

    @property
    @override
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @override
    def start(self) -> None:
        kept = f'jetstream {{ store_dir: "{self.folder}" }}' if self._jetstream else ""
        (self.folder / "conf").write_text(f'listen: "127.0.0.1:{self.port}"\n{kept}\n{self._more}\n')
        super().start()

    @override
    def _command(self) -> Sequence[str | Path]:
        return [self._program, "--config", self.folder / "conf"]

    @override
    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5.0) as connection:
                return connection.recv(5) == b"INFO "
        except OSError:
            return False


OPERATOR, ACCOUNT, USER = 14 << 3, 0, 20 << 3
_SEED = 18 << 3


@dataclass(frozen=True)
class Party:
    """An operator, an account or a user.

    Attributes:
        kind: one of these.
    """

    kind: int
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def name(self) -> str:
        """Its public key."""
        return _encoded(bytes([self.kind]) + self.key.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        """Its private key."""
        prefix = bytes([_SEED | self.kind >> 5, (self.kind & 31) << 3])
        return _encoded(prefix + self.key.private_bytes_raw())

    def signs(self, party: Party, kind: str, **claims: object) -> str:
        """A JWT of another one, or of itself."""
        told = {"type": kind, "version": 2, **claims}
        body = {"jti": "x", "iat": 1_700_000_000, "iss": self.name, "name": kind, "sub": party.name, "nats": told}
        signed = ".".join(_base64(json.dumps(part).encode()) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body))
        return f"{signed}.{_base64(self.key.sign(signed.encode()))}"


class Operator:
    """An operator with one account.

    Attributes:
        configuration: of a server that believes it.
    """

    def __init__(self) -> None:
        operator, system, self._account = Party(OPERATOR), Party(ACCOUNT), Party(ACCOUNT)
        limits: dict[str, object] = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
        limits["wildcards"] = True
        accounts = {
            system.name: operator.signs(system, "account", limits=limits),
            self._account.name: operator.signs(
                self._account, "account", limits={**limits, "mem_storage": -1, "disk_storage": -1}
            ),
        }
        self.configuration = (
            f"operator: {operator.signs(operator, 'operator')}\nsystem_account: {system.name}\nresolver: MEMORY\n"
            f"resolver_preload: {{ {', '.join(f'{one}: {jwt}' for one, jwt in accounts.items())} }}\n"
        )

    def user(self, permitted: Mapping[str, object] | None = None) -> str:
        """A new user's file."""
        user = Party(USER)
        jwt = self._account.signs(user, "user", subs=-1, data=-1, payload=-1, **(permitted or {}))
        return creds(jwt, user.seed)


def creds(jwt: str, seed: str) -> str:
    """A file as `nsc` writes it."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def _encoded(raw: bytes) -> str:
    checksum = binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw + checksum).decode().rstrip("=")


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
