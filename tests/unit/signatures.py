"""AWS's side of Signature Version 4: made anew from a request as it came, by the documentation and no library.

"Create a signed AWS API request" in the IAM user guide: each segment of the path is encoded once more than it came.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import web

from tests.support.rest_catalog import Responder, reply, table

KEY_ID = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # noqa: S105 - an example
"""Those of AWS's published examples."""

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<id>[^/]+)/(?P<scope>(?P<day>\d{8})/[^/]+/[^/]+/aws4_request), "
    r"SignedHeaders=(?P<names>[a-z0-9;-]+), Signature=(?P<signature>[0-9a-f]{64})"
)


def canonical(method: str, target: str, headers: Mapping[str, str], names: str, body: bytes) -> str:
    """What is signed of a request.

    Args:
        target: path and query as they came.
        names: of the signed headers, as the request has them.
    """
    path, _, query = target.partition("?")
    pairs = sorted(pair.partition("=")[::2] for pair in query.split("&")) if query else []
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in names.split(";")]
    return "\n".join(
        [
            method,
            quote(path, safe="/~"),
            "&".join(f"{key}={value}" for key, value in pairs),
            *lines,
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        ]
    )


def signature(secret: str, scope: str, at: str, request: str) -> str:
    """Of a canonical request."""
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = "\n".join(["AWS4-HMAC-SHA256", at, scope, hashlib.sha256(request.encode()).hexdigest()])
    return hmac.digest(key, text.encode(), "sha256").hex()


def alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have AWS's chain find nothing of this machine; its shared files are `config` and `credentials` of a folder."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "ROLE_ARN", "REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("WEB_IDENTITY_TOKEN_FILE", "CONTAINER_CREDENTIALS_FULL_URI", "CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@dataclass
class Aws:
    """A catalog that lets in who signs right.

    Attributes:
        scope: region and service that a signature must be for.
        keys: which keys are believed: secrets and session tokens, by their ids.
        codes: of the refusals that were given.
        signed: the names of the headers that were signed.
        answer: to who is let in.
    """

    scope: str = "eu-central-1/glue"
    keys: dict[str, tuple[str, str | None]] = field(default_factory=lambda: {KEY_ID: (SECRET, None)})
    codes: list[str] = field(default_factory=list)
    signed: set[str] = field(default_factory=set)
    answer: Responder = field(default_factory=lambda: reply({"defaults": {}, "overrides": {}, **table()}))

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        found = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
        if found is None:
            return await self.refused("MissingAuthenticationTokenException", "Missing Authentication Token")
        if found["id"] not in self.keys:
            return await self.refused("UnrecognizedClientException", "The security token is invalid")
        secret, token = self.keys[found["id"]]
        if request.headers.get("x-amz-security-token") != token:
            return await self.refused("ExpiredTokenException", "The security token is expired")
        self.signed |= set(found["names"].split(";"))
        headers = {name.lower(): ",".join(request.headers.getall(name)) for name in request.headers}
        asked = canonical(request.method, request.raw_path, headers, found["names"], await request.read())
        at = headers["x-amz-date"]
        right = signature(secret, f"{at[:8]}/{self.scope}/aws4_request", at, asked)
        if not hmac.compare_digest(right, found["signature"]):
            return await self.refused("InvalidSignatureException", f"The Canonical String should have been '{asked}'")
        return await self.answer(request)

    async def refused(self, code: str, message: str) -> web.StreamResponse:
        self.codes.append(code)
        headers = {"x-amzn-ErrorType": f"{code}:http://internal.amazon.com/coral/"}
        return web.json_response({"message": message}, status=403, headers=headers)
