"""Sessions of operators in a browser: a signed cookie, and a token for each form.

A session is stored nowhere, so every replica accepts it. The key of its signature is the digest of the operator's
token: a token that is rotated or removed ends its sessions.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final, Protocol

from sfn.clock import Clock

COOKIE: Final = "sfn_session"
MAX_AGE: Final = timedelta(hours=12)
"""How long a session lasts: a working day."""
_SESSION: Final = b"session"
_FORM: Final = b"form"


class OperatorTokens(Protocol):
    """The tokens of operators."""

    def authenticate(self, authorization: bytes | None, client: str | None) -> str | None:
        """Return the name of the token in an `Authorization` header; None for any other header."""
        ...

    def digest_of(self, name: str) -> bytes | None:
        """Return the SHA-256 of an active token; None without such a token."""
        ...


@dataclass(frozen=True, slots=True)
class Session:
    """A session.

    Attributes:
        token_name: the name of the operator's token.
        signed_in_at: its start.
        cookie: the value of its cookie.
    """

    token_name: str
    signed_in_at: datetime
    cookie: str = field(repr=False)

    @property
    def ends_at(self) -> datetime:
        """When the operator has to sign in again."""
        return self.signed_in_at + MAX_AGE


class Sessions:
    """Signs operators in, and checks cookies and forms.

    Args:
        tokens: the tokens of operators.
        clock: the wall clock.
    """

    def __init__(self, tokens: OperatorTokens, clock: Clock) -> None:
        self._tokens, self._clock = tokens, clock

    def sign_in(self, token: str, client: str | None) -> Session | None:
        """Return a new session; None for a wrong token, which is logged.

        Args:
            token: the token that the operator typed.
            client: the address of the browser.
        """
        # A form may contain what a header cannot.
        header = b"Bearer " + token.strip().encode() if token.strip().isascii() else None
        name = self._tokens.authenticate(header, client)
        digest = self._tokens.digest_of(name) if name is not None else None
        if name is None or digest is None:
            return None
        at = self._clock.now().replace(microsecond=0)
        content = f"{_encoded(name.encode())}.{int(at.timestamp())}.{secrets.token_urlsafe(12)}"
        return Session(name, at, f"{content}.{_signature(digest, _SESSION, content)}")

    def find(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie; None if it is not valid, or not any more."""
        content, _, signature = (cookie or "").rpartition(".")
        parts = content.split(".")
        try:
            encoded, at, _ = parts
            name = urlsafe_b64decode(encoded).decode()
            session = Session(name, datetime.fromtimestamp(int(at), UTC), cookie or "")
        except (ValueError, Error, OverflowError, OSError):
            return None
        digest = self._tokens.digest_of(name)
        if digest is None or not hmac.compare_digest(
            _signature(digest, _SESSION, content).encode(), signature.encode()
        ):
            return None
        return session if session.signed_in_at <= self._clock.now() < session.ends_at else None

    def form_token(self, session: Session) -> str:
        """Return a token for a form: no other site can know it.

        Each one is different, so that the length of a compressed page does not reveal it (BREACH).
        """
        nonce = secrets.token_urlsafe(12)
        return f"{nonce}.{self._form_signature(session, nonce)}"

    def is_form_token(self, session: Session, form_token: str) -> bool:
        """Return whether a form was made for a session."""
        nonce, _, signature = form_token.partition(".")
        return hmac.compare_digest(self._form_signature(session, nonce).encode(), signature.encode())

    def _form_signature(self, session: Session, nonce: str) -> str:
        digest = self._tokens.digest_of(session.token_name)
        return _signature(digest or secrets.token_bytes(32), _FORM, f"{session.cookie}.{nonce}")


def _encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).decode()


def _signature(digest: bytes, purpose: bytes, content: str) -> str:
    # The key of one purpose says nothing about the others, nor about the digest.
    key = hmac.digest(digest, b"iceberg-sfn page " + purpose, sha256)
    return _encoded(hmac.digest(key, content.encode(), sha256)).rstrip("=")
