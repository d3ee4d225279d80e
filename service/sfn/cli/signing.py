"""What a command signs its events with."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import uuid4

from sfn.clock import SystemClock
from sfn.http.signature import SignatureScheme, sign


@dataclass(frozen=True, slots=True)
class EventSigner:
    """A sender's way to sign.

    Attributes:
        scheme: how.
        secret: what keys the signature.
    """

    scheme: SignatureScheme
    secret: bytes = field(repr=False)

    def headers(self, body: bytes) -> dict[str, str]:
        """The headers that sign a message of now, of an id of its own."""
        return sign(self.scheme, self.secret, body, f"msg_{uuid4().hex}", SystemClock().now())
