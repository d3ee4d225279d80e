"""How a bearer token looks and how it is shown (RFC 6750, section 2.1): what also the settings and commands need."""

from __future__ import annotations

import re
from typing import Final

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
_BEARER: Final = re.compile(rb"bearer +(\S+)", re.IGNORECASE)


def well_formed(text: str) -> bool:
    """Whether a token can be sent in a header: visible ASCII, not empty."""
    return _VISIBLE.fullmatch(text) is not None


def bearer(authorization: bytes | None) -> bytes | None:
    """The token of an `Authorization` header of the scheme Bearer; None for any other."""
    found = None if authorization is None else _BEARER.fullmatch(authorization.strip())
    return None if found is None else found[1]
