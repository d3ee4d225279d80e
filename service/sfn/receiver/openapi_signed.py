"""How senders show who they are, in OpenAPI 3.1: for signatures in headers it has no scheme of its own."""

from __future__ import annotations

from typing import Any, Final


def _header_scheme(name: str, description: str) -> dict[str, Any]:
    return {"type": "apiKey", "in": "header", "name": name, "description": description}


SCHEMES: Final[dict[str, Any]] = {
    "webhookId": _header_scheme(
        "webhook-id", "of the message, the same whenever it is sent again; without a full stop"
    ),
    "webhookTimestamp": _header_scheme("webhook-timestamp", "seconds since 1970, at most 300 off"),
    "webhookSignature": _header_scheme(
        "webhook-signature",
        "of a sender of the scheme `standard-webhooks`: `v1,` and the base64 of the HMAC-SHA256 of "
        "`{id}.{timestamp}.{body}`; several with spaces between them, of which one must be right",
    ),
    "bodySignature": _header_scheme(
        "X-Hub-Signature-256",
        "of a sender of the scheme `hmac-sha256`: `sha256=` and the HMAC-SHA256 of the body in hexadecimal digits; the "
        "header is the sender's `signature_header`",
    ),
}

SENDERS: Final[list[dict[str, list[str]]]] = [
    {"bearer": []},
    {"webhookId": [], "webhookTimestamp": [], "webhookSignature": []},
    {"bodySignature": []},
]
"""Any of these shows who a sender is: which one is configured."""
