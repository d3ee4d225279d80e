"""A token endpoint of Google's kind on the loopback interface, and keys to ask it with."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import anyio
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from sfn.errors import NoCredentials
from sfn.google_auth import GoogleCredentialChain
from tests.unit.gcs_server import PRIVATE, Asked, Responder, Server, reply

SCOPES: Final = ("https://www.googleapis.com/auth/one", "https://www.googleapis.com/auth/two")
EARLY: Final = 225.0
"""Seconds before its end at which Google's library takes a token for stale."""
REFUSED: Final = reply({"error": "invalid_grant", "error_description": f"{PRIVATE} was not good"}, 400)


class Mint:
    """Gives the tokens token1, token2, …, each good for so many seconds.

    Attributes:
        lasts: seconds.
        claims: what each was asked for with.
    """

    def __init__(self, lasts: float = 3600.0) -> None:
        self.lasts = lasts
        self.claims: list[dict[str, str]] = []

    async def answer(self, asked: Asked) -> web.StreamResponse:
        claims = parse_qs(asked.body.decode())["assertion"][0].split(".")[1]
        self.claims.append(json.loads(urlsafe_b64decode(claims + "==")))
        token = {"access_token": f"token{len(self.claims)}", "expires_in": self.lasts, "token_type": "Bearer"}
        return await reply(token)(asked)


@cache
def private_key() -> str:
    """One for all tests: it takes a while to make."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, pkcs8, serialization.NoEncryption()).decode()


def account(server: Server, name: str = "publisher") -> str:
    """The key file of a service account."""
    content = {
        "type": "service_account",
        "project_id": "lake-1",
        "private_key_id": "1",
        "private_key": private_key(),
        "client_email": f"{name}@lake-1.iam.gserviceaccount.com",
        "token_uri": f"{server.url}/token",
    }
    return json.dumps(content)


def put(file: Path, content: str) -> None:
    file.write_bytes(content.encode(errors="surrogatepass"))


async def none_of(chain: GoogleCredentialChain) -> NoCredentials:
    with pytest.raises(NoCredentials) as none:
        await chain.token()
    return none.value


def late(seconds: float, answer: Responder) -> Responder:
    """The same answer, late."""

    async def respond(asked: Asked) -> web.StreamResponse:
        await anyio.sleep(seconds)
        return await answer(asked)

    return respond
