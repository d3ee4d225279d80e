"""The key file of a Google service account."""

from __future__ import annotations

from functools import cache

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


@cache
def private_key() -> rsa.RSAPrivateKey:
    """One for all tests: it takes a while to make."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def private_pem() -> str:
    """The same key, as a key file has it."""
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return private_key().private_bytes(pem, pkcs8, serialization.NoEncryption()).decode()


def service_account(email: str, token_uri: str, /, **more: object) -> dict[str, object]:
    """The content of the file, as Google writes it."""
    return {
        "type": "service_account",
        "private_key_id": "1",
        "private_key": private_pem(),
        "client_email": email,
        "token_uri": token_uri,
        **more,
    }
