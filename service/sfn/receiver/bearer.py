"""How a bearer token looks and how it is shown (RFC 6750, section 2.1): what also the settings and commands need."""

from __future__ import annotations

import re
from typing import Final

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")


def is_well_formed_token(text: str) -> bool:
    """Whether a token can be sent in a header: visible ASCII, not empty."""
    return _VISIBLE.fullmatch(text) is not None


def bearer_token(authorization: bytes | None) -> bytes | None:
    """The token of an `Authorization` header of the scheme Bearer; None for any other."""
    parts = authorization.split() if authorization is not None else ()
    return parts[1] if len(parts) == 2 and parts[0].lower() == b"bearer" else None  # noqa: PLR2004 - scheme and token
