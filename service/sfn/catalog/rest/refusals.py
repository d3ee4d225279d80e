"""What a reply means that is not an answer: pure, from status, headers and body to the trouble to raise.

Whose trouble it is cannot always be told from one reply (behaviour.md, "Scope of trouble"): a refusal whose `reach` is
None waits for one `GET /v1/config` to decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from urllib.parse import urlsplit

from sfn.catalog.refusal import Refusal
from sfn.catalog.rest import answers
from sfn.errors import Scope

ICEBERG_TOKEN_EXPIRED = 419
"""The REST specification's own status: credentials timed out."""

_LONGEST_READ = 2**16


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response, read whole.

    Attributes:
        where: who was asked what: catalog, method and URL without query, fit for a log.
        status: HTTP status.
        headers: by name, in any case.
        body: decoded from its content encoding; may hold secrets, never printed.
        at: when it began to arrive, by our clock.
    """

    where: str
    status: int
    at: datetime
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | bytearray = field(repr=False)


def of_status(reply: Reply, *, expected: str) -> Refusal:
    """Why a reply of this status is not what was expected.

    Args:
        reply: the whole reply.
        expected: in words, what would have been an answer.
    """
    permanent, reach, remedy = _meaning(reply)
    return Refusal(
        reply.where,
        expected=expected,
        found=_described(reply),
        remedy=remedy,
        permanent=permanent,
        reach=reach,
        retry_after=retry_after(reply),
    )


def garbled(reply: Reply, *, expected: str, found: str) -> Refusal:
    """A reply with a good status whose body makes no sense."""
    return Refusal(
        reply.where,
        expected=expected,
        found=f"status {reply.status}, {found}",
        remedy="see what answers at that URL: a proxy's page, a cut connection or a catalog of another kind",
    )


def _meaning(reply: Reply) -> tuple[bool, Scope | None, str]:
    """Whether it is permanent, whose trouble it is where that is known, and what can be done."""
    match reply.status:
        case HTTPStatus.UNAUTHORIZED | 419:
            return (
                True,
                Scope.CATALOG,
                "give the catalog a valid token or credential; a new one was tried if there was one",
            )
        case HTTPStatus.FORBIDDEN:
            return (
                True,
                None,
                "grant our principal to load and list there, or exclude it; some say 403 for what is gone",
            )
        case HTTPStatus.TOO_MANY_REQUESTS:
            return False, Scope.CATALOG, "lower worker.concurrency, or raise the catalog's own limit"
        case HTTPStatus.REQUEST_TIMEOUT | HTTPStatus.TOO_EARLY:
            return False, None, ""
        case HTTPStatus.NOT_FOUND:
            return (
                False,
                None,
                "a 404 counts only in Iceberg's error shape: see whether a proxy answers for the catalog",
            )
        case status if status in range(300, 400) and status != HTTPStatus.NOT_MODIFIED:
            return (
                True,
                None,
                "set uri to where it leads: redirects are not followed, they would take credentials along",
            )
        case status if status in range(400, 500):
            return True, None, "the catalog takes no such request: a name that it wants in no URL, or an old version"
        case status if status in range(500, 600):
            return False, None, "look into the catalog's own log"
        case _:
            return False, None, "see what answers at that URL"


def _described(reply: Reply) -> str:
    text = f"status {reply.status}"
    if location := reply.headers.get("Location"):
        # Without its query: a login page is sent a token there.
        target = urlsplit(location)
        host = target.netloc.rpartition("@")[2]
        text += f" to {target.scheme}://{host}{target.path}" if host else f" to {target.path}"
    if (error := answers.read_error(reply.body)) is not None:
        return f"{text} {error.type}: {error.message}"
    kind = reply.headers.get("Content-Type", "of no type")
    text += f" with a body {kind}, {len(reply.body)} bytes, not in Iceberg's error shape"
    if kind.startswith(("application/json", "text/plain")):
        text += f": {reply.body[:_LONGEST_READ].decode('utf-8', 'replace')}"
    return text


def retry_after(reply: Reply) -> float | None:
    """Seconds to wait (RFC 9110, 10.2.3): a number, or a date counted from the server's own Date if it has one.

    Returns:
        None for nothing, or nothing that makes sense. How much of it is heeded is for whoever waits to say.
    """
    value = reply.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]+", value):
        return float(value)
    until = _date(value)
    if until is None:
        return None
    since = _date(reply.headers.get("Date", "")) or reply.at
    return max(0.0, (until - since).total_seconds())


def _date(value: str) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
