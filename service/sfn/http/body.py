"""Reads a request's body without trusting what was said about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from starlette.exceptions import HTTPException

from sfn.errors import Rejected
from sfn.http import responses
from sfn.limits import (
    EXHAUSTED_MESSAGE,
    RETRY_AFTER,
    BodyMemory,
    BodyMemoryExhausted,
    BodyReservation,
    ClientTimeout,
    with_timeout,
)

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a body may cost.

    Attributes:
        size: most bytes.
        deadline: most seconds from the first look to the last byte.
    """

    size: int
    deadline: float = 30.0


async def read_body(
    receive: Receive, declared: int | None, limits: BodyLimits, reservation: BodyReservation | None = None
) -> bytes | None:
    """Return the whole body, or None when the client went away.

    Args:
        receive: ASGI's.
        declared: `Content-Length`: enough to refuse a body at once, never to believe in one.
        limits: what it may cost.
        reservation: the memory that it takes if the sender is unidentified; None for an identified sender.

    Raises:
        Rejected: 413 too large; nothing beyond the limit is kept. 408 too slow.
        BodyMemoryExhausted: there is no memory for it.
    """
    if declared is not None and declared > limits.size:
        raise _too_large(limits.size, f"{declared} declared")
    try:
        return await with_timeout(limits.deadline, _whole(receive, limits.size, reservation), reservation)
    except ClientTimeout:
        expected = f"the whole body within {limits.deadline:g} s"
        raise Rejected("#", status=408, expected=expected, found="a part of it") from None


async def _whole(receive: Receive, size: int, reservation: BodyReservation | None) -> bytes | None:
    parts: list[bytes] = []
    count = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part: bytes = message.get("body", b"")
        count += len(part)
        if count > size:
            raise _too_large(size, "more")
        if reservation is not None:
            reservation.add(len(part))
        parts.append(part)
        if not message.get("more_body", False):
            if reservation is not None:
                reservation.complete()
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(size: int, found: str) -> Rejected:
    return Rejected(
        "#", status=413, expected=f"at most {size} bytes", found=found, remedy="send fewer events in one request"
    )


# ── Middleware

ADMIN_BODY_LIMITS: Final = BodyLimits(size=1 << 20)
"""Of an operator's order."""

AsgiApplication: TypeAlias = Callable[[MutableMapping[str, Any], Receive, responses.Send], Awaitable[None]]

_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class BodyLimitMiddleware:
    """An application (ASGI 3) that gets a body whole, and none that is too large or comes too slowly.

    Args:
        application: answers an `HTTPException` that its `receive` raises.
        limits: what a body may cost.
        memory: for all bodies: a route sees only then who sent one.
    """

    def __init__(
        self,
        application: AsgiApplication,
        limits: BodyLimits = ADMIN_BODY_LIMITS,
        memory: BodyMemory | None = None,
    ) -> None:
        self._application, self._limits, self._memory = application, limits, memory or BodyMemory()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: responses.Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in _BODILESS:
            await self._application(scope, receive, send)
            return
        with self._memory.reserve() as held:
            await self._application(scope, _WholeBodyReceive(receive, _declared(scope), self._limits, held), send)


class _WholeBodyReceive:
    """A body in one message, and then whatever else comes."""

    def __init__(
        self, receive: Receive, declared: int | None, limits: BodyLimits, reservation: BodyReservation
    ) -> None:
        self._receive, self._declared, self._limits, self._reservation = receive, declared, limits, reservation
        self._is_read = False

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._is_read:
            return await self._receive()
        self._is_read = True
        try:
            content = await read_body(self._receive, self._declared, self._limits, self._reservation)
        except Rejected as refusal:
            # Its client is in the middle of a body: no next request could be told from it.
            raise HTTPException(refusal.status, responses.problem_detail(refusal), {"Connection": "close"}) from None
        except BodyMemoryExhausted:
            again = {"Connection": "close", "Retry-After": str(RETRY_AFTER)}
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, EXHAUSTED_MESSAGE, again) from None
        if content is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": content, "more_body": False}


def _declared(scope: MutableMapping[str, Any]) -> int | None:
    said = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(said) if said.isdigit() else None


# ── Rate limit

_MINUTE: Final = 60.0
_AT_ONCE: Final = 10
"""The part of a minute's requests that may come at once is one by this."""


class RateLimit:
    """So many requests a minute, and a tenth of them at once.

    A sender that was silent may so catch up for six seconds. With a whole minute's worth at once twice the limit would
    pass in the minute after a silence; so it is a tenth more at most.

    Args:
        per_minute: the limit, at least 1.

    Attributes:
        per_minute: as it was given.
    """

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._each = _MINUTE / per_minute
        self._most = max(1.0, per_minute / _AT_ONCE)
        self._left = self._most
        self._at: float | None = None

    def seconds_to_wait(self, now: float) -> float | None:
        """Return seconds until a request may come; None: this one may, and is counted.

        Args:
            now: seconds of a clock that never runs backwards.
        """
        gained = 0.0 if self._at is None else (now - self._at) / self._each
        self._left, self._at = min(self._most, self._left + gained), now
        if self._left < 1:
            return (1 - self._left) * self._each
        self._left -= 1
        return None
