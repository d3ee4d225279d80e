"""The sections `senders.NAME` and `admin`: who may ask for something, and how they show it."""

from __future__ import annotations

from typing import assert_never

from pydantic import Field

from sfn.http.secrets import AuthScheme
from sfn.http.signature import HmacSha256, SignatureScheme, StandardWebhooks
from sfn.settings.bound import EventOrigin
from sfn.settings.kinds import AtLeastOne, File, HeaderName, Secrets, Token
from sfn.settings.section import Section


class SenderSettings(EventOrigin):
    """Who may send events.

    Attributes:
        scheme: how a sender shows who it is: by a bearer token, by a signature, or not at all.
        secrets: active tokens, or secrets that sign, by name.
        secrets_file: more of them, one a line; read again when it changes.
        signature_header: where the signature is, with `hmac-sha256`.
        rate_limit: most requests a minute.
    """

    scheme: AuthScheme = AuthScheme.BEARER
    secrets: Secrets = Field(default_factory=dict)
    secrets_file: File | None = None
    signature_header: HeaderName = "X-Hub-Signature-256"
    rate_limit: AtLeastOne | None = None

    @property
    def signature_scheme(self) -> SignatureScheme | None:
        """How it signs; None for one that does not."""
        match self.scheme:
            case AuthScheme.STANDARD_WEBHOOKS:
                return StandardWebhooks()
            case AuthScheme.HMAC_SHA256:
                return HmacSha256(self.signature_header.lower().encode())
            case AuthScheme.BEARER | AuthScheme.NONE:
                return None
            case _:
                assert_never(self.scheme)


class AdminSettings(Section):
    """Who operates the service; without a token there are no admin routes.

    Attributes:
        token: bearer token; `token_file` a file with such tokens, one a line; read again when it changes.
    """

    token: Token | None = None
    token_file: File | None = None
