"""Senders that sign, at a real server, and their requests byte for byte."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from sfn.formats.event import Sender
from sfn.http.secrets import AcceptedToken, AuthScheme, PartyTokens, WatchedTokenFile
from sfn.http.senders import Keyring, Senders
from sfn.http.signature import HmacSha256, SignatureScheme, StandardWebhooks, sign
from tests.integration.listening import EVENT, TOKEN, request
from tests.support.clock import HandClock

NOW: Final = datetime(2026, 11, 24, 12, tzinfo=UTC)
WEBHOOK: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ANOTHER: Final = "whsec_b2YgdHdlbnR5LWZvdXIgYnl0ZXM6IGJi"
TEXT: Final = "a text of sixteen"
MANNERS: Final[Mapping[AuthScheme, SignatureScheme]] = {
    AuthScheme.STANDARD_WEBHOOKS: StandardWebhooks(),
    AuthScheme.HMAC_SHA256: HmacSha256(b"x-polaris-signature-256"),
}
STANDARD, HMAC = MANNERS
CATALOGS: Final = {
    "hook": {"theirs": "prod", "other": "dev"},
    "polaris": {"theirs": "dev"},
    "etl": {"theirs": "prod"},
}
"""Of each sender: two that sign, and one that shows a token."""


def signers(
    file: WatchedTokenFile | None = None,
    *,
    clock: HandClock | None = None,
    rates: Mapping[str, int] | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Senders:
    """All three.

    Args:
        file: instead of the secret of `hook`.
    """
    keyring = Keyring(
        {
            "hook": PartyTokens({"main": WEBHOOK} if file is None else {}, file, STANDARD),
            "polaris": PartyTokens({"main": TEXT}, scheme=HMAC),
            "etl": PartyTokens({"main": TOKEN}),
        }
    )
    enrolled = {name: Sender(name, catalogs) for name, catalogs in CATALOGS.items()}
    signing = {"hook": MANNERS[STANDARD], "polaris": MANNERS[HMAC]}
    return Senders(keyring, enrolled, signing=signing, rates=rates, clock=clock or HandClock(NOW), monotonic=monotonic)


def fields(
    body: bytes = EVENT,
    secret: str = WEBHOOK,
    scheme: AuthScheme = STANDARD,
    *,
    message: str = "msg_1",
    off: float = 0,
    now: datetime = NOW,
) -> dict[str, str]:
    """The headers that sign a body.

    Args:
        off: seconds that the signing side's clock is ahead.
    """
    key = AcceptedToken.from_secret("", secret, scheme).key
    assert key is not None
    return sign(MANNERS[scheme], key, body, message, now + timedelta(seconds=off))


def said(headers: Mapping[str, str]) -> list[str]:
    """Headers as they are written."""
    return [f"{name}: {value}" for name, value in headers.items()]


def hooked(body: bytes = EVENT, *more: str, path: str = "/v1/events", message: str = "msg_1") -> bytes:
    """A request that `hook` signed."""
    return request(*said(fields(body, message=message)), *more, path=path, body=body, token=None)
