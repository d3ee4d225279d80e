"""Reads a request's body without trusting what was said about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sfn.errors import Rejected
from sfn.limits import BodyReservation, ClientTimeout, with_timeout

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
    """The whole body, or None when the client went away.

    Args:
        receive: ASGI's.
        declared: `Content-Length`: enough to refuse a body at once, never to believe in one.
        limits: what it may cost.
        reservation: the memory that it takes if the sender is unidentified; None for an identified sender.

    Raises:
        Rejected: 413 too large; nothing beyond the limit is kept. 408 too slow.
        NoRoom: there is no memory for it.
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
