"""The handshake of CloudEvents' webhooks (HTTP 1.1 Web Hooks for Event Delivery, section 4).

A sender asks whether it may send at all, so that nobody can have it flood whom they like. It shows nothing for that and
learns no more than that: each event must show whose it is.
"""

from __future__ import annotations

import re
from typing import Final

from sfn.dialects import Headers
from sfn.receiver.faces import Answer, Face

ALLOW: Final = (b"allow", b"POST, OPTIONS")
ORIGIN: Final = "WebHook-Request-Origin"
LONGEST: Final = 255
"""Characters of an origin: those of a name in the DNS."""
PATTERN: Final = rf"[\x21-\x2b\x2d-\x7e]{{1,{LONGEST}}}"
"""Of an origin: without a comma, which would make two of it."""

_FIELD: Final = ORIGIN.lower().encode()
_ORIGIN: Final = re.compile(PATTERN.encode())


def asked(face: Face, headers: Headers, rate: int | None) -> Answer:
    """What is answered to `OPTIONS`.

    Args:
        face: says what is wrong.
        headers: of the request.
        rate: most requests a minute; None for any number.
    """
    origins = [value.strip(b" \t") for name, value in headers if name == _FIELD]
    if not origins:
        return Answer(204, b"", [ALLOW])
    if len(origins) > 1 or _ORIGIN.fullmatch(origins[0]) is None:
        return face.error(400, f"{ORIGIN}: expected one origin of at most {LONGEST} visible ASCII characters", [ALLOW])
    allowed = b"*" if rate is None else b"%d" % rate
    granted = [(b"webhook-allowed-origin", origins[0]), (b"webhook-allowed-rate", allowed), ALLOW]
    return Answer(200, b"", [*granted, (b"content-length", b"0")])
