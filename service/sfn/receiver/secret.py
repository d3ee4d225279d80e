"""How a sender shows who it is, and what a secret for that looks like: what also the settings and commands need."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error
from enum import StrEnum
from typing import Final, assert_never

from sfn.receiver.bearer import is_well_formed_token

WEBHOOK_PREFIX: Final = "whsec_"
"""What a secret of Standard Webhooks begins with."""

_LEAST, _MOST = 24, 64
"""Bytes of a secret of Standard Webhooks."""
_SHORTEST, _LONGEST = 16, 1_024
"""Characters of a secret that is any text."""
_VARIED: Final = 5
"""Different characters that every random secret has."""
_LONG_ENOUGH: Final = 16
"""Characters of a secret that nobody will guess, if they are random."""

_FORMS: Final = {
    "bearer": "visible ASCII characters without spaces, and at least one",
    "standard-webhooks": f"{WEBHOOK_PREFIX} and the base64 of {_LEAST} to {_MOST} random bytes, with its padding",
    "hmac-sha256": f"a text of {_SHORTEST} to {_LONGEST} printable characters, without spaces at its ends",
    "none": "no secret",
}


class AuthScheme(StrEnum):
    """How a sender shows who it is."""

    BEARER = "bearer"
    STANDARD_WEBHOOKS = "standard-webhooks"
    HMAC_SHA256 = "hmac-sha256"
    NONE = "none"

    @property
    def word(self) -> str:
        """What a secret of it is called."""
        return "token" if self is AuthScheme.BEARER else "secret"

    @property
    def form(self) -> str:
        """What a secret of it looks like."""
        return _FORMS[self]


def secret_bytes(scheme: AuthScheme, secret: str) -> bytes:
    """The bytes of a secret: those of a token as they are shown, of any other those that key an HMAC.

    Raises:
        ValueError: it is none of this scheme; the message says what one looks like, and nothing of this one.
    """
    match scheme:
        case AuthScheme.BEARER:
            right = secret.encode() if is_well_formed_token(secret) else None
        case AuthScheme.STANDARD_WEBHOOKS:
            right = _decoded(secret)
        case AuthScheme.HMAC_SHA256:
            fits = _SHORTEST <= len(secret) <= _LONGEST and secret.isprintable() and secret == secret.strip()
            right = secret.encode() if fits else None
        case AuthScheme.NONE:
            right = None
        case _:
            assert_never(scheme)
    if right is None:
        raise ValueError(scheme.form)
    return right


def describe_weakness(scheme: AuthScheme, secret: str) -> str:
    """Why a secret is soon guessed, for a warning; empty where it may be a random one."""
    if len(secret) < _LONG_ENOUGH:
        return f"a {scheme.word} of fewer than {_LONG_ENOUGH} characters"
    if len(set(re.sub(f"^{WEBHOOK_PREFIX}|=+$", "", secret))) < _VARIED:
        return f"a {scheme.word} of fewer than {_VARIED} different characters"
    return ""


def _decoded(secret: str) -> bytes | None:
    text = secret.removeprefix(WEBHOOK_PREFIX)
    try:
        found = b64decode(text, validate=True)
    except (Error, ValueError):
        return None
    # One secret has one spelling: what two senders have in common is found by it.
    is_right = secret.startswith(WEBHOOK_PREFIX) and _LEAST <= len(found) <= _MOST and b64encode(found).decode() == text
    return found if is_right else None
