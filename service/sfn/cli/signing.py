"""What a command signs its events with."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import uuid4

from sfn.clock import SystemClock
from sfn.receiver.signature import Manner, signed


@dataclass(frozen=True, slots=True)
class Signing:
    """A sender's way to sign.

    Attributes:
        manner: how.
        secret: what keys the signature.
    """

    manner: Manner
    secret: bytes = field(repr=False)

    def headers(self, body: bytes) -> dict[str, str]:
        """The headers that sign a message of now, of an id of its own."""
        return signed(self.manner, self.secret, body, f"msg_{uuid4().hex}", SystemClock().now())
