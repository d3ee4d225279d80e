"""Limits for requests: the size and the duration of a body, its memory, and the rate of a sender."""

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
    """Limits for one request body.

    Attributes:
        size: most bytes.
        deadline: most seconds until the last byte.
    """

    size: int
    deadline: float = 30.0


async def read_body(
    receive: Receive,
    declared: int | None,
    limits: BodyLimits,
    reservation: BodyReservation | None = None,
    arrived: bytes | None = None,
) -> bytes | None:
    """Return the whole body; None if the client disconnected.

    Args:
        receive: ASGI's `receive`.
        declared: `Content-Length`. It can only reject a body early: the bytes that arrive are counted.
        limits: limits for the body.
        reservation: memory for the body of an unidentified sender; None for an identified one.
        arrived: the whole body if the server has it, so that `receive` is not needed; else None.

    Raises:
        Rejected: 413 too large; nothing beyond the limit is stored. 408 too slow.
        BodyMemoryExhausted: no memory is left for the body.
    """
    if declared is not None and declared > limits.size:
        raise _too_large(limits.size, f"{declared} declared")
    if arrived is not None:
        if len(arrived) > limits.size:
            raise _too_large(limits.size, "more")
        if reservation is not None:
            reservation.add(len(arrived))
            reservation.complete()
        return arrived
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


ADMIN_BODY_LIMITS: Final = BodyLimits(size=1 << 20)
"""Limits for a request to the admin API."""

AsgiApplication: TypeAlias = Callable[[MutableMapping[str, Any], Receive, responses.Send], Awaitable[None]]

_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class BodyLimitMiddleware:
    """ASGI middleware that passes on whole bodies, and rejects bodies that are too large or too slow.

    Args:
        application: the application, which must answer an `HTTPException` that its `receive` raises.
        limits: limits for one body.
        memory: memory for all bodies. A client is unidentified until a route checks its token.
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
        with self._memory.reserve() as reservation:
            whole_body = _WholeBodyReceive(receive, _declared(scope), self._limits, reservation)
            await self._application(scope, whole_body, send)


class _WholeBodyReceive:
    """An ASGI `receive` with the whole body as its first message."""

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
            # The client is still sending the body, so the next request on this connection could not be recognised.
            raise HTTPException(refusal.status, responses.problem_detail(refusal), {"Connection": "close"}) from None
        except BodyMemoryExhausted:
            headers = {"Connection": "close", "Retry-After": str(RETRY_AFTER)}
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, EXHAUSTED_MESSAGE, headers) from None
        if content is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": content, "more_body": False}


def _declared(scope: MutableMapping[str, Any]) -> int | None:
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(length) if length.isdigit() else None


_MINUTE: Final = 60.0
_BURST_DIVISOR: Final = 10
"""The burst is the requests per minute, divided by this number."""


class RateLimit:
    """A token bucket: requests per minute, and a burst of a tenth of them.

    After an idle time, a minute has at most a tenth more requests than the limit. A burst of a whole minute's requests
    would allow twice the limit.

    Args:
        per_minute: the limit, at least 1.

    Attributes:
        per_minute: the limit, as given.
    """

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._interval = _MINUTE / per_minute
        self._burst = max(1.0, per_minute / _BURST_DIVISOR)
        self._left = self._burst
        self._updated_at: float | None = None

    def seconds_to_wait(self, now: float) -> float | None:
        """Return the seconds until a request is allowed; None if this one is allowed, and count it.

        Args:
            now: seconds of a monotonic clock.
        """
        gained = 0.0 if self._updated_at is None else (now - self._updated_at) / self._interval
        self._left, self._updated_at = min(self._burst, self._left + gained), now
        if self._left < 1:
            return (1 - self._left) * self._interval
        self._left -= 1
        return None
