"""The handshake of CloudEvents' webhooks (HTTP 1.1 Web Hooks for Event Delivery, section 4).

A sender asks whether it may send at all, so that nobody can have it flood whom they like. It shows nothing for that and
learns no more than that: each event must show whose it is.
"""

from __future__ import annotations

import re
from typing import Final

from sfn.formats.event import Headers
from sfn.receiver.faces import EventsResponse, ResponseFormat

ALLOW_HEADER: Final = (b"allow", b"POST, OPTIONS")
ORIGIN_HEADER: Final = "WebHook-Request-Origin"
MAX_ORIGIN: Final = 255
"""Characters of an origin: those of a name in the DNS."""
ORIGIN_PATTERN: Final = rf"[\x21-\x2b\x2d-\x7e]{{1,{MAX_ORIGIN}}}"
"""Of an origin: without a comma, which would make two of it."""

_FIELD: Final = ORIGIN_HEADER.lower().encode()
_ORIGIN: Final = re.compile(ORIGIN_PATTERN.encode())


def answer_handshake(response_format: ResponseFormat, headers: Headers, rate: int | None) -> EventsResponse:
    """What is answered to `OPTIONS`.

    Args:
        response_format: says what is wrong.
        headers: of the request.
        rate: most requests a minute; None for any number.
    """
    origins = [value.strip(b" \t") for name, value in headers if name == _FIELD]
    if not origins:
        return EventsResponse(204, b"", [ALLOW_HEADER])
    if len(origins) > 1 or _ORIGIN.fullmatch(origins[0]) is None:
        return response_format.error(
            400,
            f"{ORIGIN_HEADER}: expected one origin of at most {MAX_ORIGIN} visible ASCII characters",
            [ALLOW_HEADER],
        )
    allowed = b"*" if rate is None else b"%d" % rate
    granted = [(b"webhook-allowed-origin", origins[0]), (b"webhook-allowed-rate", allowed), ALLOW_HEADER]
    return EventsResponse(200, b"", [*granted, (b"content-length", b"0")])
